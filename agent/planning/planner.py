"""Plan search for one issue: from its ranking to the one that the wider context is packed from."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import BudgetExceeded, ProviderError
from agent.events import Notice
from agent.planning.asking import ask_for_plans, plan_prompt
from agent.planning.grounding import Grounder, numbers_of
from agent.planning.intents import intent_of, intents_in, plan_of
from agent.planning.mutations import Mutator
from agent.planning.scoring import scene_of
from agent.planning.search import Judged, PlanSearch, first_plan
from agent.planning.widening import MODEL_WEIGHT, PLAN_WEIGHT, widened
from agent.retrieval.boilerplate import without_boilerplate
from agent.retrieval.evidence import mention_evidence
from agent.retrieval.several import SeveralQueries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.planning.intents import Plan
    from agent.protocols import ChatModel, Reporter, Snapshot, TokenCounter
    from agent.retrieval.index import Index
    from agent.retrieval.options import RetrievalOptions
    from agent.types import ContextBundle, Problem, Ranking


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Budgets. `rankings`: distinct intents that are ranked; `calls`: of a model, 0 or 1."""

    rankings: int = 40
    expansions: int = 6
    calls: int = 0
    tokens: int = 12_000  # of the context to be filled


@dataclass(frozen=True, slots=True)
class Planned:
    """A finished search: the winner, the ranking it makes, and what it cost."""

    winner: Judged
    ranking: Ranking
    rankings: int
    calls: int = 0
    note: str = ""  # why no model took part, where one should have


@dataclass(frozen=True, slots=True)
class Planner:
    """Searches plans for issues over one index; what `services` builds for `widening = plan`."""

    index: Index
    retrieval: RetrievalOptions
    counter: TokenCounter
    options: PlanOptions = PlanOptions()

    def search(
        self,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        *,
        told: Sequence[str] = (),
        proposed: Sequence[Plan] = (),
        cancel: threading.Event | None = None,
    ) -> Planned:
        """Search and widen. The same input gives the same plan.

        `told`: names that a reply said it lacked; they come first among the issue's intents.
        `proposed`: plans of a model; the search then starts from them alone.
        Raises `agent.retrieval.pool.Cancelled`.
        """
        search, ranks = self._prepared(problem, snapshot, ranking, told, cancel)
        starts = proposed or (first_plan(search.mutator.pool),)
        winner = search.best(*starts)
        weight = MODEL_WEIGHT if proposed else PLAN_WEIGHT / max(1, len(winner.grounded))
        corpus = search.grounder.corpus
        wider = widened(ranking, ranks, winner, corpus, snapshot, weight)
        return Planned(winner, wider, search.grounder.spent)

    async def plan(
        self,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        bundle: ContextBundle,
        *,
        told: Sequence[str] = (),
        chat: ChatModel | None = None,
    ) -> Planned:
        """The same in a thread, with a model's plans where `calls` and `chat` allow for one.

        A call that fails costs its plans only. `bundle`: the context of the attempt that failed.
        """
        proposed, calls, note = await self._proposed(problem, ranking, bundle, chat)
        cancel = threading.Event()
        try:
            planned = await asyncio.to_thread(
                self.search,
                problem,
                snapshot,
                ranking,
                told=told,
                proposed=proposed,
                cancel=cancel,
            )
        except asyncio.CancelledError:
            cancel.set()
            raise
        return replace(planned, calls=calls, note=note)

    async def _proposed(
        self,
        problem: Problem,
        ranking: Ranking,
        bundle: ContextBundle,
        chat: ChatModel | None,
    ) -> tuple[tuple[Plan, ...], int, str]:
        """The model's plans, calls made, and why there are none."""
        if chat is None or not self.options.calls:
            return (), 0, ""
        try:
            plans = await ask_for_plans(chat, plan_prompt(problem, ranking, bundle, self.counter))
        except (ProviderError, BudgetExceeded) as error:
            return (), 1, f"planned without the model: {error}"
        return plans, 1, "" if plans else "planned without the model: its reply held no plan"

    def _prepared(
        self,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        told: Sequence[str],
        cancel: threading.Event | None,
    ) -> tuple[PlanSearch, Mapping[int, int]]:
        """A search over the loaded corpus, and the issue's ranking by its pieces."""
        problem = without_boilerplate(problem, snapshot)
        event = cancel or threading.Event()
        queries = SeveralQueries(
            problem, snapshot, self.index, (mention_evidence,), self.retrieval, event
        )
        pool = plan_of((*(intent_of(name, "name") for name in told), *intents_in(problem))).intents
        queries.prepare("\n".join((problem.text, *_names(ranking), *told)))
        (signals,) = queries.signals([problem])
        ranks = numbers_of(ranking, queries.corpus)
        scene = scene_of(problem, signals, ranks, self.options.tokens)
        grounder = Grounder(queries, self.options.rankings)
        search = PlanSearch(scene, grounder, Mutator(queries.corpus, pool), self.options.expansions)
        return search, ranks


def _names(ranking: Ranking) -> list[str]:
    """What rephrased intents are made of."""
    return [f"{s.chunk.symbol} {s.chunk.path.rpartition('/')[2]}" for s in ranking.chunks]


@dataclass(frozen=True, slots=True)
class PlanWidener:
    """The `Widener` that plans. `chat` is asked only where the options allow for calls."""

    planner: Planner
    chat: ChatModel
    reporter: Reporter

    async def widen(
        self,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        bundle: ContextBundle,
        told: Sequence[str],
    ) -> Ranking:
        """The ranking of the winning plan, which a note tells of."""
        planned = await self.planner.plan(
            problem, snapshot, ranking, bundle, told=told, chat=self.chat
        )
        if planned.note:
            self.reporter(Notice(planned.note, "warning"))
        intents = len(planned.winner.plan.intents)
        note = f"context widened by a plan of {intents} intents ({planned.rankings} rankings)"
        return replace(planned.ranking, notes=(*planned.ranking.notes, note))
