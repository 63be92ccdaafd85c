"""The container backend: podman or docker, with an image that brings the interpreters.

It is weaker than bubblewrap in one point: all of the image is readable. The engine's client is our
child, the container is not; so a guard removes the container when we end, however that happens.
"""

from __future__ import annotations

import math
import os
import re
import resource
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from sandbox.cgroups import ControlGroup
from sandbox.choose import home_directories, probe_by_running, unavailable_probe
from sandbox.container_engine import LABEL, Engine, Image, find_engine, find_image
from sandbox.host import PATH, SYSTEM, USER_NAME, find_spare_uid, last_line
from sandbox.killing import new_name, reap_session
from sandbox.runs import REPORT_DIRECTORY, TEMPORARY, SandboxRun, open_run
from sandbox.seccomp import stricter_profile
from sandbox.supervise import Guard, ReportPipe, start_process
from sandbox.types import Command, Limits, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# An image of many layers on a cold disk.
_START_SECONDS = 120.0
_TICK_SECONDS = 0.02

# The client cleans up before it reports the end of its container.
_TIDY_SECONDS = 2.0

# Kills the client and removes the container (the last argument) twice, because the client may still
# be making it at the first attempt.
_REMOVE = 'kill -9 "$0"; "$@"; sleep 2; exec "$@"'


class ContainerSandbox:
    """Runs commands in fresh containers of `image`, which must be on this machine.

    `engine` is the podman or docker to use (default: the first that answers). `homes` must not be
    shown (default: the user's). Of the image's settings only the variables are used.
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
            variables = {*_FIRST_VARIABLES, *self._parts()[1].environment}
        except SandboxError as error:
            return unavailable_probe(self.name, str(error))
        return probe_by_running(self, homes=self._homes, variables=variables)

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command isolated; see the protocol `Sandbox`."""
        engine, image = self._parts()
        uid, gid = _choose_identity(engine, workspace)
        owner = uid if os.geteuid() == 0 else None
        with (
            open_run(command, workspace, owner, cancel) as run,
            open_controls(
                run.scratch, start_script(run, engine, image), engine.seccomp
            ) as controls,
        ):
            user = f"{uid}:{gid}"
            arguments = run_arguments(engine, image, run, controls, user=user, homes=self._homes)
            meter = run.meter(ControlGroup((), ""))
            with start_container(engine, arguments, controls) as (client, kill):
                outcome = run.watch(client, kill, meter)
            status = controls.status()
            reached = meter.after(killed=status.killed, refused=status.refused)
            return run.result(outcome, outcome.returncode, reached)

    def _parts(self) -> tuple[Engine, Image]:
        if self._ready is None:
            engine = find_engine(self._engine_name)
            self._ready = (engine, find_image(engine, self._image_name))
        return self._ready


def _choose_identity(engine: Engine, workspace: Workspace) -> tuple[int, int]:
    if engine.rootless or os.geteuid() != 0:
        if os.getuid() == 0:
            raise SandboxError("rootless podman as root of a user namespace cannot drop its uid")
        return os.getuid(), os.getgid()
    uid = workspace.owner if workspace.owner is not None else find_spare_uid()
    if uid is None:
        raise SandboxError("this user namespace has no uid to drop to; map more than one")
    return uid, uid


# ---- a running container


@contextmanager
def start_container(
    engine: Engine, arguments: Sequence[str], controls: Controls
) -> Iterator[tuple[Popen[bytes], Callable[[], None]]]:
    """Give the engine's client, whose streams and status are the command's, and what kills it all.

    `arguments` show the `controls` in the container. It is removed in the end. Raises SandboxError.
    """
    # conmon leaves a file `oom` in its directory when memory runs out.
    client = start_process([engine.program, *arguments], cwd=controls.start.parent)
    kill = partial(_kill, engine, client, controls)
    removal = (str(client.pid), engine.program, *engine.removal(), controls.name)
    with ExitStack() as stack:
        stack.callback(_close, client, controls)
        stack.callback(kill)
        stack.enter_context(Guard(("/bin/sh", "-c", _REMOVE, *removal)))
        stack.callback(kill)  # before the guard is dismissed
        _await_start(engine, client, controls)
        yield client, kill


def _await_start(engine: Engine, client: Popen[bytes], controls: Controls) -> None:
    """Wait until the script starts the command, which no time limit of the command includes."""
    deadline = time.monotonic() + _START_SECONDS
    while not controls.status().started:
        if client.poll() is not None and not controls.status().started:
            assert client.stderr is not None
            os.set_blocking(client.stderr.fileno(), False)
            reason = last_line(client.stderr.read(64 * 1024) or b"")
            reason = reason or f"status {client.returncode}"
            raise SandboxError(f"{engine.kind} cannot start a container ({reason})")
        if time.monotonic() > deadline:
            raise SandboxError(f"{engine.kind} started no container in {_START_SECONDS:.0f} s")
        time.sleep(_TICK_SECONDS)


def _kill(engine: Engine, client: Popen[bytes], controls: Controls) -> None:
    """Kill the container and wait until it is gone. Raises SandboxError."""
    if client.poll() is None:
        engine.kill(controls.name)
        try:
            client.wait(_TIDY_SECONDS)
        except TimeoutExpired:
            # Its output exceeds our pipe. While the client waits for us, the container cannot end.
            client.kill()
            client.wait()
            engine.remove(controls.name)
    elif (status := controls.status()).started and not status.ended:
        engine.remove(controls.name)  # the client died; else it removes the container itself


def _close(client: Popen[bytes], controls: Controls) -> None:
    # If another backend made us adopt orphans, we must reap the monitor that podman leaves.
    if controls.monitor_file.exists():
        reap_session(int(controls.monitor_file.read_text("ascii") or -1))
    for file in (client.stdout, client.stderr):
        if file is not None:
            file.close()


# ---- the first process of a container: a small shell script written for each run, and its files

# Where the container shows our script, its pipe and /etc/hosts.
START = Path("/sandbox")

_SCRIPT, _HOSTS, _STATUS = "run", "hosts", "status"

# The engine's own file may name the machines of this network.
_HOSTS_TEXT = b"127.0.0.1 localhost\n::1 localhost\n"


@dataclass(frozen=True, slots=True)
class ScriptStatus:
    """What the script wrote: how often the kernel killed for memory and refused a process.

    Code in the container can write to the same pipe. It can only claim or hide a limit.
    """

    started: bool
    ended: bool = False
    killed: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Controls:
    """What one container, called `name`, is started and watched with.

    It shows the directory `start`. podman writes the pid of its monitor to `monitor_file`.
    `seccomp` is a profile, None for the engine's own.
    """

    name: str
    start: Path
    monitor_file: Path
    pipe: ReportPipe
    seccomp: Path | None

    def status(self) -> ScriptStatus:
        """Return what the script has written up to now."""
        return read_status(self.pipe.read())


@contextmanager
def open_controls(scratch: Path, script: bytes, default: Path | None) -> Iterator[Controls]:
    """Write the script and its pipe, and a stricter form of the `default` seccomp profile."""
    start = scratch / "start"
    start.mkdir(mode=0o755)
    for name, content in ((_SCRIPT, script), (_HOSTS, _HOSTS_TEXT)):
        (start / name).write_bytes(content)
        (start / name).chmod(0o444)
    seccomp = None
    if default is not None and (profile := stricter_profile(default)) is not None:
        seccomp = scratch / "seccomp.json"
        seccomp.write_bytes(profile)
    pipe = ReportPipe(start / _STATUS, 64 * 1024)
    try:
        yield Controls(new_name(), start, scratch / "monitor", pipe, seccomp)
    finally:
        pipe.close()


# The script does what an engine cannot: give the command exactly our environment without showing it
# in the host's process list, bound each process's address space, keep the command from being pid 1
# (which ignores signals that end others), and tell which limit was hit. It needs only POSIX `sh`,
# and after the command it uses builtins alone, because it cannot fork where the limit of processes
# was hit. The engine shows a container its own control group read-only: version 2, then version 1.
_TEXT = r"""
cd {cwd} || exit 125
exec 3>{status} 4>&2 2>/dev/null
echo started >&3
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

_END = re.compile(rb"^end [0-9]{1,9} ([0-9]{1,9}) ([0-9]{1,9})$", re.MULTILINE)


def start_script(run: SandboxRun, engine: Engine, image: Image) -> bytes:
    """Return the script that starts the command of `run`. Raises SandboxError."""
    own = run.environment()
    # The image's directories of programs follow ours. Its other variables are there already.
    path = [*own.get("PATH", PATH).split(":"), *image.environment.get("PATH", "").split(":")]
    return script_text(
        run.command.argv,
        {**own, "PATH": ":".join(dict.fromkeys(filter(None, path)))},
        cwd=run.workspace.inside(run.command.cwd),
        start=START,
        # Where the memory of all processes is bounded, memory that is only reserved does no harm.
        address_space=None if engine.groups else run.limits.address_space,
    )


def script_text(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    cwd: Path,
    start: Path,
    address_space: int | None,
) -> bytes:
    """Return the script; paths are those inside.

    Raises SandboxError for a variable that a shell cannot set.
    """
    for name in environment:
        if _NAME.fullmatch(name) is None or name in _READ_ONLY:
            raise SandboxError(f"a container's shell cannot set the variable {name!r}; rename it")
    exports = (f"export {name}={shlex.quote(environment[name])}" for name in sorted(environment))
    text = _TEXT.format(
        status=shlex.quote(str(start / _STATUS)),
        cwd=shlex.quote(str(cwd)),
        address_space="unlimited" if address_space is None else address_space // 1024,
        inherited=" ".join(sorted(_FIRST_VARIABLES)),
        exports="\n  ".join(exports),
        command=shlex.join(argv),
    )
    return os.fsencode(text)


def read_status(text: bytes) -> ScriptStatus:
    """Parse what the script wrote. Of several ends the last counts, because the script wrote it."""
    if not text.startswith(b"started\n"):
        return ScriptStatus(started=False)
    ends = _END.findall(text)
    if not ends:
        return ScriptStatus(started=True)
    killed, refused = map(int, ends[-1])
    return ScriptStatus(started=True, ended=True, killed=killed, refused=refused)


# ---- the arguments of the engine

# Enough for semaphores and queues of multiprocessing; too little to exhaust the machine.
_SHARED_MEMORY_BYTES = 64 * 1024 * 1024

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
        *("--tmpfs", f"{_SECRETS}:rw,nosuid,nodev,size=4096"),
        *_mounts(run, controls, homes),
        *("--workdir", "/", "--entrypoint", "/bin/sh", image.identity, str(START / _SCRIPT)),
    ]


def _options_of(engine: Engine, limits: Limits, controls: Controls) -> list[str]:
    options: list[str] = []
    if engine.kind == "podman":
        # Otherwise more of the file system is writable, and the host's proxies are known inside.
        options += ["--read-only-tmpfs=false", "--http-proxy=false", "--image-volume", "ignore"]
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
        *("--shm-size", str(_SHARED_MEMORY_BYTES)),
        *("--ulimit", f"cpu={limits.cpu_seconds}:{limits.cpu_seconds + 1}"),
        *("--ulimit", f"fsize={limits.file_size}:{limits.file_size}"),
        *("--ulimit", "core=0:0"),
        *("--ulimit", _bounded("nofile", resource.RLIMIT_NOFILE, _OPEN_FILES)),
        *("--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, own)),
    ]


def _bounded(name: str, kind: int, most: int) -> str:
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return f"{name}={value}:{value}"


def _mounts(run: SandboxRun, controls: Controls, homes: tuple[Path, ...]) -> list[str]:
    workspace = run.workspace
    if str(workspace.mount) in _TAKEN or ".." in workspace.mount.parts:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    mounts = [
        _bind(controls.start, START),
        _bind(controls.start / _HOSTS, Path("/etc/hosts")),
        _bind(run.temporary, TEMPORARY, writable=True),
        _bind(workspace.path, workspace.mount, writable=True),
        *(_bind(source, target) for source, target in _shown(run, homes)),
    ]
    if run.pipe is not None:
        mounts.append(_bind(run.report_directory, REPORT_DIRECTORY))
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
