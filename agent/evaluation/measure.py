"""Retrieval for one instance, as `agent context` does it, and the answer it is judged by."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.context.packing import PackingOptions, pack
from agent.errors import ConfigurationError, UsageError
from agent.evaluation.dataset import Instance
from agent.evaluation.gold import counted_name, find_gold, gold_paths
from agent.evaluation.messages import Job, PresetRow, Reply
from agent.evaluation.query_kind import query_kinds
from agent.evaluation.repositories import read_files
from agent.evaluation.rows import BudgetContext, BudgetRow, ContextRange, Row
from agent.problem import problem_from_text
from agent.repository.snapshot import take_snapshot
from agent.retrieval.chunking import TreeSitterChunker
from agent.services.context import make_counter, packing_options
from agent.services.retrieval import fill_history, fill_index, open_retriever, retrieval_options

if TYPE_CHECKING:
    from agent.protocols import Reporter, Retriever, Snapshot
    from agent.settings import Settings
    from agent.types import ContextBundle, Problem, Ranking

MAX_FUNCTIONS = 100


@asynccontextmanager
async def open_measurer(
    settings: Mapping[str, Settings], budgets: Sequence[int], reporter: Reporter
) -> AsyncIterator[Measurer]:
    """A measurer for presets by name. Cuts files in this process only: others run beside it.

    `budgets`: those to pack each ranking into beside the one that the settings say.

    Raises ConfigurationError.
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
    """Made by `open_measurer`."""

    def __init__(
        self, presets: Mapping[str, _Preset], budgets: Sequence[int], reporter: Reporter
    ) -> None:
        self._presets = presets
        self._budgets = budgets
        self._report = reporter
        self._chunker = TreeSitterChunker()

    async def measure(self, job: Job) -> Reply:
        """Rows for the job's presets. What is wrong with the instance is a reason to skip it.

        Raises ConfigurationError where no instance can be measured.
        """
        instance, repository = job.instance, Path(job.repository)
        try:
            problem = problem_from_text(instance.problem_statement, instance.instance_id)
            texts = read_files(repository, instance.base_commit, gold_paths(instance))
            gold = find_gold(instance, texts, self._chunker)
            rows, lacking = await self._rows(job, problem, repository) if job.presets else ([], "")
        except ConfigurationError:
            raise
        except UsageError as error:  # the problem's or the repository's
            # Reasons are counted: those of two instances must not differ by their names only.
            return Reply(skipped=str(error).removeprefix(f"{instance.instance_id}: "))
        kinds = query_kinds(problem, gold)
        return Reply(rows=tuple(rows), gold=gold, kinds=kinds, skipped=lacking)

    async def _rows(
        self, job: Job, problem: Problem, repository: Path
    ) -> tuple[list[PresetRow], str]:
        """The rows of the presets that could rank as they should, and why others could not."""
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
        self, instance: Instance, problem: Problem, snapshot: Snapshot, name: str
    ) -> PresetRow | str:
        """A row, or why there is none: figures of a ranking without its embeddings would lie."""
        preset = self._presets[name]
        settings = preset.settings
        if retrieval_options(settings).first_stage == "bm25":
            # Not timed: what it takes depends on which commits came before this one.
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


def make_row(instance_id: str, ranking: Ranking, bundle: ContextBundle, seconds: float) -> Row:
    """The row of a ranking and its context."""
    return Row(
        instance_id=instance_id,
        files=tuple(dict.fromkeys(file.path for file in ranking.files)),
        functions=function_names(ranking),
        context=tuple(_shown(bundle)),
        context_tokens=bundle.tokens,
        seconds=round(seconds, 4),
    )


def _budget_row(instance: Instance, packed: Mapping[int, ContextBundle]) -> BudgetRow:
    contexts = (
        BudgetContext(budget=budget, context=tuple(_shown(b)), context_tokens=b.tokens)
        for budget, b in packed.items()
    )
    return BudgetRow(
        instance_id=instance.instance_id, budgets=tuple(contexts), asked=instance.digest()
    )


def function_names(ranking: Ranking) -> tuple[str, ...]:
    """The 100 best functions and classes, each once; what has no name is no function."""
    chunks = (scored.chunk for scored in ranking.chunks)
    names = dict.fromkeys(counted_name(c.path, c.symbol) for c in chunks if c.symbol)
    return tuple(names)[:MAX_FUNCTIONS]


def _shown(bundle: ContextBundle) -> Sequence[ContextRange]:
    return [
        ContextRange(path=piece.path, start=start, end=end)
        for piece in bundle.pieces
        if piece.form != "signatures"
        for start, end in piece.shown
    ]
