"""What every backend does around a command: private files, a meter, its end and its result."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.cgroups import Bound, ControlGroup
from sandbox.files import remove_tree
from sandbox.host import command_environment
from sandbox.meters import Meter
from sandbox.supervise import Breach, ProcessOutcome, ReportPipe, explain_end, watch
from sandbox.types import Command, Limits, RunResult, SandboxError
from sandbox.workspace import Workspace

# Where the isolating backends show the temporary directory and the report pipe of a command.
TEMPORARY = Path("/tmp")  # noqa: S108 - inside: a private directory
REPORT_DIRECTORY = Path("/report")

_PIPE = "report"


@dataclass(frozen=True, slots=True)
class SandboxRun:
    """One run of a command, with its private files below `scratch` on the host.

    `temporary` holds the home and shared memory and can be written; its size counts with the
    workspace. `owner` is the uid (and gid) of the command, None when it is our own. `pipe`
    lies in `report_directory`; it is None when the command asked for no report.
    """

    command: Command
    limits: Limits
    workspace: Workspace
    scratch: Path
    temporary: Path
    report_directory: Path
    pipe: ReportPipe | None
    cancel: threading.Event | None
    owner: int | None

    def environment(
        self, temporary: Path = TEMPORARY, report_directory: Path = REPORT_DIRECTORY
    ) -> Mapping[str, str]:
        """Return all variables of the command, with paths as it sees them. Raises SandboxError."""
        reports = {"SANDBOX_REPORT": str(report_directory / _PIPE)}
        return command_environment(
            self.command, home=temporary / "home", reports={} if self.pipe is None else reports
        )

    def meter(self, group: ControlGroup) -> Meter:
        """Return what measures the run."""
        return Meter(self.limits, (self.workspace.path, self.temporary), group)

    def watch(
        self, process: subprocess.Popen[bytes], kill: Callable[[], None], meter: Meter
    ) -> ProcessOutcome:
        """Wait for the end of `process`; see `sandbox.supervise.watch`."""
        return watch(process, self.limits, self.cancel, kill, report=self.pipe, breach=meter.breach)

    def result(self, outcome: ProcessOutcome, status: int, reached: Breach | None) -> RunResult:
        """Return the result of a run that has ended; see `explain_end`."""
        ended, code, detail = explain_end(outcome, status, reached, self.limits)
        return RunResult(
            ended=ended,
            exit_code=code,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            seconds=outcome.seconds,
            report=b"" if self.pipe is None else self.pipe.capture.value(),
            detail=detail,
            report_dropped=0 if self.pipe is None else self.pipe.capture.dropped,
        )


@contextmanager
def open_run(
    command: Command, workspace: Workspace, owner: int | None, cancel: threading.Event | None
) -> Iterator[SandboxRun]:
    """Make the private files of a run, give them and the workspace to `owner`, and remove them.

    Raises SandboxError.
    """
    if not command.argv:
        raise SandboxError("nothing to run: argv is empty")
    if owner is not None:
        workspace.give_to(owner)
    scratch = workspace.scratch()
    temporary, reports = scratch / "tmp", scratch / "report"
    pipe: ReportPipe | None = None
    try:
        for writable in (temporary, temporary / "home", temporary / "shm"):
            writable.mkdir(mode=0o700)
            if owner is not None:
                os.chown(writable, owner, owner)
        if command.report:
            reports.mkdir(mode=0o755)
            pipe = ReportPipe(reports / _PIPE, command.limits.report)
        yield SandboxRun(
            command, command.limits, workspace, scratch, temporary, reports, pipe, cancel, owner
        )
    finally:
        if pipe is not None:
            pipe.close()
        remove_tree(scratch)


def prlimit_command(
    limits: Limits, *, shared_user: bool, bounds: frozenset[Bound] = frozenset()
) -> tuple[str, ...]:
    """Return `prlimit` with its arguments; the command follows. Raises SandboxError.

    The limits hold for each process. `bounds` are what a control group limits for all together;
    they need no limit here, so that memory that is only reserved (by a JVM, Go or Node) does no
    harm. `shared_user`: the uid of the command has other processes, which RLIMIT_NPROC counts too.
    """
    arguments = [
        find_system_program("prlimit", "util-linux"),
        # The second value ends a process that ignores SIGXCPU.
        f"--cpu={limits.cpu_seconds}:{limits.cpu_seconds + 1}",
        f"--fsize={limits.file_size}",
        "--core=0",
    ]
    if Bound.MEMORY not in bounds:
        arguments.append(f"--as={limits.address_space}")
    if Bound.PROCESSES not in bounds:
        processes = limits.processes + (_count_threads_of_user() if shared_user else 0)
        arguments.append(f"--nproc={processes}")
    return (*arguments, "--")


def find_system_program(name: str, package: str) -> str:
    """Return the path of a program in the system's directories. Raises SandboxError."""
    program = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin")
    if program is None:
        raise SandboxError(f"{name} is not installed; install the package {package}")
    return program


def _count_threads_of_user() -> int:
    total = 0
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and process.stat().st_uid == os.getuid():
                total += sum(1 for _ in (process / "task").iterdir())
        except OSError:
            continue  # it has ended, or we may not look into it
    return total
