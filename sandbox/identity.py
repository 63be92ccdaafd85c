"""Who the command is inside the sandbox: a uid that owns nothing else, where one can be had."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

NAME = "sandbox"

# "Unused" in systemd's table of uids (systemd.io/UIDS-GIDS): no user, service or container has one.
_SPARE = range(1_879_048_192, 2_147_483_647)

# The traditional `nobody`, where a user namespace maps no more than 16 bits (rootless containers).
_NOBODY = 65_534


def spare_uid() -> int | None:
    """A uid (and gid) to drop to, or None when this process may not change its uid.

    A fresh one each time where the kernel maps the unused range: then no other process of the
    machine shares it, and the limit of processes counts this sandbox's alone.
    """
    if os.geteuid() != 0:
        return None
    uids, gids = _mapped("uid_map"), _mapped("gid_map")
    for candidate in (_SPARE.start + secrets.randbelow(len(_SPARE)), _NOBODY):
        if _covers(uids, candidate) and _covers(gids, candidate):
            return candidate
    return None


def is_spare(uid: int) -> bool:
    """Whether nobody but a sandbox has this uid."""
    return uid in _SPARE


def passwd(uid: int, gid: int, home: str) -> str:
    """The text of /etc/passwd: root and this one user."""
    return f"root:x:0:0:root:/:/bin/false\n{NAME}:x:{uid}:{gid}:{NAME}:{home}:/bin/sh\n"


def group(gid: int) -> str:
    """The text of /etc/group: root's and this one group."""
    return f"root:x:0:\n{NAME}:x:{gid}:\n"


def _mapped(name: str) -> tuple[range, ...]:
    """The ids that exist in this user namespace: user_namespaces(7)."""
    lines = Path("/proc/self", name).read_text(encoding="ascii").splitlines()
    fields = [[int(field) for field in line.split()] for line in lines]
    return tuple(range(inside, inside + count) for inside, _, count in fields)


def _covers(ranges: tuple[range, ...], identity: int) -> bool:
    return any(identity in ids for ids in ranges)
