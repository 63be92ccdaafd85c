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
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox import killing
from sandbox.cgroups import ControlGroup, Hierarchy, make_group, usable_hierarchies
from sandbox.host import is_spare
from sandbox.killing import adopt_orphans, kill_everything
from sandbox.meters import GroupMeter
from sandbox.runs import SandboxRun, open_run, prlimit_command
from sandbox.supervise import ProcessOutcome
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# The variable that marks the processes of one run.
MARKER = "SANDBOX_RUN"

# The guard's first line of input is the session of the run, the second dismisses it. When its input
# ends before the second line, its maker is dead.
_WAIT = 'read -r session && read -r _ && exit; exec "$@" "${session:--1}"'
_KILLER = str(Path(killing.__file__).absolute())


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

        def start(setup: InPlaceSetup) -> subprocess.Popen[bytes]:
            limits = prlimit_command(command.limits, shared_user=True, bounds=setup.group.bounds)
            argv = [*setup.group.entry(), *limits, *command.argv]
            return start_program(argv, cwd=setup.cwd, environment=setup.environment)

        return run_in_place(command, workspace, cancel, start)


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

    @property
    def mark(self) -> str:
        """The environment entry that only the processes of this run have."""
        return f"{MARKER}={self.environment[MARKER]}"


Start = Callable[[InPlaceSetup], subprocess.Popen[bytes]]


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
        with Guard(setup.mark, group.directories(), owner) as guard:
            outcome = _watch(setup, start, guard)
        return run.result(outcome, outcome.returncode)


def _prepare(run: SandboxRun, group: ControlGroup) -> InPlaceSetup:
    home = run.scratch / "tmp" / "home"
    home.mkdir(parents=True)
    channels = run.channels
    fixed = (
        run.environment(home)
        if channels is None
        else run.environment(home, channels.report_directory, channels.junit_directory)
    )
    environment = {**fixed, MARKER: secrets.token_hex(16)}
    cwd = run.workspace.path / run.workspace.relative(run.command.cwd)
    return InPlaceSetup(run, cwd, home.parent, environment, group)


def _watch(setup: InPlaceSetup, start: Start, guard: Guard) -> ProcessOutcome:
    adopt_orphans()
    grouped = GroupMeter(setup.group, setup.run.limits)
    meters = setup.run.meters(grouped, setup.group.bounds, temporary=[setup.temporary])
    with closing(meters):
        process = start(setup)
        guard.tell(process.pid)

        def kill() -> None:
            """Kill the process group first, then what left it and so became our child."""
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
            kill_everything(process.pid, setup.mark)

        try:
            meters.enter(process.pid)
        except SandboxError:
            kill()
            raise
        return setup.run.watch(process, kill, meters)


class Guard:
    """Kills all of a run when its maker, this process, dies first. A context manager.

    It is a shell in a session of its own, outside the control groups of the run, that waits on a
    pipe from us. The pipe ends when we do, however that happens, and the shell then becomes
    `sandbox/processes/killing.py`. Leave the context when the run is dead.
    """

    def __init__(self, mark: str, groups: Sequence[Path], uid: int | None) -> None:
        """Start the guard of a run with `mark` in its environment and the directories `groups`.

        `uid` is the uid of the command, None when it is our own. Raises SandboxError.
        """
        own = "" if uid is None or not is_spare(uid) else str(uid)
        killer = (sys.executable, "-I", "-S", _KILLER, mark, own, ":".join(map(str, groups)))
        try:
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT, "sh", *killer],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"cannot start /bin/sh: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._popen.stdin is not None
        self._write(b"\n\n")
        self._popen.stdin.close()
        self._popen.wait()

    def tell(self, session: int) -> None:
        """Tell the guard the session of the run, as soon as there is one."""
        self._write(b"%d\n" % session)

    def _write(self, line: bytes) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line)
        except BrokenPipeError:
            pass  # somebody has killed the guard


def start_program(
    argv: list[str], *, cwd: Path, environment: Mapping[str, str], pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own with piped streams. Raises SandboxError."""
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
