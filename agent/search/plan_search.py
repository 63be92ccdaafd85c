"""Best-first search over plans: it expands the plan with the highest value first, within a budget.

The search is deterministic: the frontier is ordered by falling value, then by the plans themselves.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import Terms
from agent.retrieval.ranking import inverse_frequency, make_query, neighbours
from agent.search.plan_grounding import (
    Grounded,
    Grounder,
    Intent,
    IntentPlan,
    intent_of,
    mentioned,
    plan_of,
    tokens_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index import Corpus
    from agent.retrieval.ranking import Signals
    from agent.types import Problem

GROUNDING, MENTIONS, SUPPORT, WORDS, PRICE = 1.0, 0.5, 1.0, 0.5, 0.3
"""Weights of the parts of a plan's value.

They were set by judgement, so that no part decides alone; no parameter sweep has been run.
"""

_RANK_OFFSET = 10
"""Offset of the support formula. It makes the first ranks nearly equal."""


@dataclass(frozen=True, slots=True)
class PlanValue:
    """The parts of a plan's value, before weighting.

        value = GROUNDING * (1 - product over intents of (1 - quality * novelty / 2))
              + MENTIONS  * share of the names in the issue that the hits cover
              + SUPPORT   * how high the hits rank in the issue's own ranking
              + WORDS     * share of the issue's words in the hits, weighted by rarity
              - PRICE     * tokens of all hits / available tokens

    quality = strength * (1 + specificity) / 2. Novelty is the share of an intent's hits that no
    earlier intent found. In the product (a noisy-or in which each intent counts at most half) each
    further intent adds less, until its price exceeds its gain. All parts except the price are in
    [0, 1].
    """

    grounding: float
    mentions: float
    support: float
    words: float
    price: float

    @property
    def total(self) -> float:
        """Return the weighted sum by which plans are compared."""
        gains = GROUNDING * self.grounding + MENTIONS * self.mentions
        return gains + SUPPORT * self.support + WORDS * self.words - PRICE * self.price


NOTHING = PlanValue(0.0, 0.0, 0.0, 0.0, 0.0)
"""The value of a plan without intents."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The data of one issue from which plans are scored.

    `ranks`: rank in the issue's ranking, from 0, by piece. `mentioned`: evidence by piece. `words`:
    the issue's terms that pieces contain. `tokens`: size of the context to fill.
    """

    corpus: Corpus
    ranks: Mapping[int, int]
    mentioned: Mapping[int, float]
    words: IssueWords
    tokens: int

    def value(self, plan: Sequence[Grounded]) -> PlanValue:
        """Return the value of a plan. It depends on the order of the intents."""
        if not plan:
            return NOTHING
        hits = frozenset(piece for intent in plan for piece in intent.hits)
        return PlanValue(
            grounding=_grounding(plan),
            mentions=_share(self.mentioned, hits),
            support=self._support(hits),
            words=self.words.share(hits),
            price=tokens_of(self.corpus, hits) / max(1, self.tokens),
        )

    def _support(self, hits: frozenset[int]) -> float:
        """Return the mean over hits of offset / (offset + rank); 0 for an unranked hit."""
        if not hits:
            return 0.0
        known = sorted(self.ranks[piece] for piece in hits if piece in self.ranks)
        return sum(_RANK_OFFSET / (_RANK_OFFSET + rank) for rank in known) / len(hits)


def scene_of(problem: Problem, signals: Signals, ranks: Mapping[int, int], tokens: int) -> Scene:
    """Compute the data for scoring plans from the signals of the issue's whole text."""
    weights = make_query(problem, Terms()).weights
    words = IssueWords(signals.corpus, weights)
    return Scene(signals.corpus, ranks, mentioned(signals), words, tokens)


class IssueWords:
    """Finds which of an issue's terms the pieces contain.

    The corpus only has postings of these terms.

    `weights` float64 (q,): weights of the terms, in the order of the postings.
    """

    def __init__(self, corpus: Corpus, weights: NDArray[np.float64]) -> None:
        order = np.argsort(corpus.piece, kind="stable")
        self._pieces, self._terms = corpus.piece[order], corpus.term[order]
        documents = np.bincount(corpus.term, minlength=weights.size)
        self._worth = weights * inverse_frequency(len(corpus.piece_file), documents)
        self._worth[documents == 0] = 0.0  # no plan can find a word that no piece contains

    def share(self, pieces: Collection[int]) -> float:
        """Return the share in [0, 1] of the issue's words that the pieces contain together."""
        wanted = np.array(sorted(pieces), dtype=np.int64)
        starts = np.searchsorted(self._pieces, wanted)
        ends = np.searchsorted(self._pieces, wanted, side="right")
        held = [self._terms[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        whole = float(self._worth.sum())
        if not held or whole <= 0.0:
            return 0.0
        return float(self._worth[np.unique(np.concatenate(held))].sum()) / whole


def _grounding(plan: Sequence[Grounded]) -> float:
    seen: set[int] = set()
    doubt = 1.0
    for intent in plan:
        fresh = sum(piece not in seen for piece in intent.hits)
        novelty = fresh / len(intent.hits) if intent.hits else 0.0
        doubt *= 1.0 - intent.quality * novelty / 2.0
        seen.update(intent.hits)
    return 1.0 - doubt


def _share(weights: Mapping[int, float], hits: frozenset[int]) -> float:
    whole = sum(weights.values())
    found = sum(weights[piece] for piece in sorted(hits) if piece in weights)
    return found / whole if whole > 0.0 else 0.0


MAX_INTENTS = 8
"""Maximum intents of a plan.

A fix rarely needs more locations, and each intent weakens the others.
"""

_NAMES = 2  # symbol names that a rephrased intent adds
_ADDED = 2  # further intents from each source that one expansion tries
_SAME_CODE = 1 / 3  # share of the smaller set of hits from which two intents are merged
_LEAST_WORDS = 2  # minimum words of each half of a split
_CLAUSE = re.compile(
    r"\s*[;:,]\s+|\s+(?:and|but|when|while|because|since|if|so that|instead of|after|before)\s+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mutator:
    """Changes plans over one corpus. `pool`: the issue's intents that may be added to a plan."""

    corpus: Corpus
    pool: tuple[Intent, ...]

    def mutated(self, plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
        """Yield neighbours of a plan, possibly repeated, but never the plan itself."""
        yield from _dropped(plan)
        yield from _merged(plan)
        if len(plan) < MAX_INTENTS:
            yield from self._added(plan)
            yield from _split(plan)
        yield from self._rephrased(plan)

    def _added(self, plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
        """Yield plans with one more intent of the issue, or one for code near the hits."""
        mine = _intents(plan)
        there = {intent.query for intent in mine}
        unused = [intent for intent in self.pool if intent.query not in there]
        around = [intent for intent in self._around(plan) if intent.query not in there]
        for intent in (*unused[:_ADDED], *around[:_ADDED]):
            yield plan_of((*mine, intent))

    def _around(self, plan: Sequence[Grounded]) -> list[Intent]:
        """Return intents for callers, callees and relatives of the best hits, most shared first."""
        hits = {grounded.hits[0]: 1.0 for grounded in plan if grounded.hits}
        if not hits:
            return []
        found = neighbours(self.corpus, hits, {}).pieces
        worth = {n: sum(sorted(r.value for r in found[n].values())) for n in found}
        shown = {piece for grounded in plan for piece in grounded.hits}
        best = sorted((n for n in worth if n not in shown), key=lambda n: (-worth[n], n))
        return [intent_of(self._name(n), "neighbour") for n in best if self.corpus.symbols[n]]

    def _rephrased(self, plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
        """Yield plans in which one intent also has the names of its first hits."""
        intents = _intents(plan)
        for at, grounded in enumerate(plan):
            names = [self._name(n) for n in grounded.hits if self.corpus.symbols[n]][:_NAMES]
            query = " ".join((grounded.intent.query, *names))
            if names and grounded.intent.origin != "mutation":
                yield _with(intents, at, intent_of(query, "mutation"))

    def _name(self, piece: int) -> str:
        return f"{self.corpus.symbols[piece]} in {self.corpus.path_of(piece).rpartition('/')[2]}"


def _intents(plan: Sequence[Grounded]) -> tuple[Intent, ...]:
    return tuple(grounded.intent for grounded in plan)


def _with(intents: Sequence[Intent], at: int, *others: Intent) -> IntentPlan:
    """Return the plan with one intent replaced by others."""
    return plan_of((*intents[:at], *others, *intents[at + 1 :]))


def _dropped(plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
    intents = _intents(plan)
    if len(intents) > 1:
        yield from (_with(intents, at) for at in range(len(intents)))


def _merged(plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
    """Yield plans in which two intents with the same code are merged at the position of the
    first.
    """
    intents = _intents(plan)
    for i, one in enumerate(plan):
        for j in range(i + 1, len(plan)):
            other = plan[j]
            least = min(len(one.hits), len(other.hits))
            if least and len(set(one.hits) & set(other.hits)) >= _SAME_CODE * least:
                both = intent_of(f"{one.intent.query} {other.intent.query}", "mutation")
                yield plan_of((*intents[:i], both, *intents[i + 1 : j], *intents[j + 1 :]))


def _split(plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
    """Yield plans in which an intent with two clauses is split."""
    intents = _intents(plan)
    for at, intent in enumerate(intents):
        clauses = [
            part for part in _CLAUSE.split(intent.query) if len(part.split()) >= _LEAST_WORDS
        ]
        if len(clauses) > 1:
            first, rest = clauses[0], " ".join(clauses[1:])
            yield _with(intents, at, intent_of(first, "mutation"), intent_of(rest, "mutation"))


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """A plan, the results of its intents, and its value."""

    plan: IntentPlan
    grounded: tuple[Grounded, ...] = ()
    value: PlanValue = NOTHING

    @property
    def order(self) -> tuple[float, tuple[str, ...]]:
        """Return a sort key with a total order: highest value first, then the queries."""
        return (-self.value.total, self.plan.key)


@dataclass(slots=True)
class PlanSearch:
    """One search. `expansions`: maximum number of plans whose neighbours are tried.

    Without `width` the search is best-first. With it, it is a beam search: each round tries the
    neighbours of the best `width` plans, and forgets all others.
    """

    scene: Scene
    grounder: Grounder
    mutator: Mutator
    expansions: int = 6
    width: int | None = None
    _seen: set[tuple[str, ...]] = field(default_factory=set)
    _judged: list[ScoredPlan] = field(default_factory=list)
    _frontier: list[tuple[tuple[float, tuple[str, ...]], ScoredPlan]] = field(default_factory=list)

    def best(self, *starts: IntentPlan) -> ScoredPlan:
        """Return the plan with the highest value that has been found.

        The search tries `starts` too. A later call continues it with as many expansions again, and
        never returns a plan of a lower value.
        """
        self._offer(starts)
        left = self.expansions
        while left and self._frontier:
            count = min(left, self.width or 1, len(self._frontier))
            chosen = [heapq.heappop(self._frontier)[1] for _ in range(count)]
            if self.width is not None:
                self._frontier.clear()
            for judged in chosen:
                self._offer(self.mutator.mutated(judged.grounded))
            left -= count
        return min(self._judged, key=lambda one: one.order, default=ScoredPlan(IntentPlan(())))

    def _offer(self, plans: Iterable[IntentPlan]) -> None:
        """Score new plans within the budget."""
        for plan in plans:
            if plan.key in self._seen or not plan.intents:
                continue
            self._seen.add(plan.key)
            found = self.grounder.ground(plan.intents)
            if found is not None:
                judged = ScoredPlan(plan, found, self.scene.value(found))
                self._judged.append(judged)
                heapq.heappush(self._frontier, (judged.order, judged))
