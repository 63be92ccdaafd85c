"""The engine of one machine: a process an instance, waited for without threads."""

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

from agent.batch import folder as files
from agent.batch.child import Child, Spawner
from agent.batch.engine import Broker
from agent.batch.hatchery import Hatchery
from agent.batch.messages import (
    REPORTS,
    Answer,
    Ask,
    Ended,
    Job,
    Pace,
    Report,
    StageDone,
    Turn,
    TurnOver,
    YourTurn,
    line_of,
)
from agent.batch.turns import Turns
from agent.errors import Status

STOP_SECONDS = 15.0
"""A worker that is asked to stop removes its private copies and writes its result."""

TURN_SECONDS = 900.0
"""Where no limit of test runs is known."""

_GOODBYE_SECONDS = 10.0  # between a worker's last word and its end


@dataclass(slots=True)
class _Running:
    """A job under way, by its number. `stopping`: it was asked to stop.

    `limit` ends it. Time in which it waits for its turn does not count: `left` is then what remains
    of the limit, in seconds.
    """

    number: int
    limit: asyncio.Timeout
    left: float | None = None
    child: Child | None = None
    stopping: bool = False


_Task = asyncio.Task[tuple[Job, Ended]]


class LocalEngine:
    """An `agent.batch.engine.Engine`. `job_seconds`: what takes longer hangs and is ended.

    `stop_seconds` is what a worker that is asked to stop may take. Tests of all jobs together run
    on so many `cores` (None: those of this machine). A turn that is held for more than
    `turn_seconds` is another's: who holds it hangs.
    """

    def __init__(
        self,
        broker: Broker,
        job_seconds: float,
        spawner: Spawner | None = None,
        *,
        stop_seconds: float = STOP_SECONDS,
        cores: int | None = None,
        turn_seconds: float = TURN_SECONDS,
    ) -> None:
        self._broker = broker
        self._seconds = job_seconds
        self._spawner = spawner or Hatchery()
        self._stop_seconds = stop_seconds
        self._running: dict[_Task, _Running] = {}
        self._ended: asyncio.Queue[_Task] = asyncio.Queue()
        self._leaving: set[asyncio.Task[int | None]] = set()
        self._turn_seconds = turn_seconds
        self._turns = Turns(cores or len(os.sched_getaffinity(0)))
        self._numbers = itertools.count()
        self._tried = False  # the sandbox, by a worker, and none has died since

    def submit(self, job: Job) -> None:
        """Start a worker for the job."""
        self._begin(job).add_done_callback(self._ended.put_nowait)

    async def attempt(self, job: Job) -> Ended:
        """Run one job to its end, beside those that were submitted; it is in no `as_completed`."""
        task = self._begin(job)
        try:
            return (await asyncio.shield(task))[1]
        finally:
            if task.done():
                del self._running[task]

    async def as_completed(self) -> AsyncGenerator[tuple[Job, Ended], None]:
        """Jobs as they end; see `agent.batch.engine.Engine`."""
        try:
            while self._running:
                task = await self._ended.get()
                del self._running[task]
                yield task.result()
        finally:
            await self.close()

    async def cancel(self) -> None:
        """Ask all workers to stop; kill those that have not after a while."""
        stopped = list(self._running.items())
        for _, running in stopped:
            running.stopping = True
            if running.child is not None:
                running.child.terminate()
        if stopped:
            await asyncio.wait([task for task, _ in stopped], timeout=self._stop_seconds)
        for task, running in stopped:
            if not task.done():
                _kill(running)

    async def close(self) -> None:
        """Let workers keep what they are paying for, as when the driver is killed; then kill."""
        for running in self._running.values():
            if running.child is not None:
                running.child.hang_up()
        if self._running:
            await asyncio.wait(self._running, timeout=self._stop_seconds)
        for running in self._running.values():
            _kill(running)
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*self._leaving)
        await self._spawner.close()

    def _begin(self, job: Job) -> _Task:
        running = _Running(next(self._numbers), asyncio.timeout(None))
        task = asyncio.create_task(self._run(job, running))
        self._running[task] = running
        return task

    async def _run(self, job: Job, running: _Running) -> tuple[Job, Ended]:
        folder = Path(job.folder)
        child = running.child = await self._spawner.start(folder)
        if running.stopping:
            _kill(running)
        late, code = False, None
        ended: Ended | None = None
        try:
            async with running.limit:
                running.limit.reschedule(asyncio.get_running_loop().time() + self._seconds)
                ended = await self._talk(child, job, running)
        except TimeoutError:
            late = True
        finally:
            leaving = asyncio.create_task(_collect(child, patient=ended is not None))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            if ended is None:  # else nobody has to wait for a process to end
                code = await leaving
            self._turns.gone(running.number)
            await self._broker.gone(job)
        if ended is None:
            self._tried = False  # the next one removes what this one has left behind
            ended = self._died(folder, code, running, late=late)
        return job, ended

    async def _talk(self, child: Child, job: Job, running: _Running) -> Ended | None:
        """Hand over the job, answer until the last word; None where there was none."""
        child.send(line_of(job.model_copy(update={"sandbox_tried": self._tried})))
        while line := await child.read():
            report = _parse(line)
            if report is None or isinstance(report, Ended):
                return report
            if isinstance(report, Turn):
                self._turns.want(running.number, partial(self._give_turn, running))
                self._count(running)
            elif isinstance(report, TurnOver):
                self._turns.over(running.number)
                self._count(running)
            elif answer := await self._answer(child, job, report):
                child.send(line_of(answer))
            if isinstance(report, StageDone):  # whatever comes first: it has made its parts
                self._tried = True
        return None

    def _give_turn(self, running: _Running, turn: int) -> None:
        assert running.child is not None
        running.child.send(line_of(YourTurn()))
        self._count(running)
        loop = asyncio.get_running_loop()
        loop.call_later(self._turn_seconds, self._turns.expire, running.number, turn)

    def _count(self, running: _Running) -> None:
        """Let the time of a job go on, or stand still while it waits for its turn."""
        now, end = asyncio.get_running_loop().time(), running.limit.when()
        if self._turns.stalled(running.number):
            if end is not None and not running.limit.expired():
                running.left = end - now
                running.limit.reschedule(None)
        elif running.left is not None:
            running.limit.reschedule(now + running.left)
            running.left = None

    async def _answer(self, child: Child, job: Job, report: Report) -> Answer | None:
        """The broker's answer; none is waited for on behalf of a worker that has gone."""
        hearing = asyncio.create_task(self._broker.hear(job, report))
        leaving = asyncio.create_task(child.wait())
        try:
            await asyncio.wait({hearing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done() and isinstance(report, Pace | Ask):
                return None
            return await hearing
        finally:
            leaving.cancel()
            hearing.cancel()

    def _died(self, folder: Path, code: int | None, running: _Running, *, late: bool) -> Ended:
        if running.stopping:
            return Ended(status=Status.INTERRUPTED, blame="stopped", message="stopped")
        if late:
            reason = f"took longer than {self._seconds:g} s and was ended"
        elif code is None:
            reason = f"the worker has died: {files.last_words(folder)}"
        elif code < 0:
            memory = " (out of memory?)" if code == -signal.SIGKILL else ""
            reason = f"the worker was killed by {signal.Signals(-code).name}{memory}"
        else:
            reason = f"the worker ended with exit code {code}: {files.last_words(folder)}"
        return Ended(status=Status.CRASHED, blame="crash", message=reason)


def _parse(line: bytes) -> Report | None:
    try:
        return REPORTS.validate_json(line)
    except ValidationError:
        return None  # cut off in the middle, or no worker of ours: as good as dead


async def _collect(child: Child, *, patient: bool) -> int | None:
    """The process is gone on return, and with it whatever it has started; its exit code."""
    waiting = asyncio.ensure_future(child.wait())
    if patient:
        await asyncio.wait([waiting], timeout=_GOODBYE_SECONDS)
    if not waiting.done():
        child.kill()
    code = await waiting
    child.hang_up()
    return code


def _kill(running: _Running) -> None:
    if running.child is not None:
        running.child.kill()
