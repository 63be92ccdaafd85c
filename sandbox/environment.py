"""The fixed environment of a sandboxed command. Nothing is inherited from the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandbox.identity import NAME
from sandbox.types import Command, SandboxError

# Fixed search path: the user's own would name directories that are not shown.
PATH = "/usr/local/bin:/usr/bin:/bin"


def command_environment(
    command: Command, *, home: Path, report: Path | None, junit: Path | None = None
) -> Mapping[str, str]:
    """The whole environment: a fixed part, the command's own, the places of its two reports.

    Byte code goes to a private place and is never taken from the tree (a `.pyc` in a patch could
    hide its source), and hashing is fixed so that a test run can be repeated.
    """
    temporary = str(home.parent)
    fixed = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "LOGNAME": NAME,
        "PATH": PATH,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPYCACHEPREFIX": f"{temporary}/pycache",
        "TMPDIR": temporary,
        "USER": NAME,
    }
    places = {"SANDBOX_REPORT": report, "SANDBOX_JUNIT": junit}
    own = {name: str(path) for name, path in places.items() if path is not None}
    whole = {**fixed, **command.environment, **own}
    for name, value in whole.items():
        if not name or "=" in name or "\0" in name + value:
            raise SandboxError(f"not an environment variable: {name!r}")
    return whole
