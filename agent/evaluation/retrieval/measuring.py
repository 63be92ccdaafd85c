"""Measures instances in worker processes: retrieves as `agent context` does, finds the answer.

A crash inside a parser or an embedding library must cost one instance, not the run.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from agent.datasets import GoldInstance, read_files
from agent.errors import ConfigurationError, PatchshotError, UsageError
from agent.evaluation.retrieval.gold import counted_name, find_gold, gold_paths, query_kinds
from agent.evaluation.retrieval.rows import BudgetContext, ContextRange, RetrievalRow
from agent.repository import take_snapshot
from agent.retrieval.context import PackingOptions, pack
from agent.retrieval.index import TreeSitterChunker
from agent.run.problem import problem_from_text
from agent.shared.workers import WorkerPool
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
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from agent.settings import Settings
    from agent.types import ContextBundle, Ranking
    from agent.types.protocols import Reporter, Retriever

MAX_FUNCTIONS = 100

JOB_SECONDS = 900.0
"""Time limit of one instance."""

_START_SECONDS = 120.0
_STOP_SECONDS = 3.0  # to remove temporary folders


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """Settings as flags, further budgets, and the number of a worker."""

    flags: Mapping[str, Any]
    budgets: tuple[int, ...] = ()
    number: int = 0
    workers: int = 1


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """One instance and the path of its repository."""

    instance: GoldInstance
    repository: str


@dataclass(frozen=True, slots=True)
class Measurement:
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
        self._process: BaseProcess | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def measure(self, job: MeasureJob) -> Measurement:
        if self._process is None:
            opened = self._open()
            if opened.fatal or opened.skipped:
                return opened
        with suppress(OSError):  # a dead process gives no answer
            self._connection.send(job)
        return self._answer(self._seconds)

    def stop(self) -> None:
        """End the process, from any thread; a job under way is then skipped."""
        with self._lock:
            self._stopped = True
            self._end()

    def _open(self) -> Measurement:
        # Forking a process that has threads can deadlock.
        context = multiprocessing.get_context("spawn")
        with self._lock:
            if self._stopped:
                return Measurement(skipped="stopped")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(self._start, theirs), daemon=True)
            self._process.start()
            theirs.close()
        reply = self._answer(_START_SECONDS)
        if reply.skipped and not self._stopped:
            raise PatchshotError(
                f"a worker process of the evaluation did not start ({reply.skipped}); "
                "see its message above, or try --workers 1"
            )
        return reply

    def _answer(self, seconds: float) -> Measurement:
        """Wait for an answer. Without one, the process is ended."""
        try:
            if self._connection.poll(seconds):
                return cast("Measurement", self._connection.recv())
            reason = f"took longer than {seconds:g} s"
        except (OSError, EOFError):
            reason = ""
        process = self._process
        with self._lock:
            self._end()
        code = process.exitcode if process else None
        return Measurement(skipped=reason or f"the worker process ended with exit code {code}")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.join(_STOP_SECONDS)
            process.kill()
            process.join()
            self._connection.close()


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


def _work(start: WorkerStart, connection: Connection) -> None:
    """Answer when ready, then answer jobs until the parent closes the connection or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    signal.signal(signal.SIGTERM, _exit)
    # Libraries take as many threads as they see cores: each worker sees its share.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, share_of_cores(cores, start.number, start.workers))
    try:
        asyncio.run(_serve(start, connection))
    except PatchshotError as error:
        connection.send(Measurement(fatal=str(error)))
    except (OSError, EOFError):
        return


async def _serve(start: WorkerStart, connection: Connection) -> None:
    from agent.settings import load

    notices: dict[str, None] = {}

    def note(event: Event, /) -> None:
        if isinstance(event, Notice):
            notices.setdefault(event.message)

    settings = load(start.flags)
    async with open_retriever(settings, note, workers=1) as retriever:
        measurer = Measurer(settings, retriever, start.budgets, note)
        connection.send(Measurement())
        while True:
            measured = await measurer.measure(connection.recv())
            connection.send(replace(measured, notices=tuple(notices)))
            notices.clear()


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)  # an orderly exit, which removes temporary folders


def share_of_cores(cores: Sequence[int], number: int, workers: int) -> set[int]:
    """Return the cores of worker `number` of `workers`: disjoint shares, or one if too few."""
    if workers > len(cores):
        return {cores[number % len(cores)]}
    return set(cores[number * len(cores) // workers : (number + 1) * len(cores) // workers])
