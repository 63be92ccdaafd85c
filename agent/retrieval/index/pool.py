"""Cuts and encodes many files, in this process or in worker processes on all cores."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from agent.retrieval.index.blocks import encode
from agent.retrieval.index.records import PieceEncoder, RecordBuilder
from agent.retrieval.index.worker import request_frames
from agent.shared.threads import Cancelled
from agent.shared.workers import WorkerFailed, WorkerPool, WorkerProcess

_JOB_SECONDS = 120.0  # a job that takes several hundred times longer than usual hangs
_POLL_SECONDS = 0.01  # delay until a set `cancel` is noticed
_AHEAD = 3  # jobs that may wait per worker: limits memory, keeps workers busy


@dataclass(frozen=True, slots=True)
class BuildJob:
    """The files of one block, each a language and a text. The caller chooses `number`."""

    number: int
    files: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class BuiltBlock:
    """The encoded block of job `number`."""

    number: int
    block: bytes


def build_here(
    jobs: Iterable[BuildJob], cancel: threading.Event, encoder: PieceEncoder | None = None
) -> Generator[BuiltBlock, None, None]:
    """Build in this process, one job after another. Raises Cancelled."""
    builder = RecordBuilder(encoder)
    for job in jobs:
        if cancel.is_set():
            raise Cancelled
        yield BuiltBlock(job.number, encode(builder.build(job.files)))


def build_in_workers(
    jobs: Iterable[BuildJob],
    cancel: threading.Event,
    count: int,
    encoder: PieceEncoder | None = None,
) -> Generator[BuiltBlock, None, None]:
    """Build in `count` processes and yield results in the order of `jobs`.

    If a worker fails on a job, this process does it; if no worker can be started, it does all.
    Raises Cancelled. All workers have ended when the iteration ends, also by an exception.
    """
    workers = _start(count, encoder)
    if not workers:
        yield from build_here(jobs, cancel, encoder)
        return
    with WorkerPool(workers, "index") as pool:
        yield from _Waiting(pool, cancel, encoder).in_order(jobs, len(workers) * _AHEAD)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Jobs that were sent, answered in the order in which they were sent."""

    pool: WorkerPool[_Worker]
    cancel: threading.Event
    encoder: PieceEncoder | None

    def in_order(self, jobs: Iterable[BuildJob], ahead: int) -> Iterator[BuiltBlock]:
        waiting: deque[tuple[BuildJob, Future[bytes | None]]] = deque()
        for job in jobs:
            waiting.append((job, self.pool.submit(partial(_Worker.build, job=job))))
            if len(waiting) >= ahead:
                yield from self._result(*waiting.popleft())
        while waiting:
            yield from self._result(*waiting.popleft())

    def _result(self, job: BuildJob, future: Future[bytes | None]) -> Iterator[BuiltBlock]:
        while not future.done():
            if self.cancel.wait(_POLL_SECONDS):
                raise Cancelled
        if self.cancel.is_set():
            raise Cancelled
        block = future.result()
        if block is None:
            yield from build_here([job], self.cancel, self.encoder)
        else:
            yield BuiltBlock(job.number, block)


def _start(count: int, encoder: PieceEncoder | None) -> list[_Worker]:
    workers: list[_Worker] = []
    for _ in range(count):
        try:
            workers.append(_Worker(_start_process(encoder)))
        except OSError:
            break  # process limit, no memory, no /dev/null: fewer workers, or none
    return workers


def _start_process(encoder: PieceEncoder | None) -> WorkerProcess:
    model = () if encoder is None else ("--static", str(encoder.path.resolve()))
    kept = ("PATH", "LD_LIBRARY_PATH")
    return WorkerProcess(
        "agent.retrieval.index.worker",
        *model,
        environment={name: os.environ[name] for name in kept if name in os.environ},
        folder="/",
        stderr=subprocess.DEVNULL,
    )


@dataclass(slots=True)
class _Worker:
    process: WorkerProcess
    broken: bool = False

    def build(self, job: BuildJob) -> bytes | None:
        """Return the block of a job; None from the first failure on."""
        if self.broken:
            return None
        try:
            return self.process.ask(request_frames(job.files), _JOB_SECONDS)
        except WorkerFailed:
            self.broken = True
            return None

    def stop(self) -> None:
        self.process.stop()
