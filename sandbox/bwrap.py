"""The default backend: bubblewrap. Namespaces, an allow-listed root, no network, a dropped uid.

As root, bwrap builds the mounts without a user namespace and `setpriv` then gives up root for a uid
that owns nothing else on the machine. As a user, everything happens in a user namespace.
"""

from __future__ import annotations

import platform
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sandbox import identity, seccomp
from sandbox.advice import advice
from sandbox.bwrap_options import HOME, JUNIT, REPORT, Inside, options, sizes
from sandbox.bwrap_process import BwrapProcess
from sandbox.cgroups import ControlGroup, make_group, usable_hierarchies
from sandbox.channels import Channels
from sandbox.disk import DiskMeter, MemoryDiskMeter
from sandbox.environment import command_environment
from sandbox.hierarchies import Bound, Hierarchy
from sandbox.meters import GroupMeter, InsideMeter, Meters, TreeMeter
from sandbox.private import remove_tree
from sandbox.probing import own_homes, probe_by_running, unavailable
from sandbox.results import run_result
from sandbox.rlimits import wrapper
from sandbox.supervise import Outcome, watch
from sandbox.types import Command, Limits, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# 0.5 brought --perms and --clearenv; without them /tmp and the environment are not what we say.
_OLDEST = (0, 5)

_VERSION_SECONDS = 10.0

# Since then RLIMIT_NPROC counts per user namespace (linux commit 21d1c5e386bc).
_NPROC_PER_NAMESPACE = (5, 14)


@dataclass(frozen=True, slots=True)
class _Machine:
    """What this machine has: the bwrap and its version, where control groups can be made."""

    program: str
    version: tuple[int, ...]
    hierarchies: tuple[Hierarchy, ...]


class BwrapSandbox:
    """Runs commands under bubblewrap. Stateless but for what the machine has, asked once.

    `program` is the bwrap to use (default: the one on PATH). `homes` are directories never shown as
    a whole (default: the home of the user).
    """

    def __init__(
        self, program: str | None = None, *, homes: tuple[Path, ...] | None = None
    ) -> None:
        self._program = program
        self._homes = own_homes() if homes is None else homes
        self._found: _Machine | None = None

    @property
    def name(self) -> str:
        """As it is called in reports and settings."""
        return "bwrap"

    @property
    def foreign_root(self) -> bool:
        """Never: commands see this machine's interpreters."""
        return False

    def probe(self) -> Probe:
        """Run a small script inside and report what it could and could not do. Never raises."""
        try:
            return probe_by_running(self, homes=self._homes)
        except SandboxError as error:
            return unavailable(self.name, str(error))

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run it isolated; see the protocol `Sandbox`."""
        machine = self._machine()
        with _scratch(workspace) as scratch, _group(command, machine.hierarchies) as group:
            uid = workspace.owner if workspace.owner is not None else identity.spare_uid()
            if uid is not None:
                workspace.give_to(uid)
            with _channels(command, scratch, uid) as channels:
                inside = Inside(
                    workspace=workspace,
                    scratch=scratch,
                    cwd=workspace.inside(command.cwd),
                    read_only=command.read_only,
                    homes=self._homes,
                    uid=uid,
                    channels=channels,
                    tmp_size=command.limits.tmp,
                    version=machine.version,
                )
                return _run(machine.program, command, inside, group, cancel)

    def _machine(self) -> _Machine:
        if self._found is None:
            program = self._program or shutil.which("bwrap")
            if program is None:
                raise SandboxError("bubblewrap is not installed; " + advice(""))
            self._found = _Machine(program, _version(program), usable_hierarchies())
        return self._found


@contextmanager
def _scratch(workspace: Workspace) -> Iterator[Path]:
    path = workspace.scratch()
    try:
        yield path
    finally:
        remove_tree(path)


@contextmanager
def _group(command: Command, hierarchies: Sequence[Hierarchy]) -> Iterator[ControlGroup]:
    group = make_group(command.limits, hierarchies)
    try:
        yield group
    finally:
        group.remove()


def _channels(command: Command, scratch: Path, uid: int | None) -> Channels | nullcontext[None]:
    return Channels(scratch, command.limits, uid) if command.report else nullcontext()


def _version(program: str) -> tuple[int, ...]:
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
    match = re.search(r"(\d+)\.(\d+)", done.stdout)
    version = tuple(map(int, match.groups())) if match else (0,)
    if version < _OLDEST:
        raise SandboxError(f"{program} is too old ({done.stdout.strip()}); install 0.5 or later")
    return version


def _argv(command: Command, inside: Inside, bounds: frozenset[Bound]) -> list[str]:
    if not command.argv:
        raise SandboxError("nothing to run: argv is empty")
    shared = inside.uid is None and _kernel() < _NPROC_PER_NAMESPACE
    limits = wrapper(command.limits, shared_user=shared, bounds=bounds)
    return [*_drop(inside.uid), *limits, *command.argv]


def _drop(uid: int | None) -> tuple[str, ...]:
    """Give up root for good, inside the sandbox: setpriv(1). Nothing to give up as a user."""
    if uid is None:
        return ()
    program = shutil.which("setpriv", path="/usr/bin:/bin:/usr/local/bin")
    if program is None:
        raise SandboxError("setpriv is not installed; install the package util-linux")
    everything = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
    identity_options = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs")
    return (program, *identity_options, *everything, "--")


def _kernel() -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", platform.release())
    return tuple(map(int, match.groups())) if match else (0,)


def _run(
    program: str,
    command: Command,
    inside: Inside,
    group: ControlGroup,
    cancel: threading.Event | None,
) -> RunResult:
    channels = inside.channels
    environment = command_environment(
        command,
        home=HOME,
        report=None if channels is None else REPORT,
        junit=None if channels is None else JUNIT,
    )
    argv = _argv(command, inside, group.bounds)
    meter = _meters(command.limits, inside, group)
    # The command can read the environment of its namespace's first process, which is bwrap.
    own = {"LC_ALL": "C.UTF-8"}
    given = options(inside, environment)
    with (
        closing(meter),
        BwrapProcess(program, given, argv, own, seccomp.program(), meter.enter) as process,
    ):
        outcome = watch(
            process.popen,
            command.limits,
            cancel,
            process.kill,
            report=None if channels is None else channels.pipe,
            meter=meter,
        )
        status = process.exit_code()
    return run_result(outcome, _started(outcome, status), command.limits, channels)


def _meters(limits: Limits, inside: Inside, group: ControlGroup) -> Meters:
    tree = TreeMeter(limits, group.bounds)
    places = [inside.workspace.path]
    if inside.channels is not None:
        places.append(inside.channels.junit_directory)
    meters: list[InsideMeter] = [
        GroupMeter(group, limits),
        tree,
        DiskMeter(places, limits, tree.pids),
        MemoryDiskMeter(sizes(inside), limits),
    ]
    return Meters(meters)


def _started(outcome: Outcome, status: int | None) -> int:
    """The command's status. Raises SandboxError when it was never started."""
    if status is not None:
        return status
    if outcome.cut is not None or (outcome.reached is not None and outcome.reached.decisive):
        return -signal.SIGKILL
    words = outcome.stderr.decode("utf-8", errors="replace").strip()
    reason = words.splitlines()[-1] if words else f"status {outcome.returncode}"
    raise SandboxError(f"bubblewrap cannot set up the sandbox ({reason}); {advice(words)}")
