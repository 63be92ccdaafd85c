"""Runs on this machine's own file system: the unsafe backend, and what Landlock builds on.

The command works in the workspace on the host itself, so `Workspace.mount` means nothing. No
PID namespace ends the daemons of a run. They are found by their session, by a mark in their
environment, and by their control group where there is one. If the agent is killed first, a guard
process finds and kills them.
"""

from __future__ import annotations

import functools
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from sandbox import killing
from sandbox.cgroups import ControlGroup, Hierarchy, make_group, usable_hierarchies
from sandbox.host import is_spare
from sandbox.killing import adopt_orphans, kill_everything
from sandbox.runs import SandboxRun, open_run, prlimit_command
from sandbox.supervise import Guard, ProcessOutcome, start_process
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# The variable that marks the processes of one run.
MARKER = "SANDBOX_RUN"


class ProcessSandbox:
    """The unsafe backend: limits without isolation, only for users who asked for it by name.

    Commands run as this user and reach the network and all files of this user. `Workspace.mount`
    and `Command.read_only` mean nothing.
    """

    name = "process"
    foreign_root = False

    def probe(self) -> Probe:
        """Report a backend that is always available and never isolated."""
        return Probe(self.name, available=True, isolated=False, guarantees={})

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command under limits only; see the protocol `Sandbox`."""
        return run_in_place(command, workspace, cancel, _start)


@dataclass(frozen=True, slots=True)
class InPlaceSetup:
    """A run with its directories on the host: `temporary` holds HOME and is TMPDIR.

    `environment` is complete and includes the mark.
    """

    run: SandboxRun
    cwd: Path
    temporary: Path
    environment: Mapping[str, str]
    group: ControlGroup

    def limited_command(self) -> list[str]:
        """The command, behind the program that sets its limits."""
        shared = self.run.owner is None
        limits = prlimit_command(self.run.limits, shared_user=shared, bounds=self.group.bounds)
        return [*limits, *self.run.command.argv]


Start = Callable[[InPlaceSetup], Popen[bytes]]


def _start(setup: InPlaceSetup) -> Popen[bytes]:
    argv = [*setup.group.entry(), *setup.limited_command()]
    return start_process(argv, cwd=setup.cwd, environment=setup.environment)


@functools.cache
def _own_hierarchies() -> tuple[Hierarchy, ...]:
    """Where this machine lets us make control groups; a trial finds out, once."""
    return usable_hierarchies()


def run_in_place(
    command: Command,
    workspace: Workspace,
    cancel: threading.Event | None,
    start: Start,
    *,
    owner: int | None = None,
) -> RunResult:
    """Run what `start` starts (in a session of its own, streams piped) to its end or a limit.

    `owner` is the uid that the command runs as, None when it is our own. Raises SandboxError.
    """
    with (
        open_run(command, workspace, owner, cancel) as run,
        make_group(command.limits, _own_hierarchies()) as group,
    ):
        setup = _prepare(run, group)
        with Guard(_killer(setup)) as guard:
            outcome = _watch(setup, start, guard)
        return run.result(outcome, outcome.returncode)


def _prepare(run: SandboxRun, group: ControlGroup) -> InPlaceSetup:
    home = run.scratch / "tmp" / "home"
    home.mkdir(parents=True)
    shown = (run.scratch / "report", run.scratch / "junit")
    environment = {**run.environment(home, *shown), MARKER: secrets.token_hex(16)}
    cwd = run.workspace.path / run.workspace.relative(run.command.cwd)
    return InPlaceSetup(run, cwd, home.parent, environment, group)


def _killer(setup: InPlaceSetup) -> tuple[str, ...]:
    """What kills all of a run when we are dead; the session of the run follows."""
    owner = setup.run.owner
    uid = "" if owner is None or not is_spare(owner) else str(owner)
    program = str(Path(killing.__file__).absolute())
    groups = ":".join(map(str, setup.group.directories()))
    return (sys.executable, "-I", "-S", program, _mark(setup), uid, groups)


def _mark(setup: InPlaceSetup) -> str:
    """The environment entry that only the processes of this run have."""
    return f"{MARKER}={setup.environment[MARKER]}"


def _watch(setup: InPlaceSetup, start: Start, guard: Guard) -> ProcessOutcome:
    adopt_orphans()
    with closing(setup.run.meters(setup.group, temporary=[setup.temporary])) as meters:
        process = start(setup)
        guard.tell(str(process.pid))

        def kill() -> None:
            """Kill the process group first, then what left it and so became our child."""
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
            kill_everything(process.pid, _mark(setup))

        try:
            meters.enter(process.pid)
        except SandboxError:
            kill()
            raise
        return setup.run.watch(process, kill, meters)
