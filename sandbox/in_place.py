"""Runs that see this machine's own file system: what the backends without namespaces share.

The workspace is used where it lies, so `Workspace.mount` means nothing. No PID namespace ends the
daemons of a run: they are found by their session, a mark in their environment, and their control
group where there is one; by a guard when we are killed before we could.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sandbox.cgroups import ControlGroup, make_group, usable_hierarchies
from sandbox.channels import JUNIT_NAME, REPORT_NAME, Channels
from sandbox.disk import DiskMeter
from sandbox.environment import command_environment
from sandbox.guard import Guard
from sandbox.hierarchies import Hierarchy
from sandbox.meters import GroupMeter, Meters, TreeMeter
from sandbox.orphans import adopt_orphans, kill_everything
from sandbox.private import remove_tree
from sandbox.results import run_result
from sandbox.supervise import Outcome, watch
from sandbox.types import Command, Limits, RunResult, SandboxError
from sandbox.workspace import Workspace

# Names the processes of one run, so that daemons among them are found.
MARKER = "SANDBOX_RUN"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run happens.

    `tree` is the workspace's, `temporary` holds HOME; `environment` is the command's whole one.
    """

    tree: Path
    cwd: Path
    temporary: Path
    environment: Mapping[str, str]
    channels: Channels | None
    group: ControlGroup

    @property
    def mark(self) -> str:
        """What of its environment tells this run's processes from all others."""
        return f"{MARKER}={self.environment[MARKER]}"


Start = Callable[[Place], subprocess.Popen[bytes]]


class InPlace:
    """Knows, asked once, where this machine lets us make control groups."""

    def __init__(self) -> None:
        self._hierarchies: tuple[Hierarchy, ...] | None = None

    def run(
        self,
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
        if not command.argv:
            raise SandboxError("nothing to run: argv is empty")
        if self._hierarchies is None:
            self._hierarchies = usable_hierarchies()
        group = make_group(command.limits, self._hierarchies)
        try:
            with _place(command, workspace, group, owner) as place:
                with Guard(place.mark, group.directories(), owner) as guard:
                    outcome = _watched(command, place, cancel, start, guard)
                return run_result(outcome, outcome.returncode, command.limits, place.channels)
        finally:
            group.remove()


@contextmanager
def _place(
    command: Command, workspace: Workspace, group: ControlGroup, owner: int | None
) -> Iterator[Place]:
    scratch = workspace.scratch()
    home = scratch / "tmp" / "home"
    try:
        home.mkdir(parents=True)
        both = Channels(scratch, command.limits, owner) if command.report else nullcontext()
        with both as channels:
            report = None if channels is None else channels.report_directory / REPORT_NAME
            junit = None if channels is None else channels.junit_directory / JUNIT_NAME
            fixed = command_environment(command, home=home, report=report, junit=junit)
            environment = {**fixed, MARKER: secrets.token_hex(16)}
            cwd = workspace.path / workspace.relative(command.cwd)
            yield Place(workspace.path, cwd, home.parent, environment, channels, group)
    finally:
        remove_tree(scratch)


def _watched(
    command: Command,
    place: Place,
    cancel: threading.Event | None,
    start: Start,
    guard: Guard,
) -> Outcome:
    adopt_orphans()
    meter = _meters(command.limits, place)
    process = start(place)
    guard.tell(process.pid)

    def kill() -> None:
        """The process group first; then what left it, which has become our child."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        kill_everything(process.pid, place.mark)

    with closing(meter):
        try:
            meter.enter(process.pid)
        except SandboxError:
            kill()
            raise
        return watch(
            process,
            command.limits,
            cancel,
            kill,
            report=None if place.channels is None else place.channels.pipe,
            meter=meter,
        )


def _meters(limits: Limits, place: Place) -> Meters:
    tree = TreeMeter(limits, place.group.bounds)
    places = [place.tree, place.temporary]
    if place.channels is not None:
        places.append(place.channels.junit_directory)
    return Meters([GroupMeter(place.group, limits), tree, DiskMeter(places, limits, tree.pids)])


def popen(
    argv: list[str], *, cwd: Path, environment: Mapping[str, str], pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a program as `watch` wants it. Raises SandboxError."""
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=environment,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot start {argv[0]}: {error}") from error
