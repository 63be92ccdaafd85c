"""Who a sandboxed command is, and its environment variables. It inherits none from the host."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from sandbox.types import Command, SandboxError

# The name of the user and of the machine inside.
USER_NAME = "sandbox"

# A fixed search path: the user's own would name directories that are not shown.
PATH = "/usr/local/bin:/usr/bin:/bin"

# "Unused" in systemd's table of uids (systemd.io/UIDS-GIDS): no user, service or container has one.
_SPARE = range(1_879_048_192, 2_147_483_647)

# The traditional `nobody`, for a user namespace that maps only 16 bits (rootless containers).
_NOBODY = 65_534


def command_environment(
    command: Command, *, home: Path, report: Path | None, junit: Path | None = None
) -> Mapping[str, str]:
    """Return all variables: a fixed part, the command's own, and the paths of its two reports.

    Byte code goes to a private directory and is never taken from the tree, because a `.pyc` in a
    patch could hide its source. Hashing is fixed, so that a test run can be repeated. Raises
    SandboxError for a variable that cannot be set.
    """
    temporary = str(home.parent)
    fixed = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "LOGNAME": USER_NAME,
        "PATH": PATH,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPYCACHEPREFIX": f"{temporary}/pycache",
        "TMPDIR": temporary,
        "USER": USER_NAME,
    }
    files = {"SANDBOX_REPORT": report, "SANDBOX_JUNIT": junit}
    own = {name: str(path) for name, path in files.items() if path is not None}
    whole = {**fixed, **command.environment, **own}
    for name, value in whole.items():
        if not name or "=" in name or "\0" in name + value:
            raise SandboxError(f"not an environment variable: {name!r}")
    return whole


def find_spare_uid() -> int | None:
    """Find a uid (and gid) to drop to; None when this process may not change its uid.

    Where the kernel maps the unused range, every call returns another uid. No other process of the
    machine then shares it, and the limit on processes counts this sandbox's alone.
    """
    if os.geteuid() != 0:
        return None
    uids, gids = _mapped_ids("uid_map"), _mapped_ids("gid_map")
    for candidate in (_SPARE.start + secrets.randbelow(len(_SPARE)), _NOBODY):
        if all(any(candidate in ids for ids in ranges) for ranges in (uids, gids)):
            return candidate
    return None


def is_spare(uid: int) -> bool:
    """Whether only a sandbox has this uid."""
    return uid in _SPARE


def passwd_text(uid: int, gid: int, home: str) -> str:
    """The text of /etc/passwd with root and the user of the sandbox."""
    return f"root:x:0:0:root:/:/bin/false\n{USER_NAME}:x:{uid}:{gid}:{USER_NAME}:{home}:/bin/sh\n"


def group_text(gid: int) -> str:
    """The text of /etc/group with the groups of these two users."""
    return f"root:x:0:\n{USER_NAME}:x:{gid}:\n"


def _mapped_ids(name: str) -> tuple[range, ...]:
    """The ids that exist in this user namespace (user_namespaces(7))."""
    lines = Path("/proc/self", name).read_text(encoding="ascii").splitlines()
    fields = [[int(field) for field in line.split()] for line in lines]
    return tuple(range(inside, inside + count) for inside, _, count in fields)
