"""Measures instances in worker processes: retrieves as `agent context` does, finds the answer.

A crash inside a parser or an embedding library must cost one instance, not the run. `main` is the
program of a worker: requests and answers are frames of JSON (`agent.shared.workers`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import BaseModel, ConfigDict

from agent.datasets import GoldInstance, read_files
from agent.errors import ConfigurationError, PatchshotError, UsageError
from agent.evaluation.retrieval.gold import counted_name, find_gold, gold_paths, query_kinds
from agent.evaluation.retrieval.rows import BudgetContext, ContextRange, RetrievalRow
from agent.repository import take_snapshot
from agent.retrieval.context import PackingOptions, pack
from agent.retrieval.index import TreeSitterChunker
from agent.run.problem import problem_from_text
from agent.shared.workers import WorkerFailed, WorkerPool, WorkerProcess, read_frame, write_frame
from agent.types.events import Event, Notice
from agent.wiring import (
    fill_history,
    fill_index,
    make_counter,
    open_retriever,
    packing_options,
    retrieval_options,
)

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types import ContextBundle, Ranking
    from agent.types.protocols import Reporter, Retriever

MAX_FUNCTIONS = 100

JOB_SECONDS = 900.0
"""Time limit of one instance."""

_START_SECONDS = 120.0
_STOP_SECONDS = 3.0  # to remove temporary folders


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkerStart(_Message):
    """The first frame: settings as flags, further budgets, number of the worker."""

    flags: dict[str, Any]
    budgets: tuple[int, ...] = ()
    number: int = 0
    workers: int = 1


class MeasureJob(_Message):
    """One instance and the path of its repository."""

    instance: GoldInstance
    repository: str


class Measurement(_Message):
    """The reply to a job or to the start.

    `skipped` says why there is no row, `fatal` why no job can succeed. `notices` are messages for
    the user.
    """

    row: RetrievalRow | None = None
    skipped: str = ""
    fatal: str = ""
    notices: tuple[str, ...] = ()


# ------------------------------------------------------------------------------- the parent process


def measure_all(
    jobs: Sequence[MeasureJob], starts: Sequence[WorkerStart], *, seconds: float = JOB_SECONDS
) -> Generator[tuple[MeasureJob, Measurement], None, None]:
    """Yield measurements as they come, from one worker for each of `starts`.

    An instance that takes longer than `seconds`, or on which a worker dies, is skipped with that
    reason. Raises ConfigurationError or PatchshotError if no instance can be measured. No worker
    outlives the iteration, however it ends.
    """
    with WorkerPool([_Worker(start, seconds) for start in starts], "evaluate") as pool:
        futures = {pool.submit(partial(_Worker.measure, job=job)): job for job in jobs}
        for future in as_completed(futures):
            measured = future.result()
            if measured.fatal:
                raise ConfigurationError(measured.fatal)
            yield futures[future], measured


class _Worker:
    """One process. It starts on first use and restarts after it has died."""

    def __init__(self, start: WorkerStart, seconds: float) -> None:
        self._start = start
        self._seconds = seconds
        self._process: WorkerProcess | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def measure(self, job: MeasureJob) -> Measurement:
        if self._process is None:
            opened = self._open()
            if opened.fatal or opened.skipped:
                return opened
        return self._ask(job.model_dump_json().encode(), self._seconds)

    def stop(self) -> None:
        """End the process, from any thread; a job under way is then skipped."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            process.stop()

    def _open(self) -> Measurement:
        with self._lock:
            if self._stopped:
                return Measurement(skipped="stopped")
            # The working directory stays: paths and the configuration file are relative to it. The
            # environment is the user's own, because it holds the keys.
            self._process = WorkerProcess(
                "agent.evaluation.retrieval.worker", environment=os.environ, grace=_STOP_SECONDS
            )
        reply = self._ask(self._start.model_dump_json().encode(), _START_SECONDS)
        if reply.skipped and not self._stopped:
            raise PatchshotError(
                f"a worker process of the evaluation did not start ({reply.skipped}); "
                "see its message above, or try --workers 1"
            )
        return reply

    def _ask(self, request: bytes, seconds: float) -> Measurement:
        process = self._process
        if process is None:
            return Measurement(skipped="stopped")
        try:
            return Measurement.model_validate_json(process.ask([request], seconds))
        except WorkerFailed as failure:
            self._process = None
            late = f"took longer than {seconds:g} s"
            return Measurement(skipped=late if failure.late else str(failure))


# ------------------------------------------------------------------------------- the worker process


class Measurer:
    """Measures instances with one retriever. It chunks files in this process only.

    Each ranking is also packed into each of `budgets` (tokens).
    """

    def __init__(
        self,
        settings: Settings,
        retriever: Retriever,
        budgets: Sequence[int],
        reporter: Reporter,
    ) -> None:
        self._settings = settings
        self._retriever = retriever
        self._budgets = budgets
        self._reporter = reporter
        self._chunker = TreeSitterChunker()

    async def measure(self, job: MeasureJob) -> Measurement:
        """Return the row of a job, or why the instance is skipped.

        Raises ConfigurationError if no instance can be measured.
        """
        try:
            return await self._measure(job.instance, Path(job.repository))
        except ConfigurationError:
            raise
        except UsageError as error:  # the problem or the repository is unusable
            # Equal reasons are counted together, so they must not contain the id.
            reason = str(error).removeprefix(f"{job.instance.instance_id}: ")
            return Measurement(skipped=reason)

    async def _measure(self, instance: GoldInstance, repository: Path) -> Measurement:
        settings = self._settings
        problem = problem_from_text(instance.problem_statement, instance.instance_id)
        texts = read_files(repository, instance.base_commit, gold_paths(instance))
        gold = find_gold(instance, texts, self._chunker)
        snapshot = take_snapshot(repository, commit=instance.base_commit)
        if not retrieval_options(settings).original:
            # Not timed, because the time depends on which commits were indexed before.
            fill_index(settings, snapshot, self._reporter, workers=1)
            fill_history(settings, snapshot, self._reporter)
        counter = make_counter(settings.model)
        started = time.perf_counter()
        ranking = await self._retriever.rank(problem, snapshot)
        if ranking.degraded:
            return Measurement(skipped=ranking.degraded)

        def packed(options: PackingOptions) -> ContextBundle:
            return pack(problem, ranking, snapshot, counter, options, chunker=self._chunker)

        options = packing_options(settings)
        bundle = packed(options)
        seconds = time.perf_counter() - started
        budgets = (
            BudgetContext(budget=budget, context=_shown(further), context_tokens=further.tokens)
            for budget in self._budgets
            for further in [packed(replace(options, budget=budget, automatic=False))]
        )
        row = RetrievalRow(
            instance_id=instance.instance_id,
            files=tuple(dict.fromkeys(file.path for file in ranking.files)),
            functions=function_names(ranking),
            context=_shown(bundle),
            context_tokens=bundle.tokens,
            seconds=round(seconds, 4),
            repo=instance.repo,
            asked=instance.digest(),
            kinds=query_kinds(problem, gold),
            gold=gold,
            budgets=tuple(budgets),
        )
        return Measurement(row=row)


def function_names(ranking: Ranking) -> tuple[str, ...]:
    """Return the names of the 100 best functions and classes, each once."""
    chunks = (scored.chunk for scored in ranking.chunks)
    names = dict.fromkeys(counted_name(c.path, c.symbol) for c in chunks if c.symbol)
    return tuple(names)[:MAX_FUNCTIONS]


def _shown(bundle: ContextBundle) -> tuple[ContextRange, ...]:
    return tuple(
        ContextRange(path=piece.path, start=start, end=end)
        for piece in bundle.pieces
        for start, end in piece.shown
    )


async def serve(start: WorkerStart, source: BinaryIO, sink: BinaryIO) -> None:
    """Send an empty reply when ready, then answer jobs until the source ends."""
    from agent.settings import load

    notices: dict[str, None] = {}

    def note(event: Event, /) -> None:
        if isinstance(event, Notice):
            notices.setdefault(event.message)

    settings = load(start.flags)
    async with open_retriever(settings, note, workers=1) as retriever:
        measurer = Measurer(settings, retriever, start.budgets, note)
        _answer(sink, Measurement())
        while True:
            try:
                job = MeasureJob.model_validate_json(read_frame(source))
            except EOFError:
                return
            measured = await measurer.measure(job)
            _answer(sink, measured.model_copy(update={"notices": tuple(notices)}))
            notices.clear()


def _answer(sink: BinaryIO, measured: Measurement) -> None:
    write_frame(sink, measured.model_dump_json().encode())
    sink.flush()


def share_of_cores(cores: Sequence[int], number: int, workers: int) -> set[int]:
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
        start = WorkerStart.model_validate_json(read_frame(source))
        # Libraries take as many threads as they see cores: each worker sees its share.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, share_of_cores(cores, start.number, start.workers))
        asyncio.run(serve(start, source, sink))
    except PatchshotError as error:
        _answer(sink, Measurement(fatal=str(error)))
    except (BrokenPipeError, EOFError):  # the parent is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())
