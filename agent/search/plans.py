"""Plan search: finds the code for an issue by several intents instead of one query.

`Planner` searches for the best plan of intents; a model may propose plans too. `PlanBackground`
shows the plan to the model, and `find_places` is the action `find` of the iterative mode.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import BudgetExceeded, ProviderError
from agent.patching import scan
from agent.retrieval.ranking import without_boilerplate
from agent.run.prompting import as_data, make_prompt, render
from agent.search.plan_search import (
    MAX_INTENTS,
    Grounder,
    Plan,
    PlanSearch,
    ScoredPlan,
    intent_of,
    intents_in,
    key_of,
    mentioned,
    numbers_of,
    plan_of,
)
from agent.settings import WIDER_TOKENS
from agent.shared.workers import in_thread
from agent.types import Message, Problem
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus, Index
    from agent.types import Prompt, Ranking
    from agent.types.protocols import ChatModel, Reporter, Retriever, Snapshot, TokenCounter

_PLANS = 4  # plans to ask for in one call; with more, models repeat themselves
_MAX_RANKED = 150  # symbols in the prompt; only their names are sent: about 1,500 tokens
_PLAN_TOKENS = 1_500  # four plans take about 500; a model that writes its reasoning needs more
_PLACES = 4  # pieces of each step that people and models are shown
_FIRST_INTENTS = 4  # of the first plan: title, errors and frames come before sentences
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plans": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_INTENTS},
        }
    },
    "required": ["plans"],
    "additionalProperties": False,
}
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
    """A finished search: the best plan, its cost, and the reason if a call gave no plans."""

    winner: ScoredPlan
    steps: tuple[PlanStep, ...]
    calls: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Planner:
    """Searches plans for issues over one index.

    `rankings`: intents that are ranked, `expansions`: plans whose neighbours are tried, both first
    and after each of at most `calls` model calls; `width`: of a beam search.
    """

    index: Index
    counter: TokenCounter
    rankings: int = 40
    expansions: int = 6
    calls: int = 0
    width: int | None = None

    async def plan(
        self, problem: Problem, snapshot: Snapshot, ranking: Ranking, chat: ChatModel | None = None
    ) -> Planned:
        """Search for the best plan; then `chat` proposes others, from which it continues.

        That ends after `calls` calls, or when one has failed or found nothing better.
        """
        search = await in_thread(lambda cancel: self._prepared(problem, snapshot, ranking, cancel))
        corpus = search.grounder.corpus
        best = await self._extended(search, (search.pool[:_FIRST_INTENTS],))
        calls, note = 0, ""
        while chat is not None and calls < self.calls:
            prompt = _plan_prompt(problem, ranking, self.counter, _steps(best, corpus))
            calls += 1
            try:
                reply = await chat.complete(prompt, max_output_tokens=_PLAN_TOKENS, schema=_SCHEMA)
            except (ProviderError, BudgetExceeded) as error:
                note = f"plan call {calls} has failed: {error}"
                break
            proposed = read_plans(reply.text)
            if not proposed:
                note = f"plan call {calls} is of no use: its reply held no plan"
                break
            extended = await self._extended(search, _successors(best.plan, proposed))
            if extended.value <= best.value:
                break
            best = extended
        return Planned(best, _steps(best, corpus), calls, note)

    async def _extended(self, search: PlanSearch, plans: Sequence[Plan]) -> ScoredPlan:
        """Continue a search from further plans, in a thread."""

        def best(cancel: threading.Event) -> ScoredPlan:
            search.grounder.cancel = cancel
            search.grounder.limit = search.grounder.spent + self.rankings
            return search.best(*plans)

        return await in_thread(best)

    def _prepared(
        self, problem: Problem, snapshot: Snapshot, ranking: Ranking, cancel: threading.Event
    ) -> PlanSearch:
        """Return a search over the loaded corpus."""
        problem = without_boilerplate(problem, snapshot)
        grounder = Grounder(problem, snapshot, self.index, self.rankings, cancel)
        # rephrased intents may use the names of ranked symbols
        names = (f"{s.chunk.symbol} {s.chunk.path.rpartition('/')[2]}" for s in ranking.chunks)
        grounder.prepare("\n".join((problem.text, *names)))
        (signals,) = grounder.signals([problem])
        return PlanSearch(
            grounder,
            intents_in(problem),
            numbers_of(ranking, grounder.corpus),
            mentioned(signals),
            WIDER_TOKENS,
            self.expansions,
            self.width,
        )


def _plan_prompt(
    problem: Problem, ranking: Ranking, counter: TokenCounter, best: Sequence[PlanStep]
) -> Prompt:
    """Ask for plans that are better than the best so far and use names of ranked symbols."""
    places = ((s.chunk.path, s.chunk.symbol) for s in ranking.chunks if s.chunk.symbol)
    files: dict[str, list[str]] = {}
    for path, symbol in list(dict.fromkeys(places))[:_MAX_RANKED]:
        files.setdefault(path, []).append(symbol)
    ranked = "\n".join(f"{path}: {', '.join(symbols)}" for path, symbols in files.items())
    user = render(
        "plan",
        issue=as_data(problem.text),
        ranked=as_data(ranked),
        best="\n".join(_in_lines(best)),
        most=MAX_INTENTS,
        plans=_PLANS,
    )
    return make_prompt([Message("system", render("plan_system")), Message("user", user)], counter)


def read_plans(text: str) -> tuple[Plan, ...]:
    """Return the distinct plans of a reply, each a list of sentences; () if there is none."""
    for reply in scan(text, {"plans"}, lambda keys: "plans" in keys).objects:
        lists = reply.value.get("plans") if isinstance(reply.value, dict) else None
        plans: dict[tuple[str, ...], Plan] = {}
        for texts in lists[: 4 * _PLANS] if isinstance(lists, list) else ():
            sentences = texts if isinstance(texts, list) else []
            intents = (one for one in sentences if isinstance(one, str) and one.strip())
            plan = plan_of(intent_of(one, "model") for one in intents)[:MAX_INTENTS]
            if plan:
                plans.setdefault(key_of(plan), plan)
        if plans:
            return tuple(plans.values())
    return ()


def _successors(best: Plan, proposed: Sequence[Plan]) -> tuple[Plan, ...]:
    """Return a model's plans, and the best plan with each of their intents."""
    shown = {intent_of(intent.text, "model").query: intent for intent in best}
    plans = [plan_of(shown.get(i.query, i) for i in plan) for plan in proposed]
    intents = plan_of(intent for plan in plans for intent in plan)
    longer = (plan_of((*best, intent)) for intent in intents)
    return (*plans, *(plan for plan in longer if len(plan) <= MAX_INTENTS))


def _steps(winner: ScoredPlan, corpus: Corpus) -> tuple[PlanStep, ...]:
    """Return the steps of a plan that match code, with the pieces that have a name."""
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


@dataclass(frozen=True, slots=True)
class PlanBackground:
    """The `BackgroundFinder` that shows the plan. It makes no model call."""

    planner: Planner
    reporter: Reporter

    async def find(
        self, problem: Problem, snapshot: Snapshot, ranking: Ranking, tokens: int
    ) -> str:
        """Return the steps of the best plan that fit into `tokens`, as data of a prompt."""
        planned = await self.planner.plan(problem, snapshot, ranking)
        if planned.note:
            self.reporter(Notice(planned.note, "warning"))
        lines = _in_lines(planned.steps)
        while lines and self.planner.counter.count("\n".join((_HEAD, *lines))) > tokens:
            lines.pop()
        return "\n".join((_HEAD, *lines)) if lines else ""


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
