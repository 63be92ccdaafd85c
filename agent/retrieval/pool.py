"""Chunking many files on all cores.

Own worker processes instead of `multiprocessing`: forking a process with threads can deadlock, and
spawning runs the caller's main module again, which a script that calls `agent_main` at its top
level does not survive.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from agent.retrieval.blocks import encode
from agent.retrieval.records import PieceEncoder, RecordBuilder
from agent.retrieval.worker import read_frame, write_request

_JOB_SECONDS = 120.0  # one that takes several hundred times longer than the usual hangs
_POLL_SECONDS = 0.01  # how soon a wish to stop is noticed
_AHEAD = 3  # jobs a worker that may wait: bounds memory, keeps workers busy


@dataclass(frozen=True, slots=True)
class Job:
    """Files to build a block of, each a language and a text. `number` is the caller's."""

    number: int
    files: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Built:
    """The encoded block of job `number`."""

    number: int
    block: bytes


class Cancelled(Exception):
    """The work was given up because `cancel` was set."""


def build_here(
    jobs: Iterable[Job], cancel: threading.Event, encoder: PieceEncoder | None = None
) -> Generator[Built, None, None]:
    """Build in this process, one after another. Raises Cancelled."""
    builder = RecordBuilder(encoder)
    for job in jobs:
        if cancel.is_set():
            raise Cancelled
        yield Built(job.number, encode(builder.build(job.files)))


def build_in_workers(
    jobs: Iterable[Job],
    cancel: threading.Event,
    count: int,
    encoder: PieceEncoder | None = None,
) -> Generator[Built, None, None]:
    """Build in `count` processes, results in the order of `jobs`.

    What a worker fails to do is done here; when none can be started, everything is. Raises
    Cancelled. No worker outlives the iteration, however it ends.
    """
    workers = _start(count, encoder)
    if not workers:
        yield from build_here(jobs, cancel, encoder)
        return
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)
    executor = ThreadPoolExecutor(len(workers), thread_name_prefix="index")
    try:
        waiting = _Waiting(executor, idle, cancel, encoder)
        yield from waiting.in_order(jobs, len(workers) * _AHEAD)
    finally:
        for worker in workers:
            worker.stop()  # first: it ends the reads that the executor's threads wait in
        executor.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Jobs on their way, answered in the order in which they were sent."""

    executor: ThreadPoolExecutor
    idle: queue.SimpleQueue[_Worker]
    cancel: threading.Event
    encoder: PieceEncoder | None

    def in_order(self, jobs: Iterable[Job], ahead: int) -> Iterator[Built]:
        waiting: deque[tuple[Job, Future[bytes | None]]] = deque()
        for job in jobs:
            waiting.append((job, self.executor.submit(self._ask, job)))
            if len(waiting) >= ahead:
                yield from self._result(*waiting.popleft())
        while waiting:
            yield from self._result(*waiting.popleft())

    def _result(self, job: Job, future: Future[bytes | None]) -> Iterator[Built]:
        while not future.done():
            if self.cancel.wait(_POLL_SECONDS):
                raise Cancelled
        if self.cancel.is_set():
            raise Cancelled
        block = future.result()
        if block is None:
            yield from build_here([job], self.cancel, self.encoder)
        else:
            yield Built(job.number, block)

    def _ask(self, job: Job) -> bytes | None:
        """The job's block from a free worker; None when that worker failed."""
        worker = self.idle.get()
        try:
            return worker.build(job)
        finally:
            self.idle.put(worker)


def _start(count: int, encoder: PieceEncoder | None) -> list[_Worker]:
    workers: list[_Worker] = []
    for _ in range(count):
        try:
            workers.append(_Worker(_spawn(encoder)))
        except OSError:
            break  # process limit, no memory, no /dev/null: fewer workers, or none
    return workers


def _spawn(encoder: PieceEncoder | None) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise OSError("no interpreter")
    model = () if encoder is None else ("--static", str(encoder.path.resolve()))
    # -P and the root as working directory: nothing of an untrusted folder is ever imported.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "agent.retrieval.worker", *model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(),
        start_new_session=True,  # Ctrl-C reaches the parent only, which then stops its workers
    )


def _environment() -> dict[str, str]:
    here = str(Path(__file__).resolve().parents[2])
    entries = [here, *(entry for entry in sys.path if Path(entry).is_absolute())]
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(entries))}


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    broken: bool = field(default=False)

    def build(self, job: Job) -> bytes | None:
        """The block of a job, or None from the first failure on."""
        if self.broken:
            return None
        source, sink = self.process.stdout, self.process.stdin
        assert source is not None
        assert sink is not None
        timer = threading.Timer(_JOB_SECONDS, self.process.kill)
        timer.daemon = True
        timer.start()
        try:
            write_request(sink, job.files)  # type: ignore[arg-type]
            return read_frame(source)  # type: ignore[arg-type]
        except (OSError, EOFError, ValueError):
            self.broken = True
            return None
        finally:
            timer.cancel()

    def stop(self) -> None:
        """Kill and collect the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except (OSError, ValueError):
                pass  # unsent bytes of a killed worker
