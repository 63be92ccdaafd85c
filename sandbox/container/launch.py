"""The first process of a container: a small shell script written for each run, and its files.

The script does what an engine cannot: give the command exactly our environment without showing it
in the host's process list, bound each process's address space, keep the command from being pid 1
(which ignores signals that end others), and tell which limit was hit. It needs only POSIX `sh` and
`mkdir` of the image. After the command it uses builtins alone, because it cannot fork where the
limit of processes was hit.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.processes.output import ReportPipe
from sandbox.types import SandboxError

SCRIPT, HOSTS, STATUS, GO = "run", "hosts", "status", "go"

# The engine's own file may name the machines of this network.
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"

_STATUS_BYTES = 64 * 1024


class Controls:
    """The script with its two pipes, below `scratch`. A context manager that closes the pipes.

    The container shows the directory `start` read-only. podman writes the pids, as this machine
    knows them, of the container's first process to `pid_file` and of its monitor to `monitor_file`.
    `seccomp` is the file of a profile, None for the engine's own.
    """

    def __init__(self, scratch: Path, script: bytes, profile: bytes | None) -> None:
        self.start = scratch / "start"
        self.pid_file = scratch / "pid"
        self.monitor_file = scratch / "monitor"
        self.seccomp = None if profile is None else scratch / "seccomp.json"
        self.start.mkdir(mode=0o755)
        for name, content in ((SCRIPT, script), (HOSTS, _HOSTS.encode("ascii"))):
            (self.start / name).write_bytes(content)
            (self.start / name).chmod(0o444)
        if self.seccomp is not None and profile is not None:
            self.seccomp.write_bytes(profile)
        self.pipe = ReportPipe(self.start / STATUS, _STATUS_BYTES)
        os.mkfifo(self.start / GO, 0o600)
        # Opened for both ends (fifo(7)), so that neither side waits for the other to open it.
        self._go = os.open(self.start / GO, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        (self.start / GO).chmod(0o444)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        os.close(self._go)

    def release(self) -> None:
        """Let the script start the command."""
        os.write(self._go, b"\n")

    def status(self) -> ScriptStatus:
        """Return what the script has said up to now."""
        while data := self._read():
            self.pipe.capture.feed(data)
        return read_status(self.pipe.capture.value())

    def pid(self) -> int | None:
        """The pid of the first process on this machine; None while it is unknown."""
        return _number(self.pid_file)

    def monitor(self) -> int | None:
        """The pid of podman's monitor; None while it is unknown."""
        return _number(self.monitor_file)

    def _read(self) -> bytes:
        try:
            return os.read(self.pipe.reader, _STATUS_BYTES)
        except BlockingIOError:
            return b""


def _number(file: Path) -> int | None:
    """Read a pid; None when podman has not written it, or docker runs the container."""
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None


_STARTED = b"started\n"

# The engine shows a container its own control group read-only: version 2, then version 1.
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

# Read-only variables of bash, in case it is the image's sh.
_READ_ONLY = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})

_END = re.compile(rb"^end ([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,9})$", re.MULTILINE)
_PROBLEM = re.compile(rb"^problem: (.*)$", re.MULTILINE)

_KIB = 1024


@dataclass(frozen=True, slots=True)
class ScriptStatus:
    """What the script said: how often the kernel killed for memory and refused a process.

    Code in the container can write to the same pipe. It can only claim or hide a limit.
    """

    started: bool
    ended: bool = False
    killed: int = 0
    refused: int = 0
    problem: str = ""


def start_script(
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
    """Return the text of the script. Paths are absolute and inside; `address_space` is in bytes.

    The script reports to the pipe `status` and starts the command when the pipe `go` has a line.
    `inherited` are variables of the container that the command must not have. Raises SandboxError
    for a variable that cannot be set.
    """
    plain = {name for name in environment if _NAME.fullmatch(name) and name not in _READ_ONLY}
    exports = (f"export {name}={shlex.quote(environment[name])}" for name in sorted(plain))
    odd = [f"{name}={value}" for name, value in sorted(environment.items()) if name not in plain]
    if odd and "=" in argv[0]:
        # A shell cannot set such a variable; env(1) can, but takes this program for another one.
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


def read_status(said: bytes) -> ScriptStatus:
    """Parse what the script wrote. Of several ends the last counts, because the script wrote it."""
    problem = _PROBLEM.search(said)
    ends = _END.findall(said)
    if not said.startswith(_STARTED):
        reason = problem[1].decode("utf-8", errors="replace") if problem else ""
        return ScriptStatus(started=False, problem=reason)
    if not ends:
        return ScriptStatus(started=True)
    _, killed, refused = map(int, ends[-1])
    return ScriptStatus(started=True, ended=True, killed=killed, refused=refused)


def _harmless(path: str) -> str:
    """Replace every character that has a meaning between double quotes of a shell."""
    return re.sub(r"[^\w/.-]", "?", path)
