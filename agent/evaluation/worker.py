"""A worker process of `agent.evaluation.pool`: reads jobs, writes replies, ends with its input.

Frames are those of `agent.retrieval.worker`: a length and that many bytes, here of JSON.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

from agent.errors import PatchshotError
from agent.evaluation.messages import Job, Reply, Start
from agent.events import Event, Notice
from agent.retrieval.worker import read_frame, write_frame

if TYPE_CHECKING:
    from agent.settings import Settings


class _Notices:
    """A reporter that keeps what the user should know until the next reply."""

    def __init__(self) -> None:
        self._kept: list[str] = []

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, Notice):
            self._kept.append(event.message)

    def take(self) -> tuple[str, ...]:
        kept, self._kept = tuple(dict.fromkeys(self._kept)), []
        return kept


async def serve(start: Start, source: BinaryIO, sink: BinaryIO) -> None:
    """Say that all is ready, then answer jobs until the source ends."""
    from agent.evaluation.measure import open_measurer

    notices = _Notices()
    async with open_measurer(_settings(start), start.budgets, notices) as measurer:
        _answer(sink, Reply())
        while True:
            try:
                job = Job.model_validate_json(read_frame(source))
            except EOFError:
                return
            reply = await measurer.measure(job)
            _answer(sink, reply.model_copy(update={"notices": notices.take()}))


def _settings(start: Start) -> dict[str, Settings]:
    from agent.settings import load

    return {preset: load({**start.flags, "preset": preset}) for preset in start.presets}


def _answer(sink: BinaryIO, reply: Reply) -> None:
    write_frame(sink, reply.model_dump_json().encode())
    sink.flush()


def share_of_cores(cores: list[int], number: int, workers: int) -> set[int]:
    """The cores of worker `number` of `workers`: disjoint where there are enough, else one."""
    if workers > len(cores):
        return {cores[number % len(cores)]}
    return set(cores[number * len(cores) // workers : (number + 1) * len(cores) // workers])


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)  # an exit, not a death: temporary folders are removed on the way


def main() -> None:
    """Serve standard input and output."""
    signal.signal(signal.SIGTERM, _end)
    source = sys.stdin.buffer
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not become a frame
    try:
        _work(source, sink)
    except (BrokenPipeError, EOFError):  # who asked is gone: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())


def _work(source: BinaryIO, sink: BinaryIO) -> None:
    start = Start.model_validate_json(read_frame(source))
    # Libraries take as many threads as they see cores: each worker sees its share.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, share_of_cores(cores, start.number, start.workers))
    try:
        asyncio.run(serve(start, source, sink))
    except PatchshotError as error:
        _answer(sink, Reply(fatal=str(error)))


if __name__ == "__main__":
    main()
