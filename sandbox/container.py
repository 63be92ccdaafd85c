"""The container backend: podman or docker, with an image that brings the interpreters.

It is weaker than bubblewrap in one point: all of the image is readable. The engine's client is our
child, the container is not; so a guard (a shell in a session of its own) removes the container when
we end, however that happens.
"""

from __future__ import annotations

import math
import os
import re
import resource
import select
import shlex
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Self

from sandbox.choose import home_directories, probe_by_running, unavailable_probe
from sandbox.container_engine import (
    LABEL,
    Engine,
    Image,
    find_engine,
    find_image,
    sweep_containers,
)
from sandbox.host import PATH, SYSTEM, USER_NAME, find_spare_uid, last_line
from sandbox.killing import new_name, reap_session
from sandbox.meters import out_of_memory, too_many_processes
from sandbox.runs import (
    HOME,
    JUNIT_DIRECTORY,
    REPORT_DIRECTORY,
    SHARED_MEMORY_BYTES,
    SandboxRun,
    open_run,
)
from sandbox.seccomp import stricter_profile
from sandbox.supervise import Breach, Guard, Meter, ReportPipe, start_process
from sandbox.types import Command, Limits, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# An image of many layers on a cold disk.
_START_SECONDS = 120.0
_TICK_SECONDS = 0.05

# The client cleans up before it reports the end of its container.
_TIDY_SECONDS = 2.0

# Kills the client and removes the container (the last argument) twice, because the client may still
# be making it at the first attempt.
_REMOVE = 'kill -9 "$0"; "$@"; sleep 2; exec "$@"'

# podman writes a pid as soon as it knows of the start.
_PID_SECONDS = 2.0
_PAUSE_SECONDS = 0.001

_DIAGNOSIS_BYTES = 64 * 1024

_MILLISECONDS = 1000


class ContainerSandbox:
    """Runs commands in fresh containers of `image`, which must be on this machine.

    `engine` is the podman or docker to use (default: the first that answers). `homes` are
    directories of the host that must not be shown (default: the home of the user). The image's
    user, entry point and volumes are not used; its variables are, where the protocol fixes none.
    """

    name = "container"
    foreign_root = True

    def __init__(
        self, image: str, engine: str | None = None, *, homes: tuple[Path, ...] | None = None
    ) -> None:
        self._image_name = image
        self._engine_name = engine
        self._homes = home_directories() if homes is None else homes
        self._ready: tuple[Engine, Image] | None = None

    def probe(self) -> Probe:
        """Run a small script inside and report what it could and could not do. Never raises."""
        try:
            variables = {*_FIRST_VARIABLES, *self.image_environment()}
        except SandboxError as error:
            return unavailable_probe(self.name, str(error))
        return probe_by_running(self, homes=self._homes, variables=variables)

    def sweep(self) -> tuple[str, ...]:
        """Remove what killed agents left behind; return the names of the containers in order.

        Raises SandboxError when no engine answers.
        """
        return sweep_containers(self._parts()[0])

    def image_environment(self) -> Mapping[str, str]:
        """The variables that the image sets (`ENV`). Raises SandboxError."""
        return self._parts()[1].environment

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command isolated; see the protocol `Sandbox`."""
        engine, image = self._parts()
        uid, gid = _choose_identity(engine, workspace)
        owner = uid if os.geteuid() == 0 else None
        profile = None if engine.seccomp is None else stricter_profile(engine.seccomp)
        with (
            open_run(command, workspace, owner, cancel) as run,
            Controls(run.scratch, start_script(run, engine, image), profile) as controls,
        ):
            arguments = run_arguments(
                engine, image, run, controls, user=f"{uid}:{gid}", homes=self._homes
            )
            with (
                ContainerProcess(engine, arguments, controls) as process,
                closing(
                    run.meters(None, ScriptMeter(run.limits, controls), in_memory=run.memory_sizes)
                ) as meters,
            ):
                if process.pid is not None:
                    meters.enter(process.pid)
                controls.release()
                outcome = run.watch(process.popen, process.kill, meters)
            return run.result(outcome, outcome.returncode)

    def _parts(self) -> tuple[Engine, Image]:
        """The engine that answers and the image that it has, which are asked for once."""
        if self._ready is None:
            engine = find_engine(self._engine_name)
            self._ready = (engine, find_image(engine, self._image_name))
        return self._ready


def probe_engine() -> Probe:
    """Find out whether an engine answers; without an image nothing else can be tried."""
    try:
        problem = f"{find_engine().kind} answers; name an image with --image"
    except SandboxError as error:
        problem = str(error)
    return unavailable_probe(ContainerSandbox.name, problem)


def _choose_identity(engine: Engine, workspace: Workspace) -> tuple[int, int]:
    """Return the uid and gid of the command, never root's. Raises SandboxError."""
    if engine.rootless or os.geteuid() != 0:
        if os.getuid() == 0:
            raise SandboxError("rootless podman as root of a user namespace cannot drop its uid")
        return os.getuid(), os.getgid()
    uid = workspace.owner if workspace.owner is not None else find_spare_uid()
    if uid is None:
        raise SandboxError("this user namespace has no uid to drop to; map more than one")
    return uid, uid


class ScriptMeter(Meter):
    """Asks, after the end, what the first process read in its container's control group."""

    def __init__(self, limits: Limits, controls: Controls) -> None:
        self._limits = limits
        self._controls = controls

    def after(self) -> Breach | None:
        """Memory stays decisive, because the kernel has killed something."""
        status = self._controls.status()
        if status.killed:
            return out_of_memory(self._limits)
        return too_many_processes(self._limits, decisive=False) if status.refused else None


# ---- a running container


class ContainerProcess:
    """A running container. A context manager: when it is left, the container is removed.

    `popen` is the engine's client, whose streams and status are the command's. `pid` is the pid, on
    this machine, of the container's first process, None where the engine does not tell it.
    """

    def __init__(self, engine: Engine, arguments: Sequence[str], controls: Controls) -> None:
        """Start a container whose `arguments` show the `controls` in it. Raises SandboxError."""
        self._engine = engine
        self._controls = controls
        self._first: int | None = None  # a pidfd of the container's first process
        self.pid: int | None = None
        # conmon leaves a file `oom` in its directory when memory runs out.
        self.popen = start_process([engine.program, *arguments], cwd=controls.start.parent)
        removal = (str(self.popen.pid), engine.program, *engine.removal())
        try:
            self._guard = Guard(("/bin/sh", "-c", _REMOVE, *removal))
        except SandboxError:
            self.popen.kill()
            self.popen.wait()
            raise
        self._guard.tell(controls.name)

    def __enter__(self) -> Self:
        """Wait until the script runs and waits for `Controls.release`. Raises SandboxError."""
        try:
            self._await_start()
            self._hold_first_process()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
        finally:
            self._guard.__exit__()
            # If another backend made us adopt orphans, we must reap the monitor that podman leaves.
            if (monitor := _read_pid(self._controls.monitor_file)) is not None:
                reap_session(monitor)
            if self._first is not None:
                os.close(self._first)
                self._first = None
            for file in (self.popen.stdout, self.popen.stderr):
                if file is not None:
                    file.close()

    def kill(self) -> None:
        """Kill the container and wait until it is gone. Safe to call again.

        Raises SandboxError when the engine cannot do it.
        """
        if self.popen.poll() is not None:
            status = self._controls.status()
            if status.started and not status.ended:
                # The client died, or the script was killed.
                self._engine.remove(self._controls.name)
            return  # otherwise the client itself has removed the container
        self._end_first_process()
        try:
            self.popen.wait(_TIDY_SECONDS)
        except TimeoutExpired:
            # Its output exceeds our pipe. While the client waits for us, the container cannot end.
            self.popen.kill()
            self.popen.wait()
            self._engine.remove(self._controls.name)

    def _end_first_process(self) -> None:
        """Kill the first process, and so all others: far quicker than asking the engine."""
        try:
            if self._first is not None:
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
                return
        except ProcessLookupError:
            return
        except PermissionError:
            pass
        self._engine.kill(self._controls.name)

    def _await_start(self) -> None:
        poll = select.poll()
        poll.register(self._controls.pipe.reader, select.POLLIN)
        deadline = time.monotonic() + _START_SECONDS
        while not (status := self._controls.status()).started:
            if status.problem:
                raise SandboxError(f"in the container: {status.problem}")
            if self.popen.poll() is not None:
                raise self._refusal()
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"{self._engine.kind} started no container within {_START_SECONDS:.0f} s"
                )
            poll.poll(_TICK_SECONDS * _MILLISECONDS)

    def _hold_first_process(self) -> None:
        """Open a pidfd of the first process. Podman tells its pid a moment after the start."""
        deadline = time.monotonic() + (_PID_SECONDS if self._engine.kind == "podman" else 0)
        while (pid := _read_pid(self._controls.pid_file)) is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        if pid is not None:
            try:
                self._first = os.pidfd_open(pid)
                self.pid = pid
            except OSError:
                pass  # it has ended already

    def _refusal(self) -> SandboxError:
        """Explain why the client gave up before anything of the container was run."""
        assert self.popen.stderr is not None
        os.set_blocking(self.popen.stderr.fileno(), False)
        reason = last_line(self.popen.stderr.read(_DIAGNOSIS_BYTES) or b"")
        reason = reason or f"status {self.popen.returncode}"
        return SandboxError(f"{self._engine.kind} cannot start a container ({reason})")


def _read_pid(file: Path) -> int | None:
    """Read a pid; None when podman has not written it, or docker runs the container."""
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None


# ---- the first process of a container: a small shell script written for each run, and its files

# Where the container shows our script, its pipes and /etc/hosts.
START = Path("/sandbox")

_SCRIPT, _HOSTS, _STATUS, _GO = "run", "hosts", "status", "go"

# The engine's own file may name the machines of this network.
_HOSTS_TEXT = b"127.0.0.1 localhost\n::1 localhost\n"

_STATUS_BYTES = 64 * 1024


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


class Controls:
    """The script with its two pipes, below `scratch`. A context manager that closes the pipes.

    The container is called `name` and shows the directory `start` read-only. podman writes the
    pids, as this machine knows them, of the container's first process to `pid_file` and of its
    monitor to `monitor_file`. `seccomp` is the file of a profile, None for the engine's own.
    """

    def __init__(self, scratch: Path, script: bytes, profile: bytes | None) -> None:
        self.name = new_name()
        self.start = scratch / "start"
        self.pid_file = scratch / "pid"
        self.monitor_file = scratch / "monitor"
        self.seccomp = None if profile is None else scratch / "seccomp.json"
        self.start.mkdir(mode=0o755)
        for name, content in ((_SCRIPT, script), (_HOSTS, _HOSTS_TEXT)):
            (self.start / name).write_bytes(content)
            (self.start / name).chmod(0o444)
        if self.seccomp is not None and profile is not None:
            self.seccomp.write_bytes(profile)
        self.pipe = ReportPipe(self.start / _STATUS, _STATUS_BYTES)
        os.mkfifo(self.start / _GO, 0o600)
        # Opened for both ends (fifo(7)), so that neither side waits for the other to open it.
        self._go = os.open(self.start / _GO, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        (self.start / _GO).chmod(0o444)

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
        try:
            while data := os.read(self.pipe.reader, _STATUS_BYTES):
                self.pipe.capture.feed(data)
        except BlockingIOError:
            pass
        return read_status(self.pipe.capture.value())


# The script does what an engine cannot: give the command exactly our environment without showing it
# in the host's process list, bound each process's address space, keep the command from being pid 1
# (which ignores signals that end others), and tell which limit was hit. It needs only POSIX `sh`
# and `mkdir` of the image. After the command it uses builtins alone, because it cannot fork where
# the limit of processes was hit. The engine shows a container its own control group read-only:
# version 2, then version 1.
_TEXT = r"""
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
_PROBLEM = re.compile(rb"\Aproblem: (.*)$", re.MULTILINE)

_KIB = 1024


def start_script(run: SandboxRun, engine: Engine, image: Image) -> bytes:
    """Return the script that starts the command of `run`. Raises SandboxError."""
    # Where the memory of all processes is bounded, memory that is only reserved does no harm.
    space = None if engine.groups else run.limits.address_space
    return script_text(
        run.command.argv,
        _merge_environment(run, image),
        inherited={*_FIRST_VARIABLES, *image.environment},
        cwd=run.workspace.inside(run.command.cwd),
        start=START,
        home=HOME,
        address_space=space,
    )


def _merge_environment(run: SandboxRun, image: Image) -> Mapping[str, str]:
    """Lay our variables over the image's; its directories of programs follow ours in PATH."""
    own = run.environment()
    path = [*own.get("PATH", PATH).split(":"), *image.environment.get("PATH", "").split(":")]
    brought = {name: text for name, text in image.environment.items() if _can_be_set(name)}
    return {**brought, **own, "PATH": ":".join(dict.fromkeys(filter(None, path)))}


def _can_be_set(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _READ_ONLY


def script_text(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    inherited: Iterable[str],
    cwd: Path,
    start: Path,
    home: Path,
    address_space: int | None,
) -> bytes:
    """Return the script. `inherited` are variables that the command must not have.

    Paths are those inside. Raises SandboxError for a variable that a shell cannot set.
    """
    for name in environment:
        if not _can_be_set(name):
            raise SandboxError(f"a container's shell cannot set the variable {name!r}; rename it")
    exports = (f"export {name}={shlex.quote(environment[name])}" for name in sorted(environment))
    text = _TEXT.format(
        status=shlex.quote(str(start / _STATUS)),
        go=shlex.quote(str(start / _GO)),
        home=shlex.quote(str(home)),
        cwd=shlex.quote(str(cwd)),
        shown=re.sub(r"[^\w/.-]", "?", str(cwd)),  # in double quotes of a shell
        address_space="unlimited" if address_space is None else address_space // _KIB,
        inherited=" ".join(sorted(name for name in inherited if _NAME.fullmatch(name))),
        exports="\n  ".join(exports),
        command=shlex.join(argv),
    )
    return os.fsencode(text)


def read_status(text: bytes) -> ScriptStatus:
    """Parse what the script wrote. Of several ends the last counts, because the script wrote it."""
    if not text.startswith(b"started\n"):
        problem = _PROBLEM.search(text)
        return ScriptStatus(False, problem=problem[1].decode("utf-8", "replace") if problem else "")
    ends = _END.findall(text)
    if not ends:
        return ScriptStatus(started=True)
    _, killed, refused = map(int, ends[-1])
    return ScriptStatus(started=True, ended=True, killed=killed, refused=refused)


# ---- the arguments of the engine

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
_PROXIES = tuple(f"{kind}_PROXY" for kind in ("ALL", "FTP", "HTTP", "HTTPS", "NO"))
_CLEARED = tuple(sorted({*_PROXIES, *map(str.lower, _PROXIES)}))

# Variables that the engines or we give to the first process; the command gets none of them.
_FIRST_VARIABLES = frozenset({"HOME", "HOSTNAME", "PATH", "TERM", "container", *_CLEARED})

# Mounting something over these would hide the image's programs, or what protects us.
_TAKEN = ("/", "/tmp", "/dev", "/proc", "/sys", "/etc", "/run", "/home", "/root", "/var", *SYSTEM)  # noqa: S108


def run_arguments(
    engine: Engine,
    image: Image,
    run: SandboxRun,
    controls: Controls,
    *,
    user: str,
    homes: tuple[Path, ...],
) -> list[str]:
    """Return the engine's arguments, including the program; `user` is "uid:gid" of the command.

    Raises SandboxError for paths that must not be shown.
    """
    return [
        *("--log-level", "error"),  # warnings would be mixed into the command's own output
        "run",
        *("--rm", "--name", controls.name, "--label", f"{LABEL}=1", "--user", user),
        *("--pull", "never", "--log-driver", "none", "--no-healthcheck"),
        *(() if run.command.network else ("--network", "none")),
        *("--ipc", "private", "--hostname", USER_NAME),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *_options_of(engine, run.limits, controls),
        *_limits(engine, run.limits),
        # The command can read the first process's environment; the script sets its own variables.
        *(part for name in _CLEARED for part in ("--env", f"{name}=")),
        *_temporary(engine, image, run.limits.tmp),
        *_mounts(run, controls, homes),
        *("--workdir", "/", "--entrypoint", "/bin/sh", image.identity, str(START / _SCRIPT)),
    ]


def _options_of(engine: Engine, limits: Limits, controls: Controls) -> list[str]:
    """What the engines are told in different ways."""
    options: list[str] = []
    if engine.kind == "podman":
        # Otherwise more of the file system is writable, and the host's proxies are known inside.
        options += ["--read-only-tmpfs=false", "--http-proxy=false", "--image-volume", "ignore"]
        options += ["--pidfile", str(controls.pid_file)]
        options += ["--conmon-pidfile", str(controls.monitor_file)]
        options += ["--timeout", str(math.ceil(limits.wall_seconds) + _GRACE_SECONDS)]
    if controls.seccomp is not None:
        options += ["--security-opt", f"seccomp={controls.seccomp}"]
    if engine.rootless:
        options += ["--userns", "keep-id"]
    elif engine.kind == "docker":
        options += ["--userns", "host"]  # a daemon that maps uids would not let ours in
    if engine.selinux:
        # Relabelling would change the user's own files; the other walls stand.
        options += ["--security-opt", "label=disable"]
    return options


def _limits(engine: Engine, limits: Limits) -> list[str]:
    processes = limits.processes + _OWN_PROCESSES
    memory = str(limits.memory)
    grouped = ("--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes))
    # The group must be what refuses a process, because it counts refusals.
    own = 2 * processes if engine.groups else processes
    return [
        *(grouped if engine.groups else ()),
        *("--shm-size", str(SHARED_MEMORY_BYTES)),
        *("--ulimit", f"cpu={limits.cpu_seconds}:{limits.cpu_seconds + 1}"),
        *("--ulimit", f"fsize={limits.file_size}:{limits.file_size}"),
        *("--ulimit", "core=0:0"),
        *("--ulimit", _bounded("nofile", resource.RLIMIT_NOFILE, _OPEN_FILES)),
        *("--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, own)),
    ]


def _bounded(name: str, kind: int, most: int) -> str:
    """Return an `--ulimit` of `most`, or of our own hard limit where that is less."""
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return f"{name}={value}:{value}"


def _temporary(engine: Engine, image: Image, tmp: int) -> list[str]:
    # podman would otherwise copy the content of the image into them.
    fresh = ",notmpcopyup" if engine.kind == "podman" else ""
    sizes = {volume: _VOLUME_BYTES for volume in image.volumes if volume not in _TAKEN}
    sizes |= {_SECRETS: 4096, "/tmp": tmp}  # noqa: S108
    options = "rw,exec,nosuid,nodev,mode=1777"
    mounts = [f"{path}:{options},size={size}{fresh}" for path, size in sorted(sizes.items())]
    return [part for mount in mounts for part in ("--tmpfs", mount)]


def _mounts(run: SandboxRun, controls: Controls, homes: tuple[Path, ...]) -> list[str]:
    workspace, channels = run.workspace, run.channels
    if str(workspace.mount) in _TAKEN or ".." in workspace.mount.parts:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    mounts = [
        _bind(controls.start, START),
        _bind(controls.start / _HOSTS, Path("/etc/hosts")),
        _bind(workspace.path, workspace.mount, writable=True),
        *(_bind(source, target) for source, target in _shown(run, homes)),
    ]
    if channels is not None:
        mounts.append(_bind(channels.report_directory, REPORT_DIRECTORY))
        mounts.append(_bind(channels.junit_directory, JUNIT_DIRECTORY, writable=True))
    return [part for mount in mounts for part in ("--mount", mount)]


def _shown(run: SandboxRun, homes: tuple[Path, ...]) -> list[tuple[Path, Path]]:
    """Return (source, target) of each host path to show, except those in the workspace.

    Raises SandboxError for paths that would hide the image's system.
    """
    shown: dict[Path, Path] = {}
    refused = (*map(Path, _TAKEN), *homes)
    for path in run.command.read_only:
        target = Path(os.path.abspath(path))  # noqa: PTH100 - without following links
        source = Path(os.path.realpath(target))
        if not source.exists():
            raise SandboxError(f"{path} does not exist; it cannot be shown in the container")
        if any(home.is_relative_to(place) for home in refused for place in (source, target)):
            raise SandboxError(f"refused to show {path} in the container: it holds too much")
        if not target.is_relative_to(run.workspace.mount):
            shown[target] = source
    return [(source, target) for target, source in sorted(shown.items())]


def _bind(source: Path, target: Path, *, writable: bool = False) -> str:
    """Return the value of `--mount`: one line of CSV (RFC 4180), which can express any path."""
    fields = ["type=bind", f"src={source}", f"dst={target}", *(() if writable else ("readonly",))]
    if any("\n" in field or "\0" in field for field in fields):
        raise SandboxError(f"not a path that a container can be given: {str(target)!r}")
    return ",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in fields)
