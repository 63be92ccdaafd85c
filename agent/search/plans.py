"""Plan search: finds the code for an issue by several intents instead of one query.

`Planner` searches for the best plan of intents and shows it to the model, and
`find_places` is the action `find` of the iterative mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agent.retrieval.ranking import without_boilerplate
from agent.run.prompting import as_data
from agent.search.passages import Label
from agent.search.plan_search import (
    Grounder,
    Nearest,
    PlanSearch,
    ScoredPlan,
    intents_in,
    mentioned,
    numbers_of,
)
from agent.settings import WIDER_TOKENS
from agent.shared.workers import in_thread
from agent.types import Problem

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus, Index
    from agent.search.pool import Pool
    from agent.types import Ranking
    from agent.types.protocols import Retriever, Snapshot, TokenCounter

_PLACES = 4  # pieces of each step that people and models are shown
_FIRST_INTENTS = 4  # of the first plan: title, errors and frames come before sentences
_HEAD = (
    "A plan that a search made from the issue: how well code matches (0 to 1), what to look for, "
    "and where it probably is. It is data, and may be wrong."
)


class PlanPlace(NamedTuple):
    """A piece that a step of a plan leads to. Lines are 1-based and inclusive."""

    path: str
    start: int
    end: int
    symbol: str


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One intent of a plan and the best pieces for it. `score` in [0, 1] is `Grounded.quality`."""

    intent: str
    score: float
    places: tuple[PlanPlace, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """A finished search: the value and the steps of the best plan."""

    value: float
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class Planner:
    """Searches plans for issues over one index: a `BackgroundFinder` without model calls.

    `width`: of a beam search. `intents`: opens the pool whose stored intents steps are grounded in.
    """

    index: Index
    counter: TokenCounter
    width: int | None = None
    intents: Callable[[Snapshot], AbstractAsyncContextManager[Pool]] | None = None

    async def plan(self, problem: Problem, snapshot: Snapshot, ranking: Ranking) -> Planned:
        """Search for the best plan, in a thread. Raises StoreError, ConfigurationError."""
        async with AsyncExitStack() as stack:
            nearest = None
            if self.intents is not None:
                pool = await stack.enter_async_context(self.intents(snapshot))
                nearest = await pool.nearest(Label.INTENT)
            return await in_thread(partial(self._plan, problem, snapshot, ranking, nearest))

    async def find(
        self, problem: Problem, snapshot: Snapshot, ranking: Ranking, tokens: int
    ) -> str:
        """Return the steps of the best plan that fit into `tokens`, as data of a prompt."""
        lines = _in_lines((await self.plan(problem, snapshot, ranking)).steps)
        while lines and self.counter.count("\n".join((_HEAD, *lines))) > tokens:
            lines.pop()
        return "\n".join((_HEAD, *lines)) if lines else ""

    def _plan(
        self,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        nearest: Nearest | None,
        cancel: threading.Event,
    ) -> Planned:
        problem = without_boilerplate(problem, snapshot)
        grounder = Grounder(problem, snapshot, self.index, cancel=cancel, nearest=nearest)
        # rephrased intents may use the names of ranked symbols
        names = (f"{s.chunk.symbol} {s.chunk.path.rpartition('/')[2]}" for s in ranking.chunks)
        grounder.prepare("\n".join((problem.text, *names)))
        (signals,) = grounder.signals([problem])
        pool, ranks = intents_in(problem), numbers_of(ranking, grounder.corpus)
        evidence = mentioned(signals)
        search = PlanSearch(grounder, pool, ranks, evidence, WIDER_TOKENS, width=self.width)
        best = search.best(pool[:_FIRST_INTENTS])
        return Planned(best.value, _steps(best, grounder.corpus))


def _steps(winner: ScoredPlan, corpus: Corpus) -> tuple[PlanStep, ...]:
    steps = []
    for grounded in (one for one in winner.grounded if one.hits):
        named = [number for number in grounded.hits if corpus.symbols[number]][:_PLACES]
        pieces = [(corpus.path_of(n), corpus.pieces[n], corpus.symbols[n]) for n in named]
        places = tuple(PlanPlace(path, p.start, p.end, symbol) for path, p, symbol in pieces)
        steps.append(PlanStep(grounded.intent.text, grounded.quality, places))
    return tuple(steps)


def _in_lines(steps: Sequence[PlanStep]) -> list[str]:
    """Return a line for each step, as data of a prompt."""
    lines: list[str] = []
    for number, step in enumerate(steps, start=1):
        places = ", ".join(f"{p.path}:{p.start}-{p.end} {p.symbol}" for p in step.places)
        target = places or "code without a name"
        lines.append(as_data(f"{number}. {step.score:.2f} {step.intent} -> {target}"))
    return lines


# ------------------------------------------------------------------------------ the action `find`

_CHUNKS = 6  # chunks shown for each intent; several intents share one answer
_OVER_RETRIEVED = 5  # enough chunks remain after removing duplicates (as in MutaGReP)


async def find_places(intents: Sequence[str], retriever: Retriever, snapshot: Snapshot) -> str:
    """Return the places of the best chunks for each intent as text. No symbol appears twice."""
    seen: set[tuple[str, str]] = set()
    parts = []
    for intent in intents:
        ranking = await retriever.rank(Problem(intent, ""), snapshot)
        places: list[str] = []
        for chunk in (scored.chunk for scored in ranking.chunks[: _CHUNKS * _OVER_RETRIEVED]):
            key = (chunk.path, chunk.symbol or f"L{chunk.start}")
            if key not in seen and len(places) < _CHUNKS:
                seen.add(key)
                name = chunk.symbol or chunk.kind.value
                places.append(f"{chunk.path}:L{chunk.start}-{chunk.end} {name}")
        parts.append("\n".join([intent, *(places or ["nothing that is not named above"])]))
    return "\n\n".join(parts)
