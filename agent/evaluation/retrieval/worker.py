"""The worker process of `pool`: read jobs, write replies, and exit when the input ends.

Requests and answers are frames of JSON (`agent.shared.workers`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

from agent.errors import PatchshotError
from agent.evaluation.retrieval.pool import MeasureJob, MeasureReply, WorkerStart
from agent.shared.workers import read_frame, write_frame
from agent.types.events import Event, Notice

if TYPE_CHECKING:
    from agent.settings import Settings


class _Notices:
    """A reporter that collects notices for the next reply."""

    def __init__(self) -> None:
        self._kept: list[str] = []

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, Notice):
            self._kept.append(event.message)

    def take(self) -> tuple[str, ...]:
        kept, self._kept = tuple(dict.fromkeys(self._kept)), []
        return kept


async def serve(start: WorkerStart, source: BinaryIO, sink: BinaryIO) -> None:
    """Send an empty reply when ready, then answer jobs until the source ends."""
    from agent.evaluation.retrieval.measure import open_measurer

    notices = _Notices()
    async with open_measurer(_settings(start), start.budgets, notices) as measurer:
        _answer(sink, MeasureReply())
        while True:
            try:
                job = MeasureJob.model_validate_json(read_frame(source))
            except EOFError:
                return
            reply = await measurer.measure(job)
            _answer(sink, reply.model_copy(update={"notices": notices.take()}))


def _settings(start: WorkerStart) -> dict[str, Settings]:
    from agent.settings import load

    return {preset: load({**start.flags, "preset": preset}) for preset in start.presets}


def _answer(sink: BinaryIO, reply: MeasureReply) -> None:
    write_frame(sink, reply.model_dump_json().encode())
    sink.flush()


def share_of_cores(cores: list[int], number: int, workers: int) -> set[int]:
    """Return the cores of worker `number` of `workers`: disjoint shares, or one if too few."""
    if workers > len(cores):
        return {cores[number % len(cores)]}
    return set(cores[number * len(cores) // workers : (number + 1) * len(cores) // workers])


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)  # an orderly exit, which removes temporary folders


def main() -> None:
    """Serve standard input and output."""
    signal.signal(signal.SIGTERM, _end)
    source = sys.stdin.buffer
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not become a frame
    try:
        _work(source, sink)
    except (BrokenPipeError, EOFError):  # the parent is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())


def _work(source: BinaryIO, sink: BinaryIO) -> None:
    start = WorkerStart.model_validate_json(read_frame(source))
    # Libraries take as many threads as they see cores: each worker sees its share.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, share_of_cores(cores, start.number, start.workers))
    try:
        asyncio.run(serve(start, source, sink))
    except PatchshotError as error:
        _answer(sink, MeasureReply(fatal=str(error)))


if __name__ == "__main__":
    main()
