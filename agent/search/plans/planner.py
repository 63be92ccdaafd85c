"""Plan search for one issue. It returns the ranking from which the wider context is filled."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from agent.errors import BudgetExceeded, ProviderError
from agent.patching import scan
from agent.retrieval.index import split_lines
from agent.retrieval.ranking import mention_evidence, without_boilerplate
from agent.run.prompting import as_data, make_prompt, render
from agent.search.plans.grounding import Grounder, SeveralQueries, numbers_of
from agent.search.plans.intents import IntentPlan, intent_of, intents_in, plan_of
from agent.search.plans.search import (
    MAX_INTENTS,
    Mutator,
    PlanSearch,
    ScoredPlan,
    first_plan,
    scene_of,
)
from agent.settings import WIDER_TOKENS
from agent.shared.threads import in_thread
from agent.types import Message, Ranking, Reason, ScoredChunk
from agent.types.events import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.retrieval.index import Corpus, Index
    from agent.retrieval.ranking import RetrievalOptions
    from agent.types import Chunk, ContextBundle, Problem, Prompt
    from agent.types.protocols import ChatModel, Reporter, Snapshot, TokenCounter

PLANS = 4
"""Plans to ask for in one call. With more, models repeat themselves."""

MAX_RANKED = 150
"""Maximum symbols in the prompt. Only their names are sent: about 1,500 tokens."""

MAX_OUTPUT_TOKENS = 1500
"""Four plans take about 500 tokens; a model that writes its reasoning needs more."""

_MAX_READ = 4 * PLANS  # maximum plans read from a reply

SCHEMA: dict[str, Any] = {
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


def plan_prompt(
    problem: Problem,
    ranking: Ranking,
    bundle: ContextBundle | None,
    counter: TokenCounter,
    best: Sequence[PlanStep],
) -> Prompt:
    """Ask for PLANS plans that are better than the best so far and use names of ranked symbols.

    `bundle` is the context that the model has already received, if any.
    """
    user = render(
        "plan",
        issue=as_data(problem.text),
        ranked=as_data("\n".join(_ranked(ranking, bundle))),
        starred=bundle is not None,
        best="\n".join(_in_lines(best)),
        most=MAX_INTENTS,
        plans=PLANS,
    )
    return make_prompt([Message("system", render("plan_system")), Message("user", user)], counter)


def _ranked(ranking: Ranking, bundle: ContextBundle | None) -> Iterator[str]:
    """Yield one line for each file, best first: its symbols by rank, with a star if in `bundle`."""
    pieces = () if bundle is None else bundle.pieces
    shown = {(piece.path, piece.symbol) for piece in pieces}
    named = (s.chunk for s in ranking.chunks if s.chunk.symbol)
    places = list(dict.fromkeys((chunk.path, chunk.symbol) for chunk in named))[:MAX_RANKED]
    files: dict[str, list[str]] = {}
    for path, symbol in places:
        star = "*" if (path, symbol) in shown else ""
        files.setdefault(path, []).append(f"{symbol}{star}")
    yield from (f"{path}: {', '.join(symbols)}" for path, symbols in files.items())


async def ask_for_plans(chat: ChatModel, prompt: Prompt) -> tuple[IntentPlan, ...]:
    """Return the plans that the model proposes; () if there are none. Raises ProviderError."""
    reply = await chat.complete(prompt, max_output_tokens=MAX_OUTPUT_TOKENS, schema=SCHEMA)
    return read_plans(reply.text)


def read_plans(text: str) -> tuple[IntentPlan, ...]:
    """Return the distinct plans of a reply and leave out unreadable ones. Never raises."""
    for found in scan(text, {"plans"}, lambda keys: "plans" in keys).found:
        try:
            plans = _Plans.model_validate(found.value).plans
        except ValidationError:
            continue
        distinct = {plan.key: plan for plan in map(_plan, plans[:_MAX_READ]) if plan.intents}
        if distinct:
            return tuple(distinct.values())
    return ()


def _plan(sentences: Sequence[str]) -> IntentPlan:
    intents = (intent_of(text, "model") for text in sentences if text.strip())
    plan = plan_of(intents)
    return IntentPlan(plan.intents[:MAX_INTENTS])


class _Plans(BaseModel):
    """A parsed reply.

    Intents may be objects with a sentence, and a single plan may be outside a list.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    plans: list[list[str]]

    @field_validator("plans", mode="before")
    @classmethod
    def _lists_of_sentences(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if value and all(isinstance(one, str) for one in value):
            value = [value]
        return [_sentences(one) for one in value]


def _sentences(value: Any) -> Any:
    """Return the sentences of one plan, extracted from objects."""
    if isinstance(value, dict):
        value = next((inner for inner in value.values() if isinstance(inner, list)), [])
    if not isinstance(value, list):
        return value
    return [_sentence(one) for one in value]


def _sentence(value: Any) -> Any:
    if isinstance(value, dict):
        return next((inner for inner in value.values() if isinstance(inner, str)), "")
    return value


K = 10.0
"""Constant of the rank fusion.

It is small, so that the first ranks have a high weight; the published value 60 is meant for long
lists.
"""

PLAN_WEIGHT = 0.1
"""Weight that the intents made without a model share. Tuned: docs/design/search.md."""

MODEL_WEIGHT = 1.0
"""Weight of each intent that a model proposed.

Such intents name specific code. The value was set before any reply was seen.
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """The score of a piece in the fusion, and the reasons."""

    score: float
    why: tuple[Reason, ...]


def widened(
    ranking: Ranking,
    ranks: Mapping[int, int],
    winner: ScoredPlan,
    corpus: Corpus,
    snapshot: Snapshot,
) -> Ranking:
    """Return the ranking from which the wider context is filled.

    Reciprocal rank fusion (Cormack, Clarke & Büttcher, SIGIR 2009) of the issue's ranking and one
    ranking for each intent, weighted by its origin and by its quality:

        score(piece) = 1 / (K + rank) + sum over intents of weight_i * quality_i / (K + rank_i)

    `ranks` comes from `numbers_of`. A piece that the issue did not rank is scored by its intents
    alone. The order of files does not change.
    """
    places = _places(ranks, winner)
    known = {number: ranking.chunks[rank] for number, rank in ranks.items()}
    lines: dict[str, list[str]] = {}
    chunks = []
    for number, place in places.items():
        scored = known.get(number)
        chunk = _chunk(corpus, number, snapshot, lines) if scored is None else scored.chunk
        chunks.append(ScoredChunk(chunk, place.score, place.why))
    there = frozenset(scored.chunk.id for scored in chunks)
    unknown = [scored for scored in ranking.chunks if scored.chunk.id not in there]
    chunks += [ScoredChunk(scored.chunk, 0.0) for scored in unknown]
    chunks.sort(key=lambda c: (-c.score, c.chunk.path, c.chunk.start, c.chunk.end))
    return replace(ranking, chunks=tuple(chunks))


def _places(ranks: Mapping[int, int], winner: ScoredPlan) -> dict[int, _Place]:
    found: dict[int, list[Reason]] = {}
    for number, rank in ranks.items():
        found[number] = [Reason("issue", 1.0 / (K + rank), f"{rank + 1} of the issue's ranking")]
    share = PLAN_WEIGHT / max(1, len(winner.grounded))
    for intent in winner.grounded:
        weight = MODEL_WEIGHT if intent.intent.origin == "model" else share
        for rank, number in enumerate(intent.pieces):
            value = weight * intent.quality / (K + rank)
            reason = Reason("plan", value, f"{rank + 1} for: {intent.intent.text}")
            found.setdefault(number, []).append(reason)
    return {
        number: _Place(sum(reason.value for reason in reasons), tuple(reasons))
        for number, reasons in sorted(found.items())
    }


def _chunk(corpus: Corpus, number: int, snapshot: Snapshot, lines: dict[str, list[str]]) -> Chunk:
    source = corpus.files[int(corpus.piece_file[number])]
    if source.path not in lines:
        lines[source.path] = split_lines(snapshot.text(source.path))
    return corpus.pieces[number].chunk(source, lines[source.path])


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Limits of a search.

    `rankings`: distinct intents that are ranked, and `expansions`: plans whose neighbours are
    tried, first and again after each of at most `calls` model calls; `width`: of a beam search,
    None for best-first.
    """

    rankings: int = 40
    expansions: int = 6
    calls: int = 0
    tokens: int = WIDER_TOKENS  # tokens of the context to fill
    width: int | None = None


@dataclass(frozen=True, slots=True)
class PlanPlace:
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
    """A finished search: the best plan, its ranking, and the cost."""

    winner: ScoredPlan
    ranking: Ranking
    rankings: int
    calls: int = 0
    note: str = ""  # the reason if a call gave no plans
    steps: tuple[PlanStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Planner:
    """Searches plans for issues over one index."""

    index: Index
    retrieval: RetrievalOptions
    counter: TokenCounter
    options: PlanOptions = PlanOptions()

    async def plan(
        self,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        bundle: ContextBundle | None = None,
        *,
        told: Sequence[str] = (),
        chat: ChatModel | None = None,
    ) -> Planned:
        """Search for the best plan and return its ranking. The same replies give the same plan.

        `told`: names that a reply asked for. They come first among the issue's intents. `bundle`:
        the context of the failed attempt, if any. After the search, `chat` proposes plans in place
        of the best one, and the search continues from them too. That ends after `calls` calls, or
        when one has failed or found nothing better.
        """
        search, ranks = await in_thread(
            lambda cancel: self._prepared(problem, snapshot, ranking, told, cancel)
        )
        corpus = search.grounder.corpus
        best = await self._extended(search, (first_plan(search.mutator.pool),))
        calls, note = 0, ""
        while chat is not None and calls < self.options.calls:
            steps = _steps(best, corpus)
            prompt = plan_prompt(problem, ranking, bundle, self.counter, steps)
            try:
                calls += 1
                proposed = await ask_for_plans(chat, prompt)
            except (ProviderError, BudgetExceeded) as error:
                note = f"plan call {calls} has failed: {error}"
                break
            if not proposed:
                note = f"plan call {calls} is of no use: its reply held no plan"
                break
            found = await self._extended(search, _successors(best.plan, proposed))
            if found.value.total <= best.value.total:
                break
            best = found
        wider = widened(ranking, ranks, best, corpus, snapshot)
        return Planned(best, wider, search.grounder.spent, calls, note, _steps(best, corpus))

    async def _extended(self, search: PlanSearch, plans: Sequence[IntentPlan]) -> ScoredPlan:
        """Continue a search from further plans, in a thread."""

        def best(cancel: threading.Event) -> ScoredPlan:
            grounder = search.grounder
            grounder.queries.cancel = cancel
            grounder.limit = grounder.spent + self.options.rankings
            return search.best(*plans)

        return await in_thread(best)

    def _prepared(
        self,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        told: Sequence[str],
        cancel: threading.Event,
    ) -> tuple[PlanSearch, Mapping[int, int]]:
        """Return a search over the loaded corpus, and the issue's ranks by piece."""
        problem = without_boilerplate(problem, snapshot)
        queries = SeveralQueries(
            problem, snapshot, self.index, (mention_evidence,), self.retrieval, cancel
        )
        pool = plan_of((*(intent_of(name, "name") for name in told), *intents_in(problem))).intents
        queries.prepare("\n".join((problem.text, *_names(ranking), *told)))
        (signals,) = queries.signals([problem])
        ranks = numbers_of(ranking, queries.corpus)
        scene = scene_of(problem, signals, ranks, self.options.tokens)
        grounder = Grounder(queries, self.options.rankings)
        mutator = Mutator(queries.corpus, pool)
        limits = self.options
        return PlanSearch(scene, grounder, mutator, limits.expansions, limits.width), ranks


def _successors(best: IntentPlan, proposed: Sequence[IntentPlan]) -> tuple[IntentPlan, ...]:
    """Return a model's plans, and the best plan with each of their intents.

    An intent that the model repeated from the best plan is the one there.
    """
    shown = {intent_of(intent.text, "model").query: intent for intent in best.intents}
    plans = [plan_of(shown.get(i.query, i) for i in plan.intents) for plan in proposed]
    intents = plan_of(intent for plan in plans for intent in plan.intents).intents
    longer = (plan_of((*best.intents, intent)) for intent in intents)
    return (*plans, *(plan for plan in longer if len(plan.intents) <= MAX_INTENTS))


def _names(ranking: Ranking) -> list[str]:
    """Return the symbol names that rephrased intents may use."""
    return [f"{s.chunk.symbol} {s.chunk.path.rpartition('/')[2]}" for s in ranking.chunks]


PLACES = 4
"""Pieces of each step that people and models are shown."""

_HEAD = (
    "A plan that a search made from the issue: how well code matches (0 to 1), what to look for, "
    "and where it probably is. It is data, and may be wrong."
)


def _steps(winner: ScoredPlan, corpus: Corpus) -> tuple[PlanStep, ...]:
    """Return the steps of a plan that found code, with the pieces that have a name."""
    steps = []
    for grounded in (one for one in winner.grounded if one.pieces):
        named = [number for number in grounded.hits if corpus.symbols[number]][:PLACES]
        places = tuple(
            PlanPlace(
                corpus.path_of(n), corpus.pieces[n].start, corpus.pieces[n].end, corpus.symbols[n]
            )
            for n in named
        )
        steps.append(PlanStep(grounded.intent.text, grounded.quality, places))
    return tuple(steps)


def _in_lines(steps: Sequence[PlanStep]) -> list[str]:
    """Return a line for each step, as data of a prompt."""
    lines: list[str] = []
    for number, step in enumerate(steps, start=1):
        places = ", ".join(f"{p.path}:{p.start}-{p.end} {p.symbol}" for p in step.places)
        found = places or "code without a name"
        lines.append(as_data(f"{number}. {step.score:.2f} {step.intent} -> {found}"))
    return lines


@dataclass(frozen=True, slots=True)
class PlanBackground:
    """The `BackgroundFinder` that shows the plan. It only calls `chat` if the options allow it."""

    planner: Planner
    chat: ChatModel
    reporter: Reporter

    async def find(
        self, problem: Problem, snapshot: Snapshot, ranking: Ranking, tokens: int
    ) -> str:
        """Return the steps of the best plan that fit into `tokens`."""
        planned = await self.planner.plan(problem, snapshot, ranking, chat=self.chat)
        if planned.note:
            self.reporter(Notice(planned.note, "warning"))
        return plan_text(planned, self.planner.counter, tokens)


def plan_text(planned: Planned, counter: TokenCounter, tokens: int) -> str:
    """Return the first steps of a plan that fit into `tokens`, as data of a prompt."""
    lines = _in_lines(planned.steps)
    while lines and counter.count("\n".join((_HEAD, *lines))) > tokens:
        lines.pop()
    return "\n".join((_HEAD, *lines)) if lines else ""


@dataclass(frozen=True, slots=True)
class PlanWidener:
    """The `Widener` that uses plan search. It only calls `chat` if the options allow calls."""

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
        """Return the ranking of the best plan, with a note about it."""
        planned = await self.planner.plan(
            problem, snapshot, ranking, bundle, told=told, chat=self.chat
        )
        if planned.note:
            self.reporter(Notice(planned.note, "warning"))
        intents = len(planned.winner.plan.intents)
        note = f"context widened by a plan of {intents} intents ({planned.rankings} rankings)"
        return replace(planned.ranking, notes=(*planned.ranking.notes, note))
