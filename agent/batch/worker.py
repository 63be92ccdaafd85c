"""One instance in a process of its own: the job, the engine, and the program of the worker.

A worker reads a `SolveJob` from its standard input, solves it, and writes its files to the
instance's folder, how the attempt ended last. If its input ends, the driver is gone: it finishes
the call under way, records the reply, and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

from pydantic import BaseModel

from agent.datasets import SolverTask
from agent.errors import PatchshotError, ProblemError, RepositoryError, Status
from agent.llm import own_redactor
from agent.llm.recording import ReplyGate, ReplyRecording
from agent.results import kept
from agent.run.record import Ledger, RunRecord, make_record
from agent.shared.files import locked, open_locked, replace_file
from agent.shared.terminal import say
from sandbox import Command, RunResult, Sandbox, Workspace

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types import Problem
    from agent.types.protocols import Reporter, Snapshot

Blame = Literal["none", "row", "environment", "crash", "budget", "stopped"]
"""Why an attempt has no final result; "none" if it has one."""

ENDED = "attempt.json"

# Failures that say nothing about the instance and that another run may not have.
_ENVIRONMENT = (Status.PROVIDER, Status.SANDBOX, Status.USAGE)

_OOM_SCORE = "500"  # of 1000, added to the share of memory that a process has
_PROGRAM = "from agent.batch.worker import main; main()"
_STOP_SECONDS = 15.0  # between SIGTERM and SIGKILL
_LOOK_SECONDS = 0.1  # between two attempts to get a core

# One thread of numpy each: there are as many workers as cores and more.
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class SolveJob(BaseModel, frozen=True, extra="forbid"):
    """One attempt at an instance. `flags` make the settings.

    `budget_usd`: what is left for it of the budget of all, if that is less than its own limit.
    `request_seconds`: the distance between two model calls. The process is killed after `seconds`.
    """

    task: SolverTask
    repository: str
    folder: str
    flags: dict[str, Any]
    attempt: int = 1
    budget_usd: float | None = None
    request_seconds: float = 0.0
    seconds: float = 3600.0


class AttemptEnded(BaseModel, frozen=True, extra="forbid"):
    """How an attempt ended. With `blame` "none", `result.json` is final."""

    status: Status
    blame: Blame
    message: str
    verdict: str | None = None
    seconds: float = 0.0


class BatchEngine(Protocol):
    """Runs attempts. Both methods are called in threads."""

    def attempt(self, job: SolveJob) -> AttemptEnded:
        """Run an attempt to its end. Raises OSError if its files cannot be written."""
        ...

    def cancel(self) -> None:
        """Stop all attempts; later ones do not start."""
        ...


STOPPED = AttemptEnded(status=Status.INTERRUPTED, blame="stopped", message="stopped")


class LocalEngine:
    """A `BatchEngine` of worker processes on this machine."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**(os.environ if environment is None else environment), **_THREADS}
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopping = False

    def attempt(self, job: SolveJob) -> AttemptEnded:
        """Run a worker to its end, and end all processes of its group."""
        folder = Path(job.folder)
        folder.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        with self._lock, (folder / kept.LOG).open("ab") as log:
            if self._stopping:
                return STOPPED
            (folder / ENDED).unlink(missing_ok=True)
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
            self._processes.add(process)
        code: int | None = None
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(job.model_dump_json().encode() + b"\n")
                process.stdin.flush()
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(job.seconds)
        except KeyboardInterrupt:  # in a task of Ray
            self.cancel()
            raise
        finally:
            _kill(process)
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            with self._lock:
                self._processes.discard(process)
        ended = kept.read_model(AttemptEnded, folder / ENDED)
        if ended is None:
            ended = STOPPED if self._stopping else _died(folder, code, job.seconds)
        return ended.model_copy(update={"seconds": round(time.monotonic() - begun, 3)})

    def cancel(self) -> None:
        """Send SIGTERM to all workers, and SIGKILL to those that are left after a while."""
        with self._lock:
            self._stopping = True
            processes = list(self._processes)
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _died(folder: Path, code: int | None, seconds: float) -> AttemptEnded:
    if code is None:
        reason = f"took longer than {seconds:g} s and was ended"
    elif code < 0:
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        reason = f"the worker was killed by {signal.Signals(-code).name}{memory}"
    else:
        reason = f"the worker ended with exit code {code}: {kept.last_log_line(folder)}"
    return AttemptEnded(status=Status.CRASHED, blame="crash", message=reason)


# --- the program of the worker


def main() -> None:
    """Serve one job from standard input, if one comes."""
    source = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:  # for the processes that this one starts
        os.dup2(nothing.fileno(), 0)
    with contextlib.suppress(OSError):  # the kernel kills this process before the driver
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    line = source.readline()
    if not line:
        return
    job = SolveJob.model_validate_json(line)
    folder = Path(job.folder)
    with locked(folder / kept.LOCK, wait=True):
        ended = asyncio.run(_attempt(job, folder, source))
        ended = ended.model_copy(update={"message": own_redactor()(ended.message)})
        replace_file(folder / ENDED, [ended.model_dump_json().encode(), b"\n"])


async def _attempt(job: SolveJob, folder: Path, source: BinaryIO) -> AttemptEnded:
    """Run the job, and turn every failure into a message."""
    say(f"attempt {job.attempt}")
    try:
        with contextlib.closing(ReplyRecording(folder / kept.EXCHANGES)) as recording:
            gate = ReplyGate(
                recording,
                lambda: say("a reply that was paid before is used again"),
                job.request_seconds,
            )
            return await _solve(job, folder, gate, source)
    except (RepositoryError, ProblemError) as error:
        return AttemptEnded(status=error.status, blame="row", message=str(error))
    except PatchshotError as error:
        return AttemptEnded(status=error.status, blame="environment", message=str(error))
    except OSError as error:
        reason = f"{error.filename or ''} {error.strerror or error}: repair this and run again"
        return AttemptEnded(status=Status.SANDBOX, blame="environment", message=reason.strip())
    except asyncio.CancelledError:
        return STOPPED
    except Exception as error:  # noqa: BLE001  (the last line: a bug must end in one line too)
        say(own_redactor()(traceback.format_exc()))
        reason = f"{type(error).__name__}: {error}"
        return AttemptEnded(status=Status.CRASHED, blame="crash", message=reason)


async def _solve(job: SolveJob, folder: Path, gate: ReplyGate, source: BinaryIO) -> AttemptEnded:
    from agent.repository import take_snapshot
    from agent.run.problem import problem_from_text
    from agent.settings import load
    from agent.shared.console import PlainReporter
    from sandbox import hide_programs

    hide_programs(Path(job.repository))
    settings = load(job.flags)
    if job.budget_usd is not None:  # earlier replies are counted again as they are used again
        paid = sum(one.reply.usage.cost_usd or 0.0 for one in gate.recording.exchanges)
        settings = settings.model_copy(update={"max_cost": paid + job.budget_usd})
    problem = problem_from_text(job.task.problem_statement, job.task.instance_id)
    ledger = Ledger(on_better=lambda patch: kept.write_patch(folder, patch.diff))
    reporter = PlainReporter(verbose=True, redact=own_redactor())
    begun = time.monotonic()
    snapshot = take_snapshot(
        Path(job.repository),
        commit=job.task.base_commit,
        max_file_bytes=round(settings.max_file_mb * 1e6),
    )
    ledger.spend("snapshot", time.monotonic() - begun)
    _watch(gate, source)
    record = await _run(problem, snapshot, settings, reporter, ledger, gate, job.task.repo)
    record = record.as_printed(accept_unverified=settings.accept_unverified, redact=own_redactor())
    best = ledger.best.patch if ledger.best else None
    kept.write_result(folder, record, best.diff if best else b"")
    return AttemptEnded(
        status=record.status,
        blame=_blame(record, gate, job),
        message=record.message,
        verdict=record.verdict,
    )


def _blame(record: RunRecord, gate: ReplyGate, job: SolveJob) -> Blame:
    if record.status is Status.BUDGET and job.budget_usd is not None and not gate.broke:
        return "budget"
    if record.status is Status.INTERRUPTED:
        return "stopped"
    if record.status is Status.CRASHED:
        return "crash"
    return "environment" if gate.broke or record.status in _ENVIRONMENT else "none"


async def _run(
    problem: Problem,
    snapshot: Snapshot,
    settings: Settings,
    reporter: Reporter,
    ledger: Ledger,
    gate: ReplyGate,
    project: str,
) -> RunRecord:
    """Run the pipeline. Cancelled before it begins, it ends like an interrupted one."""
    from agent.run.pipeline import solve
    from agent.wiring import open_services, solve_options

    loop = asyncio.get_running_loop()

    def waited(seconds: float) -> None:
        loop.call_soon_threadsafe(ledger.wait, seconds)

    def around(inner: Sandbox) -> Sandbox:
        return SlotSandbox(inner, settings.cache_dir / "slots", waited)

    services = open_services(
        settings, problem, snapshot, reporter, ledger, gate=gate, around=around, project=project
    )
    try:
        async with services as parts:
            return await solve(problem, snapshot, parts, solve_options(settings), ledger)
    except asyncio.CancelledError:
        return make_record(ledger, status=Status.INTERRUPTED, message="interrupted")


def _watch(gate: ReplyGate, source: BinaryIO) -> None:
    """Cancel the current task on SIGTERM, or when the driver is gone."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def driver_gone() -> None:
        gate.salvage = True
        task.cancel()

    def listen() -> None:
        while os.read(source.fileno(), 1024):
            pass
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(driver_gone)

    threading.Thread(target=listen, daemon=True).start()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)


class SlotSandbox:
    """Runs commands while it holds one lock of as many as cores, which all workers share.

    If more tests than cores ran at once, one that shares its core might exceed its time limit
    through no fault of its own. `waited` is called with the seconds in which this worker only
    waited for others.
    """

    def __init__(self, inner: Sandbox, slots: Path, waited: Callable[[float], object]) -> None:
        self._inner = inner
        self.name, self.foreign_root, self.probe = inner.name, inner.foreign_root, inner.probe
        self._slots = slots
        self._waited = waited
        self._running = 0

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command once a slot is free; `cancel` ends the waiting too."""
        self._slots.mkdir(parents=True, exist_ok=True)
        begun, idle = time.monotonic(), not self._running
        slot = self._free_slot()
        while slot is None and not (cancel is not None and cancel.is_set()):
            time.sleep(_LOOK_SECONDS)
            slot = self._free_slot()
        if idle:
            self._waited(time.monotonic() - begun)
        self._running += 1
        try:
            return self._inner.run(command, workspace, cancel=cancel)
        finally:
            self._running -= 1
            if slot is not None:
                os.close(slot)

    def _free_slot(self) -> int | None:
        for number in range(len(os.sched_getaffinity(0))):
            handle = open_locked(self._slots / str(number))
            if handle is not None:
                return handle
        return None
