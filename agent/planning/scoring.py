"""What a plan is worth: how well and how specifically it is grounded, and what it costs to show.

    value = GROUNDING * (1 - product over intents of (1 - quality * novelty / 2))
          + MENTIONS  * share of what the issue names that the hits are
          + SUPPORT   * how far up the issue's own ranking the hits are
          + WORDS     * share of the issue's words, rare ones counting more, that the hits hold
          - PRICE     * tokens of all hits / tokens there are

quality = strength * (1 + specificity) / 2. Novelty is the share of an intent's hits that no earlier
intent has found: two intents that mean the same code are one. The product (a noisy or, in which no
intent alone convinces) lets further intents add less and less, so that their price stops them. All
terms lie in [0, 1] but the last, which may exceed 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.planning.grounding import Grounded, mentioned, tokens_of
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import inverse_frequency, make_query

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.corpus import Corpus
    from agent.retrieval.signals import Signals
    from agent.types import Problem

GROUNDING, MENTIONS, SUPPORT, WORDS, PRICE = 1.0, 0.5, 1.0, 0.5, 0.3
"""Weights by design: none decides alone, and a sweep of them has not been made."""

_RANK_OFFSET = 10
"""Of the support: hits at ranks this small are much alike."""


@dataclass(frozen=True, slots=True)
class PlanValue:
    """The parts of a plan's value, before their weights."""

    grounding: float
    mentions: float
    support: float
    words: float
    price: float

    @property
    def total(self) -> float:
        """The weighted sum: what plans are compared by."""
        gains = GROUNDING * self.grounding + MENTIONS * self.mentions
        return gains + SUPPORT * self.support + WORDS * self.words - PRICE * self.price


NOTHING = PlanValue(0.0, 0.0, 0.0, 0.0, 0.0)
"""Of a plan without intents."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What all plans of one issue are judged against.

    `ranks`: place in the issue's ranking, from 0, by piece; `mentioned`: evidence by piece;
    `words`: for pieces asked about, which of the issue's terms they hold; `tokens`: to be filled.
    """

    corpus: Corpus
    ranks: Mapping[int, int]
    mentioned: Mapping[int, float]
    words: IssueWords
    tokens: int

    def value(self, plan: Sequence[Grounded]) -> PlanValue:
        """The plan's value, intent by intent in its order."""
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
        """Mean over the hits of offset / (offset + rank); 0 for what the issue did not rank."""
        if not hits:
            return 0.0
        known = sorted(self.ranks[piece] for piece in hits if piece in self.ranks)
        return sum(_RANK_OFFSET / (_RANK_OFFSET + rank) for rank in known) / len(hits)


def scene_of(problem: Problem, signals: Signals, ranks: Mapping[int, int], tokens: int) -> Scene:
    """The scene of an issue, from the signals of its whole text."""
    weights = make_query(problem, Terms()).weights
    words = IssueWords(signals.corpus, weights)
    return Scene(signals.corpus, ranks, mentioned(signals), words, tokens)


class IssueWords:
    """Which of an issue's terms the pieces hold. The corpus has the postings of these terms only.

    `weights` float64 (q,): of the terms, in the order that the postings number them.
    """

    def __init__(self, corpus: Corpus, weights: NDArray[np.float64]) -> None:
        order = np.argsort(corpus.piece, kind="stable")
        self._pieces, self._terms = corpus.piece[order], corpus.term[order]
        documents = np.bincount(corpus.term, minlength=weights.size)
        self._worth = weights * inverse_frequency(len(corpus.piece_file), documents)
        self._worth[documents == 0] = 0.0  # what no piece holds, no plan can find

    def share(self, pieces: Collection[int]) -> float:
        """The share in [0, 1] of the issue's words that at least one of the pieces holds."""
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
