"""The default backend: bubblewrap. Namespaces, an allow-listed root, no network, a dropped uid.

As root, bwrap builds the mounts without a user namespace, and `setpriv` then gives up root for a
uid that owns nothing else on the machine. As a user, everything happens in a user namespace.
"""

from __future__ import annotations

import platform
import re
import shutil
import signal
import subprocess
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sandbox.bwrap.options import BwrapSetup, bwrap_options, memory_sizes
from sandbox.bwrap.process import BwrapProcess
from sandbox.environment import find_spare_uid
from sandbox.probing import advise_on_bwrap, home_directories, probe_by_running, unavailable_probe
from sandbox.processes.cgroups import Bound, ControlGroup, Hierarchy, make_group, usable_hierarchies
from sandbox.processes.meters import GroupMeter
from sandbox.processes.supervise import ProcessOutcome
from sandbox.runs import find_system_program, open_run, prlimit_command
from sandbox.seccomp import filter_program
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace.copy import Workspace

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
