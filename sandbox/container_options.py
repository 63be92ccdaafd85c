"""The first process of a container: a small shell script written for each run, and its files.

The script does what an engine cannot: give the command exactly our environment without showing it
in the host's process list, bound each process's address space, keep the command from being pid 1
(which ignores signals that end others), and tell which limit was hit. It needs only POSIX `sh` and
`mkdir` of the image. After the command it uses builtins alone, because it cannot fork where the
limit of processes was hit.
"""

from __future__ import annotations

import math
import os
import re
import resource
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.container_engine import LABEL, Engine, Image
from sandbox.host import SYSTEM, USER_NAME
from sandbox.runs import JUNIT_DIRECTORY, REPORT_DIRECTORY, SHARED_MEMORY_BYTES, SandboxRun
from sandbox.supervise import ReportPipe
from sandbox.types import Limits, SandboxError

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


# ---- the arguments of the engine


START = Path("/sandbox")  # our script, its pipe, /etc/hosts

# Images may ask for volumes, which docker would make writable without a bound.
_VOLUME_BYTES = 16 * 1024 * 1024

# podman mounts subscriptions of the host here (containers-mounts.conf(5)) unless we mount first.
_SECRETS = "/run/secrets"

# Our shell and, while it starts the command, a copy of it.
_OWN_PROCESSES = 2

# Engines would raise it to a million, which not every root may.
_OPEN_FILES = 65_536

# When agent and guard were both killed, podman itself ends the container after this time.
_GRACE_SECONDS = 120

# Both clients pass these on when they are configured to.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")

# Variables that the engines or we give to the first process; the command gets none of them.
FIRST_VARIABLES = frozenset(
    {"HOME", "HOSTNAME", "PATH", "TERM", "container", *_PROXIES, *map(str.lower, _PROXIES)}
)

# Mounting something over these would hide the image's programs, or what protects us.
_TAKEN = ("/", "/tmp", "/dev", "/proc", "/sys", "/etc", "/run", "/home", "/root", "/var", *SYSTEM)  # noqa: S108


@dataclass(frozen=True, slots=True)
class ContainerSetup:
    """What one container is made of. `uid` and `gid` are what the command runs as, never 0.

    `homes` are directories of the host that must not be shown.
    """

    name: str
    run: SandboxRun
    uid: int
    gid: int
    controls: Controls
    homes: tuple[Path, ...]


def run_arguments(
    engine: Engine, image: Image, runtime: str | None, setup: ContainerSetup
) -> list[str]:
    """Return the engine's arguments, including the program that runs in the container.

    Raises SandboxError for paths that must not be shown.
    """
    return [
        *("--log-level", "error"),  # warnings would be mixed into the command's own output
        *(("--runtime", runtime) if runtime else ()),
        "run",
        *("--rm", "--name", setup.name, "--label", f"{LABEL}=1"),
        *("--pull", "never", "--log-driver", "none", "--no-healthcheck"),
        *_isolation(engine, setup),
        *_limits(engine, setup.run.limits),
        *_variables(),
        *_temporary(engine, image, setup.run.limits.tmp),
        *_mounts(setup),
        *("--workdir", "/", "--entrypoint", "/bin/sh"),
        image.identity,
        str(START / SCRIPT),
    ]


def _isolation(engine: Engine, setup: ContainerSetup) -> list[str]:
    found = [
        *(() if setup.run.command.network else ("--network", "none")),
        *("--ipc", "private", "--hostname", USER_NAME),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{setup.uid}:{setup.gid}"),
    ]
    if engine.kind == "podman":
        # Otherwise more of the file system is writable, and the host's proxies are known inside.
        found += ["--read-only-tmpfs=false", "--http-proxy=false", "--image-volume", "ignore"]
        found += ["--pidfile", str(setup.controls.pid_file)]
        found += ["--conmon-pidfile", str(setup.controls.monitor_file)]
    if setup.controls.seccomp is not None:
        found += ["--security-opt", f"seccomp={setup.controls.seccomp}"]
    if engine.rootless:
        found += ["--userns", "keep-id"]
    elif engine.kind == "docker":
        found += ["--userns", "host"]  # a daemon that maps uids would not let ours in
    if engine.selinux:
        # Relabelling would change the user's own files; the other walls stand.
        found += ["--security-opt", "label=disable"]
    return found


def _limits(engine: Engine, limits: Limits) -> list[str]:
    processes = limits.processes + _OWN_PROCESSES
    found = [
        *("--shm-size", str(SHARED_MEMORY_BYTES)),
        *("--ulimit", f"cpu={limits.cpu_seconds}:{limits.cpu_seconds + 1}"),
        *("--ulimit", f"fsize={limits.file_size}:{limits.file_size}"),
        *("--ulimit", "core=0:0"),
        *("--ulimit", _bounded("nofile", resource.RLIMIT_NOFILE, _OPEN_FILES)),
    ]
    if engine.groups:
        memory = str(limits.memory)
        found += ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes)]
        # The group must be what refuses a process, because it counts refusals.
        found += ["--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, 2 * processes)]
    else:
        found += ["--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, processes)]
    if engine.kind == "podman":
        found += ["--timeout", str(math.ceil(limits.wall_seconds) + _GRACE_SECONDS)]
    return found


def _bounded(name: str, kind: int, most: int) -> str:
    """Return an `--ulimit` of `most`, or of our own hard limit where that is less."""
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return f"{name}={value}:{value}"


def _variables() -> list[str]:
    """Clear proxies for the first process, whose environment the command can read.

    Our script sets the variables of the command itself.
    """
    names = sorted({*_PROXIES, *map(str.lower, _PROXIES)})
    return [part for name in names for part in ("--env", f"{name}=")]


def _temporary(engine: Engine, image: Image, tmp: int) -> list[str]:
    # podman would otherwise copy the content of the image into them.
    fresh = ",notmpcopyup" if engine.kind == "podman" else ""
    sizes = {volume: _VOLUME_BYTES for volume in image.volumes if volume not in _TAKEN}
    sizes[_SECRETS] = 4096
    sizes["/tmp"] = tmp  # noqa: S108
    found: list[str] = []
    for path, size in sorted(sizes.items()):
        options = f"rw,exec,nosuid,nodev,size={size},mode=1777{fresh}"
        found += ["--tmpfs", f"{path}:{options}"]
    return found


def _mounts(setup: ContainerSetup) -> list[str]:
    workspace, channels, start = setup.run.workspace, setup.run.channels, setup.controls.start
    if str(workspace.mount) in _TAKEN or ".." in workspace.mount.parts:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    found = [
        _bind(start, START),
        _bind(start / HOSTS, Path("/etc/hosts")),
        _bind(workspace.path, workspace.mount, writable=True),
        *(_bind(source, target) for source, target in _shown(setup)),
    ]
    if channels is not None:
        found.append(_bind(channels.report_directory, REPORT_DIRECTORY))
        found.append(_bind(channels.junit_directory, JUNIT_DIRECTORY, writable=True))
    return [part for mount in found for part in ("--mount", mount)]


def _shown(setup: ContainerSetup) -> list[tuple[Path, Path]]:
    """Return (source, target) of each host path to show, at its own path.

    Refuses paths that would hide the image's system. The workspace already shows paths inside it.
    """
    found: dict[Path, Path] = {}
    refused = (*map(Path, _TAKEN), *setup.homes)
    for path in setup.run.command.read_only:
        target = Path(os.path.abspath(path))  # noqa: PTH100 - without following links
        source = Path(os.path.realpath(target))
        if not source.exists():
            raise SandboxError(f"{path} does not exist; it cannot be shown in the container")
        if any(home.is_relative_to(place) for home in refused for place in (source, target)):
            raise SandboxError(f"refused to show {path} in the container: it holds too much")
        if not target.is_relative_to(setup.run.workspace.mount):
            found[target] = source
    return [(source, target) for target, source in sorted(found.items())]


def _bind(source: Path, target: Path, *, writable: bool = False) -> str:
    """Return the value of `--mount`: one line of CSV (RFC 4180), which can express any path."""
    fields = ["type=bind", f"src={source}", f"dst={target}", *(() if writable else ("readonly",))]
    if any("\n" in field or "\0" in field for field in fields):
        raise SandboxError(f"not a path that a container can be given: {str(target)!r}")
    return ",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in fields)
