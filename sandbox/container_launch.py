"""The first process of a container: a small shell script that we write anew for every run.

It exists because of what an engine cannot do: give the command exactly our environment without
showing it in the host's process list, bound each process's address space, keep the command from
being pid 1 (which ignores signals that others die of), and tell which limit was hit. Only POSIX
`sh` and `mkdir` of the image are needed. What follows the command uses builtins alone: where
the limit of processes was hit, there is no forking.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import SandboxError

_STARTED = b"started\n"

# The engine shows a container its own control group, read-only: of version 2, then of version 1.
_SCRIPT = r"""
exec 3>{status} 4>&2 2>/dev/null
mkdir -p {home}
cd {cwd} || {{ echo "problem: no directory {shown}" >&3; exit 125; }}
echo started >&3
read -r word <{go}
(
  ulimit -v {address_space}
  unset {inherited}
  {exports}
  exec {command} 2>&4 3>&- 4>&-
)
code=$?
killed=0 refused=0
for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  [ -r $file ] && while read -r key value; do
    [ "$key" = oom_kill ] && killed=$value
  done <$file
done
for file in /sys/fs/cgroup/pids.events /sys/fs/cgroup/pids/pids.events; do
  [ -r $file ] && while read -r key value; do
    [ "$key" = max ] && refused=$value
  done <$file
done
echo "end $code $killed $refused" >&3
exit $code
"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Of bash, where it is the image's sh.
_READ_ONLY = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})

_END = re.compile(rb"^end ([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,9})$", re.MULTILINE)
_PROBLEM = re.compile(rb"^problem: (.*)$", re.MULTILINE)

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Status:
    """What the script said: how often the kernel killed for memory, and refused a process.

    Code in the container can write to the same place: it can claim a limit, or hide one, no more.
    """

    started: bool
    ended: bool = False
    killed: int = 0
    refused: int = 0
    problem: str = ""


def script(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    inherited: Iterable[str],
    cwd: Path,
    home: Path,
    status: Path,
    go: Path,
    address_space: int | None,
) -> bytes:
    """The text of the script. Paths are absolute and inside; `address_space` in bytes or None.

    It says on the pipe `status` how it goes, and starts the command when the pipe `go` has a line.
    `inherited` are names of variables that the container has and the command must not. Raises
    SandboxError for a variable that cannot be set.
    """
    plain = {name for name in environment if _NAME.fullmatch(name) and name not in _READ_ONLY}
    exports = (f"export {name}={shlex.quote(environment[name])}" for name in sorted(plain))
    odd = [f"{name}={value}" for name, value in sorted(environment.items()) if name not in plain]
    if odd and "=" in argv[0]:
        # A shell sets no such variable; env(1), which does, would take the program for one.
        raise SandboxError(f"cannot set {odd[0]!r} for a program with = in its name: {argv[0]!r}")
    through = ("env", *odd) if odd else ()
    text = _SCRIPT.format(
        status=shlex.quote(str(status)),
        go=shlex.quote(str(go)),
        home=shlex.quote(str(home)),
        cwd=shlex.quote(str(cwd)),
        shown=_harmless(str(cwd)),
        address_space="unlimited" if address_space is None else address_space // _KIB,
        inherited=" ".join(sorted(name for name in inherited if _NAME.fullmatch(name))),
        exports="\n  ".join(exports),
        command=shlex.join([*through, *argv]),
    )
    return os.fsencode(text)


def read_status(said: bytes) -> Status:
    """What the script wrote so far; the last of several ends counts, for it wrote last."""
    problem = _PROBLEM.search(said)
    ends = _END.findall(said)
    if not said.startswith(_STARTED):
        reason = problem[1].decode("utf-8", errors="replace") if problem else ""
        return Status(started=False, problem=reason)
    if not ends:
        return Status(started=True)
    _, killed, refused = map(int, ends[-1])
    return Status(started=True, ended=True, killed=killed, refused=refused)


def _harmless(path: str) -> str:
    """A path that means nothing between double quotes of a shell."""
    return re.sub(r"[^\w/.-]", "?", path)
