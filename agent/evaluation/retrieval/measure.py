"""Measure one instance: retrieve as `agent context` does, and find the gold answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.datasets import GoldInstance, read_files
from agent.errors import ConfigurationError, UsageError
from agent.evaluation.retrieval.gold import counted_name, find_gold, gold_paths, query_kinds
from agent.evaluation.retrieval.pool import MeasureJob, MeasureReply, PresetRow
from agent.evaluation.retrieval.result_files import (
    BudgetContext,
    BudgetRow,
    ContextRange,
    RetrievalRow,
)
from agent.repository import take_snapshot
from agent.retrieval.context import PackingOptions, pack
from agent.retrieval.index import TreeSitterChunker
from agent.run.problem import problem_from_text
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
    from agent.types import ContextBundle, Problem, Ranking
    from agent.types.protocols import Reporter, Retriever, Snapshot

MAX_FUNCTIONS = 100


@asynccontextmanager
async def open_measurer(
    settings: Mapping[str, Settings], budgets: Sequence[int], reporter: Reporter
) -> AsyncIterator[Measurer]:
    """Open a measurer for presets by name. It chunks files in this process only.

    Each ranking is also packed into each of `budgets` (tokens). Raises ConfigurationError.
    """
    async with AsyncExitStack() as stack:
        presets: dict[str, _Preset] = {}
        for name, own in settings.items():
            retriever = await stack.enter_async_context(open_retriever(own, reporter, workers=1))
            presets[name] = _Preset(own, retriever)
        yield Measurer(presets, budgets, reporter)


@dataclass(frozen=True, slots=True)
class _Preset:
    settings: Settings
    retriever: Retriever


class Measurer:
    """Measures instances. Use `open_measurer` to make one."""

    def __init__(
        self, presets: Mapping[str, _Preset], budgets: Sequence[int], reporter: Reporter
    ) -> None:
        self._presets = presets
        self._budgets = budgets
        self._report = reporter
        self._chunker = TreeSitterChunker()

    async def measure(self, job: MeasureJob) -> MeasureReply:
        """Return rows for the presets of a job, or why the instance is skipped.

        Raises ConfigurationError if no instance can be measured.
        """
        instance, repository = job.instance, Path(job.repository)
        try:
            problem = problem_from_text(instance.problem_statement, instance.instance_id)
            texts = read_files(repository, instance.base_commit, gold_paths(instance))
            gold = find_gold(instance, texts, self._chunker)
            rows, lacking = await self._rows(job, problem, repository) if job.presets else ([], "")
        except ConfigurationError:
            raise
        except UsageError as error:  # the problem or the repository is unusable
            # Equal reasons are counted together, so they must not contain the id.
            return MeasureReply(skipped=str(error).removeprefix(f"{instance.instance_id}: "))
        kinds = query_kinds(problem, gold)
        return MeasureReply(rows=tuple(rows), gold=gold, kinds=kinds, skipped=lacking)

    async def _rows(
        self, job: MeasureJob, problem: Problem, repository: Path
    ) -> tuple[list[PresetRow], str]:
        """Return the rows of the presets that could rank, and the reasons of the others."""
        snapshot = take_snapshot(repository, commit=job.instance.base_commit)
        rows: list[PresetRow] = []
        lacking: dict[str, str] = {}
        for preset in job.presets:
            made = await self._row(job.instance, problem, snapshot, preset)
            if isinstance(made, str):
                lacking[preset] = made
            else:
                rows.append(made)
        return rows, "; ".join(f"preset {name}: {why}" for name, why in lacking.items())

    async def _row(
        self, instance: GoldInstance, problem: Problem, snapshot: Snapshot, name: str
    ) -> PresetRow | str:
        """Return a row, or a reason if there is none, such as missing embeddings."""
        preset = self._presets[name]
        settings = preset.settings
        if not retrieval_options(settings).original:
            # Not timed, because the time depends on which commits were indexed before.
            fill_index(settings, snapshot, self._report, workers=1)
            fill_history(settings, snapshot, self._report)
        counter = make_counter(settings.model)
        started = time.perf_counter()
        ranking = await preset.retriever.rank(problem, snapshot)
        if ranking.degraded:
            return ranking.degraded

        def _packed(options: PackingOptions) -> ContextBundle:
            return pack(problem, ranking, snapshot, counter, options, chunker=self._chunker)

        options = packing_options(settings)
        bundle = _packed(options)
        seconds = time.perf_counter() - started
        packed = {budget: _packed(replace(options, budget=budget)) for budget in self._budgets}
        return PresetRow(
            preset=name,
            row=make_row(instance.instance_id, ranking, bundle, seconds),
            budgets=_budget_row(instance, packed),
        )


def make_row(
    instance_id: str, ranking: Ranking, bundle: ContextBundle, seconds: float
) -> RetrievalRow:
    """Return the row of a ranking and its context."""
    return RetrievalRow(
        instance_id=instance_id,
        files=tuple(dict.fromkeys(file.path for file in ranking.files)),
        functions=function_names(ranking),
        context=tuple(_shown(bundle)),
        context_tokens=bundle.tokens,
        seconds=round(seconds, 4),
    )


def _budget_row(instance: GoldInstance, packed: Mapping[int, ContextBundle]) -> BudgetRow:
    contexts = (
        BudgetContext(budget=budget, context=tuple(_shown(b)), context_tokens=b.tokens)
        for budget, b in packed.items()
    )
    return BudgetRow(
        instance_id=instance.instance_id, budgets=tuple(contexts), asked=instance.digest()
    )


def function_names(ranking: Ranking) -> tuple[str, ...]:
    """Return the names of the 100 best functions and classes, each once."""
    chunks = (scored.chunk for scored in ranking.chunks)
    names = dict.fromkeys(counted_name(c.path, c.symbol) for c in chunks if c.symbol)
    return tuple(names)[:MAX_FUNCTIONS]


def _shown(bundle: ContextBundle) -> Sequence[ContextRange]:
    return [
        ContextRange(path=piece.path, start=start, end=end)
        for piece in bundle.pieces
        for start, end in piece.shown
    ]
