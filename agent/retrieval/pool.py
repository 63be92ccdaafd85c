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

_BATCH_CHARS = 400_000  # of a request: about 0.1 s of work
_BATCH_SECONDS = 120.0  # a batch that takes a thousand times longer hangs
_POLL_SECONDS = 0.01  # how soon a wish to stop is noticed
_AHEAD = 3  # batches a worker that may wait: bounds memory, keeps workers busy


@dataclass(frozen=True, slots=True)
class Job:
    """One file to build a record of. `number` is the caller's."""

    number: int
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Built:
    """The encoded record of job `number`."""

    number: int
    record: bytes


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
        yield Built(job.number, encode(builder.build(job.text, job.language), deflate=True))


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
        yield from waiting.in_order(_batches(jobs), len(workers) * _AHEAD)
    finally:
        for worker in workers:
            worker.stop()  # first: it ends the reads that the executor's threads wait in
        executor.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Batches on their way, answered in the order in which they were sent."""

    executor: ThreadPoolExecutor
    idle: queue.SimpleQueue[_Worker]
    cancel: threading.Event
    encoder: PieceEncoder | None

    def in_order(self, batches: Iterator[list[Job]], ahead: int) -> Iterator[Built]:
        waiting: deque[tuple[list[Job], Future[list[bytes] | None]]] = deque()
        for batch in batches:
            waiting.append((batch, self.executor.submit(self._ask, batch)))
            if len(waiting) >= ahead:
                yield from self._result(*waiting.popleft())
        while waiting:
            yield from self._result(*waiting.popleft())

    def _result(self, batch: list[Job], future: Future[list[bytes] | None]) -> Iterator[Built]:
        while not future.done():
            if self.cancel.wait(_POLL_SECONDS):
                raise Cancelled
        if self.cancel.is_set():
            raise Cancelled
        records = future.result()
        if records is None:
            yield from build_here(batch, self.cancel, self.encoder)
            return
        yield from (Built(job.number, record) for job, record in zip(batch, records, strict=True))

    def _ask(self, batch: Sequence[Job]) -> list[bytes] | None:
        """The batch's records from a free worker; None when that worker failed."""
        worker = self.idle.get()
        try:
            return worker.build(batch)
        finally:
            self.idle.put(worker)


def _batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    batch: list[Job] = []
    size = 0
    for job in jobs:
        batch.append(job)
        size += len(job.text)
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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

    def build(self, batch: Sequence[Job]) -> list[bytes] | None:
        """The records of a batch, or None from the first failure on."""
        if self.broken:
            return None
        source, sink = self.process.stdout, self.process.stdin
        assert source is not None
        assert sink is not None
        timer = threading.Timer(_BATCH_SECONDS, self.process.kill)
        timer.daemon = True
        timer.start()
        try:
            write_request(sink, [(job.language, job.text) for job in batch])  # type: ignore[arg-type]
            return [read_frame(source) for _ in batch]  # type: ignore[arg-type]
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
