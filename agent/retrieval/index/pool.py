"""Cuts and encodes groups of files, in this process or in worker processes on all cores.

A worker is this module as a program. A request is two frames (`agent.shared.workers`): a JSON array
of `[language, bytes of the text]`, and the texts (UTF-8 with lone surrogates allowed). The answer
is the encoded block of these files. `--static PATH` names the encoder of the pieces.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from agent.retrieval.index.contents import BlockBuilder, PieceEncoder
from agent.retrieval.index.corpus import encode
from agent.shared.workers import (
    Cancelled,
    WorkerFailed,
    WorkerPool,
    WorkerProcess,
    read_frame,
    write_frame,
)

_JOB_SECONDS = 120.0  # a job that takes several hundred times longer than usual hangs
_POLL_SECONDS = 0.01  # delay until a set `cancel` is noticed
_AHEAD = 3  # jobs that may wait per worker: limits memory, keeps workers busy

Job = Sequence[tuple[str, str]]
"""The files of one block, each a language and a text."""


def build_here(
    jobs: Iterable[Job], cancel: threading.Event, encoder: PieceEncoder | None = None
) -> Generator[bytes, None, None]:
    """Build encoded blocks in this process, one job after another. Raises Cancelled."""
    builder = BlockBuilder(encoder)
    for job in jobs:
        if cancel.is_set():
            raise Cancelled
        yield encode(builder.build(job))


def build_in_workers(
    jobs: Iterable[Job], cancel: threading.Event, count: int, encoder: PieceEncoder | None = None
) -> Generator[bytes, None, None]:
    """Build in `count` processes and yield results in the order of `jobs`.

    If a worker fails on a job, this process does it; if no worker can be started, it does all.
    Raises Cancelled. All workers have ended when the iteration ends, also by an exception.
    """
    workers = _start(count, encoder)
    if not workers:
        yield from build_here(jobs, cancel, encoder)
        return
    waiting: deque[tuple[Job, Future[bytes | None]]] = deque()
    with WorkerPool(workers, "index") as pool:
        for job in jobs:
            waiting.append((job, pool.submit(partial(_Worker.build, job=job))))
            if len(waiting) >= len(workers) * _AHEAD:
                yield from _result(*waiting.popleft(), cancel, encoder)
        while waiting:
            yield from _result(*waiting.popleft(), cancel, encoder)


def _result(
    job: Job,
    future: Future[bytes | None],
    cancel: threading.Event,
    encoder: PieceEncoder | None,
) -> Iterator[bytes]:
    while not future.done():
        if cancel.wait(_POLL_SECONDS):
            break
    if cancel.is_set():
        raise Cancelled
    block = future.result()
    if block is None:
        yield from build_here([job], cancel, encoder)
    else:
        yield block


@dataclass(slots=True)
class _Worker:
    process: WorkerProcess
    broken: bool = False

    def build(self, job: Job) -> bytes | None:
        """Return the block of a job; None from the first failure on."""
        if self.broken:
            return None
        try:
            return self.process.ask(request_frames(job), _JOB_SECONDS)
        except WorkerFailed:
            self.broken = True
            return None

    def stop(self) -> None:
        self.process.stop()


def _start(count: int, encoder: PieceEncoder | None) -> list[_Worker]:
    model = () if encoder is None else ("--static", str(encoder.path.resolve()))
    variables = ("PATH", "LD_LIBRARY_PATH")
    workers: list[_Worker] = []
    for _ in range(count):
        try:
            process = WorkerProcess(
                "agent.retrieval.index.pool",
                *model,
                environment={name: os.environ[name] for name in variables if name in os.environ},
                folder="/",
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            break  # process limit, no memory, no /dev/null: fewer workers, or none
        workers.append(_Worker(process))
    return workers


# ---------------------------------------------------------------------------------------- a worker


def request_frames(job: Job) -> tuple[bytes, bytes]:
    """Return the two frames that request the block of these files."""
    texts = [text.encode("utf-8", "surrogatepass") for _, text in job]
    sizes = [(language, len(text)) for (language, _), text in zip(job, texts, strict=True)]
    return json.dumps(sizes).encode(), b"".join(texts)


def _read_request(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """Read a request. Raises EOFError at the end of the stream."""
    sizes = json.loads(read_frame(stream))
    texts, start = read_frame(stream), 0
    for language, size in sizes:
        yield language, texts[start : start + size].decode("utf-8", "surrogatepass")
        start += size


def serve(source: BinaryIO, sink: BinaryIO, encoder: PieceEncoder | None = None) -> None:
    """Answer requests until the source ends."""
    builder = BlockBuilder(encoder)
    while True:
        try:
            request = list(_read_request(source))
        except EOFError:
            return
        write_frame(sink, encode(builder.build(request)))
        sink.flush()


def main() -> None:
    """Serve on the standard streams."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--static", type=Path)
    path = parser.parse_args().static
    encoder: PieceEncoder | None = None
    if path is not None:
        # The layer above: a worker loads it by name, and only if it needs it.
        encoder = importlib.import_module("agent.retrieval.embedding.static").read_static(path)
        if encoder is None:
            raise ValueError(f"{path}: not a static encoder")
    serve(sys.stdin.buffer, sys.stdout.buffer, encoder)


if __name__ == "__main__":
    main()
