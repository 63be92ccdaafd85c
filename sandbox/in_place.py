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
from contextlib import suppress
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
    """A run on the host's own paths: what to start, with its limits, in which group and where.

    `environment` is complete and includes the mark.
    """

    run: SandboxRun
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    group: ControlGroup
    cwd: Path


def _start(setup: InPlaceSetup) -> Popen[bytes]:
    argv = [*setup.group.entry(), *setup.argv]
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
    mark = secrets.token_hex(16)
    with (
        open_run(command, workspace, owner, cancel) as run,
        make_group(command.limits, usable_hierarchies()) as group,
        Guard(_killer(f"{MARKER}={mark}", owner, group)),
    ):
        limits = prlimit_command(run.limits, shared_user=owner is None, bounds=group.bounds)
        variables = {**run.environment(run.temporary, run.report_directory), MARKER: mark}
        cwd = workspace.path / workspace.relative(command.cwd)
        meter = run.meter(group)
        adopt_orphans()
        process = start(InPlaceSetup(run, (*limits, *command.argv), variables, group, cwd))
        meter.pid = process.pid

        def kill() -> None:
            """Kill the process group first, then what left it and so became our child."""
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kill_everything(process.pid, f"{MARKER}={mark}")

        outcome = run.watch(process, kill, meter)
        return run.result(outcome, outcome.returncode, meter.after())


def _killer(mark: str, owner: int | None, group: ControlGroup) -> tuple[str, ...]:
    uid = "" if owner is None or not is_spare(owner) else str(owner)
    program = str(Path(killing.__file__).absolute())
    groups = ":".join(map(str, group.directories()))
    return (sys.executable, "-I", "-S", program, mark, uid, groups)
