"""The engine of one machine: a process an instance, waited for without threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from agent.batch import folder as files
from agent.batch.engine import Broker
from agent.batch.messages import REPORTS, Answer, Ask, Ended, Job, Pace, Report, line_of
from agent.errors import Status

STOP_SECONDS = 15.0
"""A worker that is asked to stop removes its private copies and writes its result."""

_LONGEST_LINE = 64 * 1024 * 1024  # of one report: `OnTape` names every reply
_GOODBYE_SECONDS = 10.0  # between a worker's last word and its end


@dataclass(slots=True)
class _Running:
    """A job under way. `stopping`: it was asked to stop."""

    process: asyncio.subprocess.Process | None = None
    stopping: bool = False


_Task = asyncio.Task[tuple[Job, Ended]]


# -P: nothing of the current folder is imported; it stays the working directory, because paths and
# the configuration file are relative to it.
WORKER = (sys.executable, "-P", "-m", "agent.batch.worker")


class LocalEngine:
    """An `agent.batch.engine.Engine`. `job_seconds`: what takes longer hangs and is ended.

    `worker` is the command that is started for each job, `stop_seconds` what one that is asked to
    stop may take. While workers wait for their model, the next ones are started, at most one a
    core: they take a second to get ready.
    """

    def __init__(
        self,
        broker: Broker,
        job_seconds: float,
        worker: Sequence[str] = WORKER,
        *,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._broker = broker
        self._seconds = job_seconds
        self._worker = tuple(worker)
        self._stop_seconds = stop_seconds
        self._running: dict[_Task, _Running] = {}
        self._ended: asyncio.Queue[_Task] = asyncio.Queue()
        self._spares: deque[asyncio.Task[asyncio.subprocess.Process]] = deque()
        self._most_spares = len(os.sched_getaffinity(0))
        self._leaving: set[asyncio.Task[None]] = set()

    def submit(self, job: Job) -> None:
        """Start a worker for the job."""
        running = _Running()
        task = asyncio.create_task(self._run(job, running))
        self._running[task] = running
        task.add_done_callback(self._ended.put_nowait)

    async def as_completed(self) -> AsyncGenerator[tuple[Job, Ended], None]:
        """Jobs as they end; see `agent.batch.engine.Engine`."""
        try:
            while self._running:
                task = await self._ended.get()
                del self._running[task]
                yield task.result()
        finally:
            await self._leave_alone()

    async def cancel(self) -> None:
        """Ask all workers to stop; kill those that have not after a while."""
        stopped = list(self._running.items())
        for _, running in stopped:
            running.stopping = True
            if running.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    running.process.send_signal(signal.SIGTERM)
        if stopped:
            await asyncio.wait([task for task, _ in stopped], timeout=self._stop_seconds)
        for task, running in stopped:
            if not task.done():
                _kill(running)

    async def _leave_alone(self) -> None:
        """Let workers keep what they are paying for, as when the driver is killed; then kill."""
        for starting in self._spares:
            spare = await starting
            _hang_up(spare)
            await _collect(spare, patient=True)
        for running in self._running.values():
            if running.process is not None:
                _hang_up(running.process)
        if self._running:
            await asyncio.wait(self._running, timeout=self._stop_seconds)
        for running in self._running.values():
            _kill(running)
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*self._leaving)

    async def _run(self, job: Job, running: _Running) -> tuple[Job, Ended]:
        folder = Path(job.folder)
        process = running.process = await self._process(folder)
        if running.stopping:
            _kill(running)
        late = False
        ended: Ended | None = None
        try:
            async with asyncio.timeout(self._seconds):
                ended = await self._talk(process, job)
        except TimeoutError:
            late = True
        finally:
            leaving = asyncio.create_task(_collect(process, patient=ended is not None))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            if ended is None:  # else nobody has to wait for an interpreter to end
                await leaving
            await self._broker.gone(job)
        if ended is None:
            ended = self._died(folder, process.returncode or 0, running, late=late)
        return job, ended

    async def _process(self, folder: Path) -> asyncio.subprocess.Process:
        """A spare worker where there is one, else a new one."""
        while self._spares:
            process = await self._spares.popleft()
            if process.returncode is None:
                return process
        return await _spawn(self._worker, folder)

    async def _talk(self, process: asyncio.subprocess.Process, job: Job) -> Ended | None:
        """Hand over the job, answer until the last word; None where there was none."""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(line_of(job))
            await process.stdin.drain()
            while line := await process.stdout.readline():
                report = _parse(line)
                if report is None or isinstance(report, Ended):
                    return report
                answer = await self._answer(process, job, report)
                if answer is not None:
                    process.stdin.write(line_of(answer))
                    await process.stdin.drain()
        return None

    async def _answer(
        self, process: asyncio.subprocess.Process, job: Job, report: Report
    ) -> Answer | None:
        """The broker's answer; none is waited for on behalf of a worker that has gone."""
        if isinstance(report, Ask) and len(self._spares) < self._most_spares:
            self._spares.append(asyncio.create_task(_spawn(self._worker)))
        hearing = asyncio.create_task(self._broker.hear(job, report))
        leaving = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({hearing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done() and isinstance(report, Pace | Ask):
                return None
            return await hearing
        finally:
            leaving.cancel()
            hearing.cancel()

    def _died(self, folder: Path, code: int, running: _Running, *, late: bool) -> Ended:
        if running.stopping:
            return Ended(status=Status.INTERRUPTED, blame="stopped", message="stopped")
        if late:
            reason = f"took longer than {self._seconds:g} s and was ended"
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


def _open_log(folder: Path | None) -> BinaryIO:
    """The log of an instance; none for a worker that has none yet, and that opens it itself."""
    if folder is None:
        return Path(os.devnull).open("ab")
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / files.LOG).open("ab")


async def _spawn(command: Sequence[str], folder: Path | None = None) -> asyncio.subprocess.Process:
    with _open_log(folder) as log:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=_LONGEST_LINE,
            env={**os.environ, "PYTHONPATH": _import_path()},  # the user's own: keys are there
            start_new_session=True,  # Ctrl-C reaches the driver only, which then decides
        )


def _import_path() -> str:
    here = str(Path(__file__).resolve().parents[2])
    entries = [here, *(entry for entry in sys.path if Path(entry).is_absolute())]
    return os.pathsep.join(dict.fromkeys(entries))


async def _collect(process: asyncio.subprocess.Process, *, patient: bool) -> None:
    """The process is gone on return, and with it whatever it has started."""
    if patient:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GOODBYE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the session it leads, and no other
    await process.wait()
    _hang_up(process)


def _hang_up(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _kill(running: _Running) -> None:
    if running.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
