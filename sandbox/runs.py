"""What every backend does around a command: its private files, its meters, its end and its result.

A backend opens a run, starts a process in its own way, and hands that process to `watch`:

    with open_run(command, workspace, owner, cancel) as run:
        ...
        outcome = run.watch(process, kill, meters)
        return run.result(outcome, status)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sandbox.cgroups import Bound, ControlGroup
from sandbox.files import remove_tree
from sandbox.host import command_environment
from sandbox.meters import DiskMeter, GroupMeter, MemoryDiskMeter, Meters, TreeMeter
from sandbox.supervise import (
    JUNIT_NAME,
    REPORT_NAME,
    Meter,
    ProcessOutcome,
    ReportChannels,
    run_result,
    watch,
)
from sandbox.types import Command, Limits, RunResult, SandboxError
from sandbox.workspace import Workspace

# Where the isolating backends show the home and the two channels of a command.
HOME = Path("/tmp/home")  # noqa: S108 - inside: a private tmpfs
REPORT_DIRECTORY = Path("/report")
JUNIT_DIRECTORY = Path("/junit")

# Enough for semaphores and queues of multiprocessing; too little to exhaust the machine.
SHARED_MEMORY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SandboxRun:
    """One run of a command. `channels` is None when the command asked for no report.

    `scratch` is a private directory on the host that exists as long as the run. `owner` is the uid
    (and gid) that the command runs as, None when it is our own.
    """

    command: Command
    workspace: Workspace
    scratch: Path
    channels: ReportChannels | None
    cancel: threading.Event | None
    owner: int | None

    @property
    def limits(self) -> Limits:
        """The limits of the command."""
        return self.command.limits

    @property
    def memory_sizes(self) -> Mapping[str, int]:
        """Sizes in bytes of the directories in memory that an isolated command can write.

        The kernel rounds the size of a tmpfs up to whole pages.
        """
        page = os.sysconf("SC_PAGE_SIZE")
        return {"/dev/shm": SHARED_MEMORY_BYTES, "/tmp": -(-self.limits.tmp // page) * page}  # noqa: S108

    def environment(
        self,
        home: Path = HOME,
        report_directory: Path = REPORT_DIRECTORY,
        junit_directory: Path = JUNIT_DIRECTORY,
    ) -> Mapping[str, str]:
        """Return all variables of the command, with paths as it sees them. Raises SandboxError."""
        reports = {
            "SANDBOX_REPORT": str(report_directory / REPORT_NAME),
            "SANDBOX_JUNIT": str(junit_directory / JUNIT_NAME),
        }
        return command_environment(
            self.command, home=home, reports=reports if self.channels is not None else {}
        )

    def meters(
        self,
        group: ControlGroup | None,
        *others: Meter,
        temporary: Sequence[Path] = (),
        in_memory: Mapping[str, int] | None = None,
    ) -> Meters:
        """Return everything that measures the run.

        `temporary` are writable directories on the host, `in_memory` those inside, with their size.
        """
        tree = TreeMeter(self.limits, frozenset() if group is None else group.bounds)
        directories = [self.workspace.path, *temporary]
        if self.channels is not None:
            directories.append(self.channels.junit_directory)
        disk = DiskMeter(directories, self.limits, tree.pids)
        grouped = () if group is None else (GroupMeter(group, self.limits),)
        memory = MemoryDiskMeter(in_memory or {}, self.limits)
        return Meters([*grouped, *others, tree, disk, memory])

    def watch(
        self, process: subprocess.Popen[bytes], kill: Callable[[], None], meter: Meter
    ) -> ProcessOutcome:
        """Wait for the end of `process`; see `sandbox.supervise.watch`."""
        report = None if self.channels is None else self.channels.pipe
        return watch(process, self.limits, self.cancel, kill, report=report, meter=meter)

    def result(self, outcome: ProcessOutcome, status: int) -> RunResult:
        """Return the result of a run that has ended; see `run_result`."""
        return run_result(outcome, status, self.limits, self.channels)


@contextmanager
def open_run(
    command: Command, workspace: Workspace, owner: int | None, cancel: threading.Event | None
) -> Iterator[SandboxRun]:
    """Make the private files of a run and remove them at its end.

    Gives the workspace to `owner`, see `SandboxRun`. Raises SandboxError.
    """
    if not command.argv:
        raise SandboxError("nothing to run: argv is empty")
    if owner is not None:
        workspace.give_to(owner)
    scratch = workspace.scratch()
    try:
        reports = (
            ReportChannels(scratch, command.limits, owner) if command.report else nullcontext()
        )
        with reports as channels:
            yield SandboxRun(command, workspace, scratch, channels, cancel, owner)
    finally:
        remove_tree(scratch)


def prlimit_command(
    limits: Limits, *, shared_user: bool, bounds: frozenset[Bound] = frozenset()
) -> tuple[str, ...]:
    """Return `prlimit` with its arguments; the command follows.

    These limits hold for each process (RLIMIT_NPROC for each user), so a command that forks can use
    a multiple of them. `bounds` are what a control group limits for all processes together; they
    need no limit here, and memory that is only reserved (dozens of GiB by a JVM, Go or Node) then
    does no harm. The second value of the CPU limit ends a process that ignores SIGXCPU.

    `shared_user` says that the uid of the command has other processes, which RLIMIT_NPROC counts
    too. Raises SandboxError when util-linux is not installed.
    """
    arguments = [
        find_system_program("prlimit", "util-linux"),
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
    """Count the threads that this uid has now: RLIMIT_NPROC counts threads (setrlimit(2))."""
    total = 0
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and process.stat().st_uid == os.getuid():
                total += sum(1 for _ in (process / "task").iterdir())
        except OSError:
            continue  # it has ended, or we may not look into it
    return total
