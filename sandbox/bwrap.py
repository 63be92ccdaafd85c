"""The default backend: bubblewrap. Namespaces, an allow-listed root, no network, a dropped uid.

As root, bwrap builds the mounts without a user namespace, and `setpriv` then gives up root for a
uid that owns nothing else on the machine. As a user, everything happens in a user namespace.
"""

from __future__ import annotations

import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.cgroups import Bound, ControlGroup, Hierarchy, make_group, usable_hierarchies
from sandbox.choose import advise_on_bwrap, home_directories, probe_by_running, unavailable_probe
from sandbox.host import (
    SYSTEM,
    USER_NAME,
    Bind,
    Link,
    find_spare_uid,
    group_text,
    passwd_text,
    read_only_mounts,
    system_mounts,
)
from sandbox.killing import adopt_orphans, reap
from sandbox.meters import GroupMeter
from sandbox.runs import (
    HOME,
    JUNIT_DIRECTORY,
    REPORT_DIRECTORY,
    SandboxRun,
    find_system_program,
    open_run,
    prlimit_command,
)
from sandbox.seccomp import filter_program
from sandbox.supervise import ProcessOutcome
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# The uid inside a user namespace whose maker is root there.
_MAPPED = 1000

_SIZE_SINCE = (0, 7)
_DISABLE_USERNS_SINCE = (0, 8)

_IN_MEMORY = ("/dev/shm", "/tmp")  # noqa: S108

_NO_NETWORK = "--unshare-net"

# The certificates of public authorities, for commands that may use the network.
_CERTIFICATES = ("/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs")

_NAMESPACES = (
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--hostname",
    USER_NAME,
    "--die-with-parent",
    "--new-session",
)

# The capabilities that setpriv needs to give up the rest; bwrap would keep all of them.
_ROOT_OPTIONS = (
    *("--cap-drop", "ALL"),
    *("--cap-add", "CAP_SETUID"),
    *("--cap-add", "CAP_SETGID"),
    *("--cap-add", "CAP_SETPCAP"),
)

# Settings of the kernel that bwrap leaves writable for root (core_pattern leads to the host).
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")

# Mounting the workspace here would hide what the command needs, or what protects it.
_TAKEN = (
    *("/", "/tmp", "/dev", "/proc", "/sys", "/etc", str(HOME)),  # noqa: S108
    *(str(REPORT_DIRECTORY), str(JUNIT_DIRECTORY)),
    *SYSTEM,
)


@dataclass(frozen=True, slots=True)
class BwrapSetup:
    """How one run is shown. `uid` is the uid to drop to, None in a user namespace.

    `cwd` is absolute and inside; `homes` are never shown as a whole; `version` is that of bwrap.
    """

    run: SandboxRun
    cwd: Path
    homes: tuple[Path, ...]
    uid: int | None
    version: tuple[int, ...]


def bwrap_options(setup: BwrapSetup, environment: Mapping[str, str]) -> list[str]:
    """Return all options up to the command. Writes files for /etc into the scratch directory.

    Raises SandboxError for paths that must not be shown.
    """
    variables = (part for item in sorted(environment.items()) for part in ("--setenv", *item))
    return [
        *(() if setup.run.command.network else (_NO_NETWORK,)),
        *_NAMESPACES,
        *_privileges(setup),
        "--clearenv",
        *variables,
        *_arguments(system_mounts()),
        *_arguments(_write_etc(setup)),
        *_kernel_file_systems(),
        *_temporary(setup),
        *_arguments(_shown(setup)),
        "--remount-ro",
        "/",
        "--chdir",
        str(setup.cwd),
    ]


def memory_sizes(setup: BwrapSetup) -> Mapping[str, int]:
    """Sizes in bytes of the directories in memory, as far as this bwrap can bound them."""
    return setup.run.memory_sizes if setup.version >= _SIZE_SINCE else {}


def _privileges(setup: BwrapSetup) -> tuple[str, ...]:
    if setup.uid is not None:
        return _ROOT_OPTIONS
    nested = ("--disable-userns",) if setup.version >= _DISABLE_USERNS_SINCE else ()
    uid, gid = map(str, _identity(setup))
    # Root of a user namespace, as in a rootless container, would otherwise keep its capabilities.
    return ("--unshare-user", "--uid", uid, "--gid", gid, "--cap-drop", "ALL", *nested)


def _identity(setup: BwrapSetup) -> tuple[int, int]:
    """Uid and gid of the command: never 0, even where root has no uid to drop to."""
    if setup.uid is not None:
        return setup.uid, setup.uid
    return os.getuid() or _MAPPED, os.getgid() or _MAPPED


def _write_etc(setup: BwrapSetup) -> list[Bind]:
    """Write the files of /etc that on the host name the people and machines of this network."""
    uid, gid = _identity(setup)
    contents = {
        "group": group_text(gid),
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "passwd": passwd_text(uid, gid, str(HOME)),
    }
    certificates: list[Bind] = []
    if setup.run.command.network:
        contents["nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files dns\n"
        contents["resolv.conf"] = _resolvers()
        shown = (Path(path) for path in _CERTIFICATES)
        certificates = [Bind(path, path.resolve()) for path in shown if path.is_dir()]
    directory = setup.run.scratch / "etc"
    directory.mkdir()
    for name, text in contents.items():
        (directory / name).write_text(text, encoding="ascii", errors="replace")
        (directory / name).chmod(0o644)
    return [*(Bind(Path("/etc", name), directory / name) for name in contents), *certificates]


def _resolvers() -> str:
    """Return the name servers of this machine, which may be a link out of /etc."""
    try:
        return Path("/etc/resolv.conf").read_text("ascii", "replace")
    except OSError:
        return ""


def _kernel_file_systems() -> list[str]:
    settings = [path for path in _KERNEL_SETTINGS if Path(path).exists()]
    return [
        *("--proc", "/proc"),
        *(part for path in settings for part in ("--ro-bind", path, path)),
        *("--dev", "/dev"),
    ]


def _temporary(setup: BwrapSetup) -> list[str]:
    """Directories in memory that only this sandbox sees, writable for any uid."""
    sized = memory_sizes(setup)
    found: list[str] = []
    for path in _IN_MEMORY:
        size = ("--size", str(sized[path])) if path in sized else ()
        found += ["--perms", "1777", *size, "--tmpfs", path]
    return [*found, "--remount-ro", "/dev", "--perms", "0777", "--dir", str(HOME)]


def _shown(setup: BwrapSetup) -> list[Bind | Link]:
    """The workspace, the paths that the command asked to read, and its report channels."""
    workspace, channels = setup.run.workspace, setup.run.channels
    if str(workspace.mount) in _TAKEN:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    shown = list(read_only_mounts(setup.run.command.read_only, homes=setup.homes))
    shown.append(Bind(workspace.mount, workspace.path, writable=True))
    if channels is not None:
        shown.append(Bind(REPORT_DIRECTORY, channels.report_directory))
        shown.append(Bind(JUNIT_DIRECTORY, channels.junit_directory, writable=True))
    ordered = sorted(shown, key=lambda mount: mount.target)
    return [mount for mount in ordered if _make_mount_point(mount, workspace)]


def _make_mount_point(mount: Bind | Link, workspace: Workspace) -> bool:
    """Make the mount point of a path in the workspace; False for a link, which is made at once."""
    if mount.target == workspace.mount or not mount.target.is_relative_to(workspace.mount):
        return True
    relative = str(mount.target.relative_to(workspace.mount))
    if isinstance(mount, Link):
        workspace.ensure_link(relative, mount.points_to)
        return False
    if mount.source.is_dir():
        workspace.ensure_directory(relative)
    elif not workspace.has_file(relative):
        workspace.write(relative, b"")
    return True


def _arguments(mounts: Iterable[Bind | Link]) -> list[str]:
    """Return each mount after the directories that lead to it.

    bwrap itself makes missing directories, but closes them to others when the source is closed to
    others, as our private directory is. The dropped uid could not pass them.
    """
    found: list[str] = []
    made, bound = {Path("/")}, {Path(path) for path in SYSTEM}
    for mount in mounts:
        for parent in reversed(mount.target.parents):
            if parent not in made and not bound.intersection((parent, *parent.parents)):
                found += ["--perms", "0755", "--dir", str(parent)]
                made.add(parent)
        found += mount.arguments()
        bound.add(mount.target)
    return found


# ---- one bwrap: its process and the first process of its PID namespace (bwrap(1))


# Setting up takes some 10 ms, but longer on a machine under heavy load.
_SETUP_SECONDS = 30.0

# SIGKILL of a namespace is immediate, except for processes inside a hanging system call.
_DEATH_SECONDS = 30.0

_MILLISECONDS = 1000


class BwrapProcess:
    """A running bwrap. A context manager: when it is left, everything inside is dead."""

    def __init__(
        self,
        program: str,
        options: Sequence[str],
        command: Sequence[str],
        environment: Mapping[str, str],
        seccomp: bytes | None = None,
        enter: Callable[[int], None] | None = None,
    ) -> None:
        """Start bwrap. `environment` is that of bwrap itself, which the command can read.

        `enter` is called with the pid of the first process inside before it starts anything.
        Raises SandboxError.
        """
        adopt_orphans()
        self._enter = enter
        self._init: int | None = None
        self._init_pid = 0
        self._status, status_end = os.pipe()
        block_end, self._block = os.pipe()
        passed = [status_end, block_end]
        control = ["--json-status-fd", str(status_end), "--block-fd", str(block_end)]
        if seccomp is not None:
            passed.append(_memory_file(seccomp))
            control += ["--seccomp", str(passed[-1])]
        passed.append(_memory_file(b"".join(os.fsencode(o) + b"\0" for o in [*options, *control])))
        try:
            self.popen = subprocess.Popen(
                [program, "--args", str(passed[-1]), "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                pass_fds=passed,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(self._status)
            os.close(self._block)
            raise SandboxError(f"cannot start {program}: {error}") from error
        finally:
            for descriptor in passed:
                os.close(descriptor)

    def __enter__(self) -> Self:
        """Wait for the first process inside, then let it start the command. Raises SandboxError."""
        try:
            self._hold_init()
        except BaseException:
            self.kill()
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._close()

    def kill(self) -> None:
        """End everything inside and wait until it is gone. Safe to call again.

        Raises SandboxError when something inside does not die.
        """
        if self._init is None:
            self.popen.kill()
            return
        try:
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        except ProcessLookupError:
            pass
        poll = select.poll()
        poll.register(self._init, select.POLLIN)
        if not poll.poll(_DEATH_SECONDS * _MILLISECONDS):
            raise SandboxError("a sandboxed process does not die; it hangs inside the kernel")
        self.popen.wait()
        reap(self._init_pid)

    def exit_code(self) -> int | None:
        """Return the command's status (128 + N for signal N), None when it was never started.

        Call this when bwrap has ended.
        """
        os.set_blocking(self._status, False)
        for line in _read_all(self._status).splitlines():
            code = _number(line, b"exit-code")
            if code is not None:
                return code
        return None

    def _hold_init(self) -> None:
        pid = _number(self._first_status(), b"child-pid")
        if pid is not None:  # otherwise bwrap refused its arguments and says so on stderr
            self._init_pid = pid
            self._init = os.pidfd_open(pid)
            if self._enter is not None:
                self._enter(pid)
        try:
            os.write(self._block, b"1")
        except BrokenPipeError:
            pass  # as above

    def _first_status(self) -> bytes:
        """Read the first line of bwrap's status, which it writes in pieces; b"" when it ended."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            if not poll.poll(_SETUP_SECONDS * _MILLISECONDS):
                raise SandboxError(f"bwrap did not start within {_SETUP_SECONDS:.0f} s")
            if not (piece := os.read(self._status, 1)):
                return b""
            line += piece
        return line

    def _close(self) -> None:
        self.popen.wait()
        for descriptor in (self._status, self._block, self._init):
            if descriptor is not None:
                os.close(descriptor)
        for file in (self.popen.stdout, self.popen.stderr):
            if file is not None:
                file.close()


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_all(descriptor: int) -> bytes:
    data = b""
    try:
        while piece := os.read(descriptor, select.PIPE_BUF):
            data += piece
    except BlockingIOError:
        pass
    return data


def _number(document: bytes, key: bytes) -> int | None:
    """Return the number under `key` of a one-line JSON object that bwrap itself wrote."""
    if key not in document:
        return None
    value = json.loads(document.splitlines()[0])[key.decode()]
    return int(value)


# ---- the backend


# 0.5 brought --perms and --clearenv; without them /tmp and the environment would be less private.
_OLDEST = (0, 5)

_VERSION_SECONDS = 10.0

# Since then RLIMIT_NPROC counts per user namespace (linux commit 21d1c5e386bc).
_NPROC_PER_NAMESPACE = (5, 14)


@dataclass(frozen=True, slots=True)
class _Machine:
    """The bwrap of this machine, its version, and where control groups can be made."""

    program: str
    version: tuple[int, ...]
    hierarchies: tuple[Hierarchy, ...]


class BwrapSandbox:
    """Runs commands under bubblewrap. It keeps no state except what it asked the machine once.

    `program` is the bwrap to use (default: the one on PATH). `homes` are directories never shown as
    a whole (default: the home of the user).
    """

    name = "bwrap"
    foreign_root = False

    def __init__(
        self, program: str | None = None, *, homes: tuple[Path, ...] | None = None
    ) -> None:
        self._program = program
        self._homes = home_directories() if homes is None else homes
        self._found: _Machine | None = None

    def probe(self) -> Probe:
        """Run a small script inside and report what it could and could not do. Never raises."""
        try:
            return probe_by_running(self, homes=self._homes)
        except SandboxError as error:
            return unavailable_probe(self.name, str(error))

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command isolated; see the protocol `Sandbox`."""
        machine = self._machine()
        uid = workspace.owner if workspace.owner is not None else find_spare_uid()
        if uid is not None:
            workspace.give_to(uid)
        with (
            open_run(command, workspace, uid, cancel) as run,
            make_group(command.limits, machine.hierarchies) as group,
        ):
            cwd = workspace.inside(command.cwd)
            setup = BwrapSetup(run, cwd, self._homes, uid, machine.version)
            return _run(machine.program, setup, group)

    def _machine(self) -> _Machine:
        if self._found is None:
            program = self._program or shutil.which("bwrap")
            if program is None:
                raise SandboxError("bubblewrap is not installed; " + advise_on_bwrap(""))
            self._found = _Machine(program, _ask_version(program), usable_hierarchies())
        return self._found


def _run(program: str, setup: BwrapSetup, group: ControlGroup) -> RunResult:
    run = setup.run
    argv = [*_drop_privileges(setup.uid), *_limit(setup, group.bounds), *run.command.argv]
    options = bwrap_options(setup, run.environment())
    # The command can read the environment of its namespace's first process, which is bwrap.
    own = {"LC_ALL": "C.UTF-8"}
    grouped = GroupMeter(group, run.limits)
    meters = run.meters(grouped, group.bounds, in_memory=memory_sizes(setup))
    with (
        closing(meters),
        BwrapProcess(program, options, argv, own, filter_program(), meters.enter) as process,
    ):
        outcome = run.watch(process.popen, process.kill, meters)
        status = process.exit_code()
    return run.result(outcome, _check_started(outcome, status))


def _ask_version(program: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"cannot start {program}: {error}; reinstall bubblewrap") from error
    version = _parse_version(done.stdout)
    if version < _OLDEST:
        raise SandboxError(f"{program} is too old ({done.stdout.strip()}); install 0.5 or later")
    return version


def _parse_version(text: str) -> tuple[int, ...]:
    match = re.search(r"(\d+)\.(\d+)", text)
    return tuple(map(int, match.groups())) if match else (0,)


def _limit(setup: BwrapSetup, bounds: frozenset[Bound]) -> tuple[str, ...]:
    kernel = _parse_version(platform.release())
    shared = setup.uid is None and kernel < _NPROC_PER_NAMESPACE
    return prlimit_command(setup.run.limits, shared_user=shared, bounds=bounds)


def _drop_privileges(uid: int | None) -> tuple[str, ...]:
    """Return `setpriv` with its arguments, which gives up root for good; () for a user."""
    if uid is None:
        return ()
    program = find_system_program("setpriv", "util-linux")
    everything = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
    identity = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs")
    return (program, *identity, *everything, "--")


def _check_started(outcome: ProcessOutcome, status: int | None) -> int:
    """Return the command's status. Raises SandboxError when it was never started."""
    if status is not None:
        return status
    if outcome.cut is not None or (outcome.reached is not None and outcome.reached.decisive):
        return -signal.SIGKILL
    words = outcome.stderr.decode("utf-8", errors="replace").strip()
    reason = words.splitlines()[-1] if words else f"status {outcome.returncode}"
    raise SandboxError(f"bubblewrap cannot set up the sandbox ({reason}); {advise_on_bwrap(words)}")
