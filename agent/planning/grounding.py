"""Grounding: which pieces of the snapshot an intent means, by the retriever's own signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from agent.planning.intents import Intent
from agent.types import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.corpus import Corpus
    from agent.retrieval.several import SeveralQueries
    from agent.retrieval.signals import Signals
    from agent.types import Ranking

HITS = 6
"""Of an intent, the best: what it means. More than a handful is no answer any more."""

DEPTH = 200
"""Of an intent, what is remembered for the widened order; past this rank nothing is gained."""

_BACKGROUND = 4  # times HITS: what the first hits are held against
TOKENS_A_TERM = 2.0
"""What a piece costs a prompt, from the terms that the index counted (median of ten projects)."""


@dataclass(frozen=True, slots=True)
class Grounded:
    """What an intent found: numbers of pieces of the corpus, by falling score, DEPTH at most.

    `strength` in [0, 1]: the share of the intent's words, rare ones counting more, that its best
    hit holds. `specificity` in [0, 1]: how far the HITS stand out from what follows them.
    """

    intent: Intent
    pieces: tuple[int, ...]
    strength: float
    specificity: float

    @property
    def hits(self) -> tuple[int, ...]:
        """The first HITS."""
        return self.pieces[:HITS]

    @property
    def quality(self) -> float:
        """In [0, 1]: how well it is grounded; what its ranking weighs by."""
        return self.strength * (1.0 + self.specificity) / 2.0


@dataclass(slots=True)
class Grounder:
    """Grounds intents, each distinct query once; at most `limit` of them are ranked."""

    queries: SeveralQueries
    limit: int
    _known: dict[str, Grounded] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        """Queries ranked so far."""
        return len(self._known)

    @property
    def corpus(self) -> Corpus:
        """What pieces are numbered in."""
        return self.queries.corpus

    def ground(self, intents: Sequence[Intent]) -> tuple[Grounded, ...] | None:
        """What each found; None where the limit does not allow for all of them."""
        fresh = {i.query: i for i in intents if i.query not in self._known}
        if self.spent + len(fresh) > self.limit:
            return None
        signals = self.queries.signals([Problem(query, "") for query in fresh])
        for intent, own in zip(fresh.values(), signals, strict=True):
            self._known[intent.query] = grounded(intent, own)
        return tuple(self._known[intent.query] for intent in intents)


def grounded(intent: Intent, signals: Signals) -> Grounded:
    """What the signals of an intent's query say."""
    scores = signals.pieces
    best = _best(scores, DEPTH)
    if not best.size:
        return Grounded(intent, (), 0.0, 0.0)
    coverage = signals.piece_columns["coverage"][best[:HITS]]
    return Grounded(
        intent, tuple(best.tolist()), float(coverage.max()), _standing_out(scores[best])
    )


def _best(scores: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Positions of the `limit` highest scores above 0; ties by position."""
    positions = np.flatnonzero(scores > 0.0)
    if positions.size > limit:
        least = np.partition(scores[positions], -limit)[-limit]
        positions = positions[scores[positions] >= least]
    order = np.argsort(-scores[positions], kind="stable")
    return positions[order][:limit].astype(np.int64)


def _standing_out(scores: NDArray[np.float64]) -> float:
    """1 - mean of what follows the hits / mean of the hits."""
    after = scores[HITS : HITS * (1 + _BACKGROUND)]
    first = float(scores[:HITS].mean())
    return 1.0 - float(after.mean()) / first if after.size and first > 0.0 else 1.0


def numbers_of(ranking: Ranking, corpus: Corpus) -> dict[int, int]:
    """Place in the ranking, from 0, by the number of the piece; of what the corpus has."""
    places = {
        (c.path, c.start, c.end, c.symbol): rank
        for rank, c in enumerate(scored.chunk for scored in ranking.chunks)
    }
    paths = {place[0] for place in places}
    found: dict[int, int] = {}
    for file, source in enumerate(corpus.files):
        for number, piece in corpus.pieces_of(file) if source.path in paths else ():
            rank = places.get((source.path, piece.start, piece.end, piece.symbol))
            if rank is not None:
                found[number] = rank
    return found


def tokens_of(corpus: Corpus, pieces: Sequence[int] | frozenset[int]) -> float:
    """About what the pieces cost a prompt."""
    return float(corpus.text_lengths[sorted(pieces)].sum()) * TOKENS_A_TERM


def mentioned(signals: Signals) -> Mapping[int, float]:
    """What the issue names, by the number of the piece: the sum of its evidence."""
    pieces = signals.evidence.pieces
    return {n: sum(sorted(r.value for r in pieces[n].values())) for n in sorted(pieces)}
