"""The default backend: bubblewrap. Namespaces, an allow-listed root, no network, a dropped uid.

As root, bwrap builds the mounts without a user namespace, and `setpriv` then gives up root for a
uid that owns nothing else on the machine. As a user, everything happens in a user namespace.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from sandbox.cgroups import ControlGroup, make_group, usable_hierarchies
from sandbox.choose import home_directories, probe_by_running
from sandbox.host import (
    SYSTEM,
    USER_NAME,
    Bind,
    Link,
    find_spare_uid,
    last_line,
    read_only_mounts,
    run_program,
    system_mounts,
)
from sandbox.killing import adopt_orphans, reap
from sandbox.runs import (
    REPORT_DIRECTORY,
    TEMPORARY,
    SandboxRun,
    find_system_program,
    open_run,
    prlimit_command,
)
from sandbox.seccomp import filter_program
from sandbox.supervise import Breach, ProcessOutcome, start_process
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# The uid inside a user namespace whose maker is root there.
_MAPPED = 1000

# 0.5 brought --perms and --clearenv; without them the environment would be less private.
_OLDEST, _DISABLE_USERNS_SINCE = (0, 5), (0, 8)

# The certificates of public authorities, for commands that may use the network.
_CERTIFICATES = ("/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs")

_GUIDE = "docs/guide/install.md has the settings and the alternatives"

# bwrap itself and the first process of its namespace.
_OWN_PROCESSES = 2

_NAMESPACES = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", USER_NAME, "--die-with-parent", "--new-session"),
)

# The capabilities that setpriv needs to give up the rest; bwrap would keep all of them.
_ROOT_OPTIONS = (
    *("--cap-drop", "ALL", "--cap-add", "CAP_SETUID"),
    *("--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
)

# Settings of the kernel that bwrap leaves writable for root (core_pattern leads to the host).
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")

# Mounting the workspace here would hide what the command needs, or what protects it.
_TAKEN = (
    *("/", "/dev", "/proc", "/sys", "/etc", str(TEMPORARY), f"{TEMPORARY}/home"),
    *(str(REPORT_DIRECTORY), *SYSTEM),
)


class BwrapSandbox:
    """Runs commands under bubblewrap.

    `program` is the bwrap to use (default: the one on PATH). `homes` are directories never shown as
    a whole (default: the home of the user).
    """

    name = "bwrap"
    foreign_root = False

    def __init__(
        self, program: str | None = None, *, homes: tuple[Path, ...] | None = None
    ) -> None:
        self._program = program or shutil.which("bwrap")
        self._homes = home_directories() if homes is None else homes
        self._version: tuple[int, ...] = ()  # until it is asked

    def probe(self) -> Probe:
        """Run a small script inside and report what it could and could not do. Never raises."""
        return probe_by_running(self, homes=self._homes)

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command isolated; see the protocol `Sandbox`."""
        if not self._version:
            self._version = _version_of(self._program)
        uid = workspace.owner if workspace.owner is not None else find_spare_uid()
        with (
            open_run(command, workspace, uid, cancel) as run,
            make_group(command.limits, usable_hierarchies(), own=_OWN_PROCESSES) as group,
        ):
            return self._run(run, group)

    def _run(self, run: SandboxRun, group: ControlGroup) -> RunResult:
        limits = prlimit_command(run.limits, shared_user=False, bounds=group.bounds)
        argv = [*_drop_privileges(run.owner), *limits, *run.command.argv]
        options = bwrap_options(run, self._homes, self._version)
        # bwrap has no right of root to pass it, and a workspace may be mounted below it.
        run.temporary.chmod(0o711)
        meter = run.meter(group)
        # The command can read the environment of its namespace's first process, which is bwrap, and
        # the shell that enters the group adds to it.
        empty = (find_system_program("env", "coreutils"), "-i", "LC_ALL=C.UTF-8")
        entry = (*group.entry(), *empty, self._program or "")
        with BwrapProcess(entry, options, argv, filter_program()) as process:
            meter.pid = process.init_pid
            outcome = run.watch(process.popen, process.kill, meter)
            status = process.exit_code()
        reached = meter.after()
        return run.result(outcome, _check_started(outcome, status, reached), reached)


def _version_of(program: str | None) -> tuple[int, ...]:
    if program is None:
        raise SandboxError(f"bubblewrap is not installed; install the package bubblewrap; {_GUIDE}")
    try:
        text = run_program(program, "--version", seconds=10).decode("utf-8", "replace").strip()
    except SandboxError as error:
        raise SandboxError(f"{error}; reinstall bubblewrap") from error
    match = re.search(r"(\d+)\.(\d+)", text)
    version = tuple(map(int, match.groups())) if match else (0,)
    if version < _OLDEST:
        raise SandboxError(f"{program} is too old ({text}); install 0.5 or later")
    return version


def _drop_privileges(uid: int | None) -> tuple[str, ...]:
    if uid is None:
        return ()
    program = find_system_program("setpriv", "util-linux")
    everything = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
    identity = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs")
    return (program, *identity, *everything, "--")


def _check_started(outcome: ProcessOutcome, status: int | None, reached: Breach | None) -> int:
    if status is not None:
        return status
    if outcome.cut is not None or (reached is not None and reached.decisive):
        return -signal.SIGKILL
    reason = last_line(outcome.stderr) or f"status {outcome.returncode}"
    raise SandboxError(
        f"bubblewrap cannot set up the sandbox ({reason}); if this kernel or container forbids "
        f"user namespaces (try: unshare --user --net true), {_GUIDE}"
    )


# ---- the options


def bwrap_options(run: SandboxRun, homes: tuple[Path, ...], version: tuple[int, ...]) -> list[str]:
    """Return all options up to the command. Raises SandboxError for what must not be shown."""
    variables = (part for item in sorted(run.environment().items()) for part in ("--setenv", *item))
    settings = [path for path in _KERNEL_SETTINGS if Path(path).exists()]
    return [
        *(() if run.command.network else ("--unshare-net",)),
        *_NAMESPACES,
        *_privileges(run.owner, version),
        *("--clearenv", *variables),
        *_arguments(system_mounts()),
        *_arguments(_write_etc(run)),
        *("--proc", "/proc"),
        *(part for path in settings for part in ("--ro-bind", path, path)),
        *("--dev", "/dev"),
        *("--bind", str(run.temporary), str(TEMPORARY)),
        *("--bind", str(run.temporary / "shm"), "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
        *_arguments(_shown(run, homes)),
        *("--remount-ro", "/", "--chdir", str(run.workspace.inside(run.command.cwd))),
    ]


def _privileges(uid: int | None, version: tuple[int, ...]) -> tuple[str, ...]:
    if uid is not None:
        return _ROOT_OPTIONS
    nested = ("--disable-userns",) if version >= _DISABLE_USERNS_SINCE else ()
    own, group = map(str, _identity(uid))
    # Root of a user namespace, as in a rootless container, would otherwise keep its capabilities.
    return ("--unshare-user", "--uid", own, "--gid", group, "--cap-drop", "ALL", *nested)


def _identity(uid: int | None) -> tuple[int, int]:
    """Uid and gid of the command: never 0, even where root has no uid to drop to."""
    if uid is not None:
        return uid, uid
    return os.getuid() or _MAPPED, os.getgid() or _MAPPED


def _write_etc(run: SandboxRun) -> list[Bind]:
    """Write the files of /etc that on the host name the people and machines of this network."""
    uid, gid = _identity(run.owner)
    user = f"{USER_NAME}:x:{uid}:{gid}:{USER_NAME}:{TEMPORARY}/home:/bin/sh"
    contents = {
        "group": f"root:x:0:\n{USER_NAME}:x:{gid}:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "passwd": f"root:x:0:0:root:/:/bin/false\n{user}\n",
    }
    certificates: list[Bind] = []
    if run.command.network:
        contents["nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files dns\n"
        # The name servers of this machine, which may be a link out of /etc.
        resolvers = Path("/etc/resolv.conf")
        contents["resolv.conf"] = resolvers.read_text("utf-8") if resolvers.is_file() else ""
        shown = (Path(path) for path in _CERTIFICATES)
        certificates = [Bind(path, path.resolve()) for path in shown if path.is_dir()]
    directory = run.scratch / "etc"
    directory.mkdir()
    for name, text in contents.items():
        (directory / name).write_text(text, encoding="utf-8")
        (directory / name).chmod(0o644)
    return [*(Bind(Path("/etc", name), directory / name) for name in contents), *certificates]


def _shown(run: SandboxRun, homes: tuple[Path, ...]) -> list[Bind | Link]:
    workspace = run.workspace
    if str(workspace.mount) in _TAKEN:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    shown = list(read_only_mounts(run.command.read_only, homes=homes))
    shown.append(Bind(workspace.mount, workspace.path, writable=True))
    if run.pipe is not None:
        shown.append(Bind(REPORT_DIRECTORY, run.report_directory))
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
    workspace.make_mount_point(relative, is_directory=mount.source.is_dir())
    return True


def _arguments(mounts: Iterable[Bind | Link]) -> list[str]:
    """Return each mount after the directories that lead to it.

    bwrap itself would close them to others where the source is closed to others.
    """
    arguments: list[str] = []
    made, bound = {Path("/")}, {Path(path) for path in SYSTEM}
    for mount in mounts:
        for parent in reversed(mount.target.parents):
            if parent not in made and not bound.intersection((parent, *parent.parents)):
                arguments += ["--perms", "0755", "--dir", str(parent)]
                made.add(parent)
        if isinstance(mount, Link):
            arguments += ["--symlink", mount.points_to, str(mount.target)]
        else:
            option = "--bind" if mount.writable else "--ro-bind"
            arguments += [option, str(mount.source), str(mount.target)]
        bound.add(mount.target)
    return arguments


# ---- one bwrap: its process and the first process of its PID namespace (bwrap(1))

# Setting up takes some 10 ms, but longer on a machine under heavy load.
_SETUP_SECONDS = 30.0

# SIGKILL of a namespace is immediate, except for processes inside a hanging system call.
_DEATH_SECONDS = 30.0


class BwrapProcess:
    """A running bwrap. A context manager: when it is left, everything inside is dead.

    `init_pid` is the first process inside, 0 if bwrap refused its arguments.
    """

    def __init__(
        self,
        program: Sequence[str],
        options: Sequence[str],
        command: Sequence[str],
        seccomp: bytes | None,
    ) -> None:
        """Start bwrap; `program` is what starts it. Raises SandboxError."""
        adopt_orphans()
        self._init: int | None = None
        self.init_pid = 0
        self._status, status_end = os.pipe()
        passed = [status_end]
        control = ["--json-status-fd", str(status_end)]
        if seccomp is not None:
            passed.append(_memory_file(seccomp))
            control += ["--seccomp", str(passed[-1])]
        passed.append(_memory_file(b"".join(os.fsencode(o) + b"\0" for o in [*options, *control])))
        try:
            self.popen = start_process(
                [*program, "--args", str(passed[-1]), "--", *command], pass_fds=passed
            )
        except SandboxError:
            os.close(self._status)
            raise
        finally:
            for descriptor in passed:
                os.close(descriptor)

    def __enter__(self) -> Self:
        """Wait for the first process inside. Raises SandboxError."""
        try:
            self._reported = self._first_status()
            if pid := self._number("child-pid"):
                self.init_pid = pid
                self._init = os.pidfd_open(pid)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _first_status(self) -> bytes:
        report = b""
        while not report.endswith(b"\n"):  # a line comes in pieces
            if not _readable(self._status, _SETUP_SECONDS):
                raise SandboxError(f"bwrap did not start within {_SETUP_SECONDS:.0f} s")
            if not (piece := os.read(self._status, select.PIPE_BUF)):
                break
            report += piece
        return report

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.popen.wait()
        for descriptor in (self._status, self._init):
            if descriptor is not None:
                os.close(descriptor)
        for file in (self.popen.stdout, self.popen.stderr):
            if file is not None:
                file.close()

    def kill(self) -> None:
        """End everything inside and wait until it is gone. Safe to call again.

        Raises SandboxError when something does not die.
        """
        if self._init is None:
            self.popen.kill()
            return
        try:
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if not _readable(self._init, _DEATH_SECONDS):
            raise SandboxError("a sandboxed process does not die; it hangs inside the kernel")
        self.popen.wait()
        reap(self.init_pid)

    def exit_code(self) -> int | None:
        """Return the status of the command of a bwrap that has ended (128 + N for signal N).

        None when it was never started.
        """
        while _readable(self._status, 0) and (piece := os.read(self._status, select.PIPE_BUF)):
            self._reported += piece
        return self._number("exit-code")

    def _number(self, key: str) -> int | None:
        documents = map(json.loads, self._reported.splitlines())
        return next((int(each[key]) for each in documents if key in each), None)


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
