"""Measures instances in worker processes: retrieves as `agent context` does, finds the answer.

A crash inside a parser or an embedding library must cost one instance, not the run.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.datasets import GoldInstance, read_files
from agent.errors import ProblemError, RepositoryError
from agent.evaluation.retrieval.gold import counted_name, find_gold, gold_paths
from agent.evaluation.retrieval.metrics import BudgetContext, ContextRange, RetrievalRow
from agent.repository import take_snapshot
from agent.retrieval.context import PackingOptions, pack
from agent.retrieval.index import TreeSitterChunker
from agent.run.problem import problem_from_text
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


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """One instance and the path of its repository."""

    instance: GoldInstance
    repository: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """The row of an instance, or why it was `skipped`; `notices` are for the user."""

    row: RetrievalRow | None = None
    skipped: str = ""
    notices: tuple[str, ...] = ()


def measure_all(
    jobs: Sequence[MeasureJob], flags: Mapping[str, Any], budgets: Sequence[int], workers: int
) -> Generator[tuple[MeasureJob, Measurement], None, None]:
    """Yield measurements as they come. `flags` are the settings, which each worker loads again.

    Closing the generator waits for the instances under way. Raises ConfigurationError.
    """
    open_jobs = {id(job): job for job in jobs}
    with _pool(flags, budgets, workers) as pool, suppress(BrokenExecutor):
        futures = {pool.submit(_measure, job): job for job in jobs}
        for future in as_completed(futures):
            measured = future.result()
            del open_jobs[id(futures[future])]
            yield futures[future], measured
    for job in open_jobs.values():  # alone, because one of these kills its process
        measured = Measurement(skipped="the worker process died")
        with _pool(flags, budgets, 1) as pool, suppress(BrokenExecutor):
            measured = pool.submit(_measure, job).result()
        yield job, measured


@contextmanager
def _pool(
    flags: Mapping[str, Any], budgets: Sequence[int], workers: int
) -> Iterator[ProcessPoolExecutor]:
    # Forking a process that has threads can deadlock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _open_worker, (flags, tuple(budgets)))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


async def measure(
    job: MeasureJob,
    settings: Settings,
    retriever: Retriever,
    budgets: Sequence[int],
    reporter: Reporter,
) -> Measurement:
    """Return the row of a job, packed also into each of `budgets`.

    Raises ConfigurationError if no instance can be measured, ProblemError and RepositoryError if
    this one cannot.
    """
    instance, repository, chunker = job.instance, Path(job.repository), TreeSitterChunker()
    problem = problem_from_text(instance.problem_statement, instance.instance_id)
    texts = read_files(repository, instance.base_commit, gold_paths(instance))
    most = round(settings.max_file_mb * 1e6)
    snapshot = take_snapshot(repository, commit=instance.base_commit, max_file_bytes=most)
    if not retrieval_options(settings).original:
        # Not timed, because the time depends on which commits were indexed before.
        fill_index(settings, snapshot, reporter)
        fill_history(settings, snapshot, reporter)
    counter = make_counter(settings.model)
    started = time.perf_counter()
    ranking = await retriever.rank(problem, snapshot)
    if ranking.degraded:
        return Measurement(skipped=ranking.degraded)

    def packed(options: PackingOptions) -> ContextBundle:
        return pack(problem, ranking, snapshot, counter, options, chunker=chunker)

    options = packing_options(settings)
    bundle = packed(options)
    seconds = time.perf_counter() - started
    further = {n: packed(replace(options, budget=n, automatic=False)) for n in budgets}
    row = RetrievalRow(
        instance_id=instance.instance_id,
        files=tuple(dict.fromkeys(file.path for file in ranking.files)),
        functions=function_names(ranking),
        context=_shown(bundle),
        context_tokens=bundle.tokens,
        seconds=round(seconds, 4),
        repo=instance.repo,
        gold=find_gold(instance, texts, chunker),
        budgets=tuple(
            BudgetContext(budget=budget, context=_shown(one), context_tokens=one.tokens)
            for budget, one in further.items()
        ),
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


# The function that measures a job in this worker process, and what keeps its retriever open.
_open: list[tuple[Callable[[MeasureJob], Measurement], AsyncExitStack]] = []


def _open_worker(flags: Mapping[str, Any], budgets: Sequence[int]) -> None:
    from agent.settings import load

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    settings, notices = load(flags), dict[str, None]()

    def note(event: Event, /) -> None:
        if isinstance(event, Notice):
            notices.setdefault(event.message)

    runner, stack = asyncio.Runner(), AsyncExitStack()
    opening = stack.enter_async_context(open_retriever(settings, note))
    retriever = runner.run(opening)

    def measured(job: MeasureJob) -> Measurement:
        notices.clear()
        try:
            done = runner.run(measure(job, settings, retriever, budgets, note))
        except (ProblemError, RepositoryError) as error:
            # Equal reasons are counted together, so they must not contain the id.
            done = Measurement(skipped=str(error).removeprefix(f"{job.instance.instance_id}: "))
        return replace(done, notices=tuple(notices))

    _open.append((measured, stack))


def _measure(job: MeasureJob) -> Measurement:
    measured, _ = _open[0]
    return measured(job)
