"""The engine of one machine: one process for each job, and CPU slots for their tests."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from agent.batch.local.cpu_slots import CpuSlots
from agent.batch.local.worker_processes import ForkServerSpawner, SolverProcess, Spawner
from agent.batch.messages import (
    REPORTS,
    Answer,
    Ask,
    AttemptEnded,
    Pace,
    ReportHandler,
    SlotGranted,
    SlotReleased,
    SlotRequest,
    SolveJob,
    StageDone,
    WorkerReport,
    encode_line,
)
from agent.errors import Status
from agent.results import kept as files

STOP_SECONDS = 15.0
"""Time for a worker that is asked to stop: it removes private copies and writes its result."""

SLOT_SECONDS = 900.0
"""Used if the time limit of test runs is not known."""

_GOODBYE_SECONDS = 10.0  # between the last message of a worker and its exit


@dataclass(slots=True)
class _RunningJob:
    """A job under way. `stopping`: it was asked to stop.

    `limit` ends it. Time spent waiting for a core does not count: meanwhile `left` holds the rest
    of the limit, in seconds.
    """

    number: int
    limit: asyncio.Timeout
    left: float | None = None
    worker: SolverProcess | None = None
    stopping: bool = False


_Task = asyncio.Task[tuple[SolveJob, AttemptEnded]]


class LocalEngine:
    """A `BatchEngine` on this machine. A job that takes more than `job_seconds` is killed.

    A worker that is asked to stop has `stop_seconds` for it. The tests of all jobs share `cores`
    slots (None: the cores of this machine). A slot that is held for more than `slot_seconds` is
    taken back, because its holder hangs.
    """

    def __init__(
        self,
        handler: ReportHandler,
        job_seconds: float,
        spawner: Spawner | None = None,
        *,
        stop_seconds: float = STOP_SECONDS,
        cores: int | None = None,
        slot_seconds: float = SLOT_SECONDS,
    ) -> None:
        self._handler = handler
        self._seconds = job_seconds
        self._spawner = spawner or ForkServerSpawner()
        self._stop_seconds = stop_seconds
        self._running: dict[_Task, _RunningJob] = {}
        self._ended: asyncio.Queue[_Task] = asyncio.Queue()
        self._leaving: set[asyncio.Task[int | None]] = set()
        self._slot_seconds = slot_seconds
        self._slots = CpuSlots(cores or len(os.sched_getaffinity(0)))
        self._numbers = itertools.count()
        self._tried = False  # a worker has checked the sandbox, and none has died since

    def submit(self, job: SolveJob) -> None:
        """Start a worker for the job."""
        self._begin(job).add_done_callback(self._ended.put_nowait)

    async def attempt(self, job: SolveJob) -> AttemptEnded:
        """Run one job to its end. `as_completed` does not yield it."""
        task = self._begin(job)
        try:
            return (await asyncio.shield(task))[1]
        finally:
            if task.done():
                del self._running[task]

    async def as_completed(self) -> AsyncGenerator[tuple[SolveJob, AttemptEnded], None]:
        """Yield jobs as they end; see `BatchEngine.as_completed`."""
        try:
            while self._running:
                task = await self._ended.get()
                del self._running[task]
                yield task.result()
        finally:
            await self.close()

    async def cancel(self) -> None:
        """Ask all workers to stop, and kill those that have not after a while."""
        stopped = list(self._running.items())
        for _, running in stopped:
            running.stopping = True
            if running.worker is not None:
                running.worker.terminate()
        if stopped:
            await asyncio.wait([task for task, _ in stopped], timeout=self._stop_seconds)
        for task, running in stopped:
            if not task.done():
                _kill(running)

    async def close(self) -> None:
        """Close the workers' input, so that they record what they are paying; then kill them."""
        for running in self._running.values():
            if running.worker is not None:
                running.worker.hang_up()
        if self._running:
            await asyncio.wait(self._running, timeout=self._stop_seconds)
        for running in self._running.values():
            _kill(running)
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*self._leaving)
        await self._spawner.close()

    def _begin(self, job: SolveJob) -> _Task:
        running = _RunningJob(next(self._numbers), asyncio.timeout(None))
        task = asyncio.create_task(self._run(job, running))
        self._running[task] = running
        return task

    async def _run(self, job: SolveJob, running: _RunningJob) -> tuple[SolveJob, AttemptEnded]:
        folder = Path(job.folder)
        worker = running.worker = await self._spawner.start(folder)
        if running.stopping:
            _kill(running)
        late, code = False, None
        ended: AttemptEnded | None = None
        try:
            async with running.limit:
                running.limit.reschedule(asyncio.get_running_loop().time() + self._seconds)
                ended = await self._talk(worker, job, running)
        except TimeoutError:
            late = True
        finally:
            leaving = asyncio.create_task(_collect(worker, patient=ended is not None))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            if ended is None:  # after a last message there is no need to wait for the exit
                code = await leaving
            self._slots.job_ended(running.number)
            await self._handler.worker_exited(job)
        if ended is None:
            self._tried = False  # the next worker removes what this one has left behind
            ended = self._died(folder, code, running, late=late)
        return job, ended

    async def _talk(
        self, worker: SolverProcess, job: SolveJob, running: _RunningJob
    ) -> AttemptEnded | None:
        """Send the job and answer reports. Return the last message, None if there was none."""
        worker.send(encode_line(job.model_copy(update={"sandbox_tried": self._tried})))
        while line := await worker.read():
            report = _parse(line)
            if report is None or isinstance(report, AttemptEnded):
                return report
            if isinstance(report, SlotRequest):
                self._slots.request(running.number, partial(self._give_slot, running))
                self._adjust_clock(running)
            elif isinstance(report, SlotReleased):
                self._slots.release(running.number)
                self._adjust_clock(running)
            elif answer := await self._answer(worker, job, report):
                worker.send(encode_line(answer))
            if isinstance(report, StageDone):  # the first stage comes after the sandbox was checked
                self._tried = True
        return None

    def _give_slot(self, running: _RunningJob, slot: int) -> None:
        assert running.worker is not None
        running.worker.send(encode_line(SlotGranted()))
        self._adjust_clock(running)
        loop = asyncio.get_running_loop()
        loop.call_later(self._slot_seconds, self._slots.expire, running.number, slot)

    def _adjust_clock(self, running: _RunningJob) -> None:
        """Stop the clock of a job while it only waits for a slot, and restart it after that."""
        now, end = asyncio.get_running_loop().time(), running.limit.when()
        if self._slots.stalled(running.number):
            if end is not None and not running.limit.expired():
                running.left = end - now
                running.limit.reschedule(None)
        elif running.left is not None:
            running.limit.reschedule(now + running.left)
            running.left = None

    async def _answer(
        self, worker: SolverProcess, job: SolveJob, report: WorkerReport
    ) -> Answer | None:
        """Return the handler's answer, None if the worker exits while it waits for one."""
        hearing = asyncio.create_task(self._handler.handle(job, report))
        leaving = asyncio.create_task(worker.wait())
        try:
            await asyncio.wait({hearing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done() and isinstance(report, Pace | Ask):
                return None
            return await hearing
        finally:
            leaving.cancel()
            hearing.cancel()

    def _died(
        self, folder: Path, code: int | None, running: _RunningJob, *, late: bool
    ) -> AttemptEnded:
        if running.stopping:
            return AttemptEnded(status=Status.INTERRUPTED, blame="stopped", message="stopped")
        if late:
            reason = f"took longer than {self._seconds:g} s and was ended"
        elif code is None:
            reason = f"the worker has died: {files.last_log_line(folder)}"
        elif code < 0:
            memory = " (out of memory?)" if code == -signal.SIGKILL else ""
            reason = f"the worker was killed by {signal.Signals(-code).name}{memory}"
        else:
            reason = f"the worker ended with exit code {code}: {files.last_log_line(folder)}"
        return AttemptEnded(status=Status.CRASHED, blame="crash", message=reason)


def _parse(line: bytes) -> WorkerReport | None:
    try:
        return REPORTS.validate_json(line)
    except ValidationError:
        return None  # cut off in the middle: the worker is as good as dead


async def _collect(worker: SolverProcess, *, patient: bool) -> int | None:
    """Wait for the end of a worker and of all it started. Return its exit code."""
    waiting = asyncio.ensure_future(worker.wait())
    if patient:
        await asyncio.wait([waiting], timeout=_GOODBYE_SECONDS)
    if not waiting.done():
        worker.kill()
    code = await waiting
    worker.hang_up()
    return code


def _kill(running: _RunningJob) -> None:
    if running.worker is not None:
        running.worker.kill()
