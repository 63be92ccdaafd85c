"""Runs on this machine's own file system: the unsafe backend, and what Landlock builds on.

No PID namespace ends the daemons of a run. They are found by their session, by a mark in their
environment, and by their control group; a guard does so if the agent is killed first.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from sandbox import killing
from sandbox.cgroups import ControlGroup, make_group, usable_hierarchies
from sandbox.host import is_spare
from sandbox.killing import adopt_orphans, kill_everything
from sandbox.runs import SandboxRun, open_run, prlimit_command
from sandbox.supervise import Guard, start_process
from sandbox.types import Command, Probe, RunResult
from sandbox.workspace import Workspace

# The variable that marks the processes of one run.
MARKER = "SANDBOX_RUN"


class ProcessSandbox:
    """The unsafe backend: limits without isolation, only for users who asked for it by name.

    `Workspace.mount` and `Command.read_only` mean nothing.
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
    """A run on the host's own paths. `environment` is complete and includes the mark."""

    run: SandboxRun
    environment: Mapping[str, str]
    group: ControlGroup

    @property
    def cwd(self) -> Path:
        """Where the command starts. Raises WorkspaceError for a place outside the workspace."""
        return self.run.workspace.path / self.run.workspace.relative(self.run.command.cwd)

    @property
    def mark(self) -> str:
        """The environment entry that only the processes of this run have."""
        return f"{MARKER}={self.environment[MARKER]}"

    def limited_command(self) -> list[str]:
        """The command, behind the program that sets its limits."""
        shared = self.run.owner is None
        limits = prlimit_command(self.run.limits, shared_user=shared, bounds=self.group.bounds)
        return [*limits, *self.run.command.argv]


def _start(setup: InPlaceSetup) -> Popen[bytes]:
    argv = [*setup.group.entry(), *setup.limited_command()]
    return start_process(argv, cwd=setup.cwd, environment=setup.environment)


def run_in_place(
    command: Command,
    workspace: Workspace,
    cancel: threading.Event | None,
    start: Callable[[InPlaceSetup], Popen[bytes]],
    *,
    owner: int | None = None,
) -> RunResult:
    """Run what `start` starts (in a session of its own, streams piped) to its end or a limit.

    `owner` is the uid that the command runs as, None when it is our own. Raises SandboxError.
    """
    with (
        open_run(command, workspace, owner, cancel) as run,
        make_group(command.limits, usable_hierarchies()) as group,
    ):
        variables = run.environment(run.temporary, run.report_directory)
        setup = InPlaceSetup(run, {**variables, MARKER: secrets.token_hex(16)}, group)
        with Guard(_killer(setup)) as guard:
            return _watch(setup, start, guard)


def _killer(setup: InPlaceSetup) -> tuple[str, ...]:
    owner = setup.run.owner
    uid = "" if owner is None or not is_spare(owner) else str(owner)
    program = str(Path(killing.__file__).absolute())
    groups = ":".join(map(str, setup.group.directories()))
    return (sys.executable, "-I", "-S", program, setup.mark, uid, groups)


def _watch(
    setup: InPlaceSetup, start: Callable[[InPlaceSetup], Popen[bytes]], guard: Guard
) -> RunResult:
    adopt_orphans()
    meter = setup.run.meter(setup.group)
    process = start(setup)
    meter.pid = process.pid
    guard.tell(str(process.pid))

    def kill() -> None:
        """Kill the process group first, then what left it and so became our child."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        kill_everything(process.pid, setup.mark)

    outcome = setup.run.watch(process, kill, meter)
    return setup.run.result(outcome, outcome.returncode, meter.after())
