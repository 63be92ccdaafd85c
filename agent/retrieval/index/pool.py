"""Cuts and encodes groups of files, in this process or in worker processes on all cores.

A worker is this module as a program. A request is one frame (`agent.shared.workers`): a JSON array
of `[language, text]`. The answer is the encoded block of these files. `--static PATH` names the
encoder of the pieces.
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
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
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
    waiting: deque[tuple[Job, Future[bytes]]] = deque()
    with WorkerPool(workers, "index") as pool:
        for job in jobs:
            ask = partial(
                WorkerProcess.ask, frames=[json.dumps(job).encode()], seconds=_JOB_SECONDS
            )
            waiting.append((job, pool.submit(ask)))
            if len(waiting) >= len(workers) * _AHEAD:
                yield _result(*waiting.popleft(), cancel, encoder)
        while waiting:
            yield _result(*waiting.popleft(), cancel, encoder)


def _result(
    job: Job, future: Future[bytes], cancel: threading.Event, encoder: PieceEncoder | None
) -> bytes:
    while not future.done() and not cancel.wait(_POLL_SECONDS):
        pass
    if cancel.is_set():
        raise Cancelled
    try:
        return future.result()
    except WorkerFailed:
        return encode(BlockBuilder(encoder).build(job))


def _start(count: int, encoder: PieceEncoder | None) -> list[WorkerProcess]:
    model = () if encoder is None else ("--static", str(encoder.path.resolve()))
    names = ("PATH", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    workers: list[WorkerProcess] = []
    for _ in range(count):
        try:
            worker = WorkerProcess(
                "agent.retrieval.index.pool",
                *model,
                environment=environment,
                folder="/",
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            break  # process limit, no memory, no /dev/null: fewer workers, or none
        workers.append(worker)
    return workers


# ---------------------------------------------------------------------------------------- a worker


def serve(source: BinaryIO, sink: BinaryIO, encoder: PieceEncoder | None = None) -> None:
    """Answer requests until the source ends."""
    builder = BlockBuilder(encoder)
    while True:
        try:
            request = json.loads(read_frame(source))
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
