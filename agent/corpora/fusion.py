"""Weighted reciprocal rank fusion: orders of several searches become one.

Cormack, Clarke & Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and Individual Rank
Learning Methods" (SIGIR 2009): the sum of weight / (k + rank). Divided by what a first place in
every order would give, so that a score is in [0, 1].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.corpora.passages import Label

RRF_K = 60
"""Of the paper, and kodiai's between corpora: how little the very first places count for more."""

LEXICAL_WEIGHT = 1.0
VECTOR_WEIGHT = 1.0
"""Inside a corpus words and vectors count alike: neither was better on all corpora."""

CORPUS_WEIGHTS: Mapping[Label, float] = {
    Label.CODE: 1.0,
    Label.DOCS: 0.98,
    Label.INTENT: 0.98,
    Label.HISTORY: 0.97,
    Label.MEMORY: 0.97,
}
"""Of a corpus beside the others: code leads and the past comes last, but with k = 60 even a little
less means a place or two; whoever names a corpus wants to see its best among the first results."""


@dataclass(frozen=True, slots=True)
class Order:
    """One search's result: numbers of what was found, best first, and what the search weighs."""

    name: str
    numbers: Sequence[int]
    weight: float


@dataclass(frozen=True, slots=True)
class Fused:
    """`score` in [0, 1]; `ranks` says by name of the search on which place (1 first)."""

    number: int
    score: float
    ranks: tuple[tuple[str, int], ...]


def fuse_orders(orders: Sequence[Order], k: int = RRF_K) -> tuple[Fused, ...]:
    """By falling score, then number. Each number counts once in an order, at its best place."""
    sums: defaultdict[int, float] = defaultdict(float)
    ranks: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for order in orders:
        for rank, number in enumerate(dict.fromkeys(order.numbers), start=1):
            sums[number] += order.weight / (k + rank)
            ranks[number].append((order.name, rank))
    best = sum(order.weight for order in orders) / (k + 1)
    fused = [Fused(n, value / best, tuple(ranks[n])) for n, value in sums.items()]
    return tuple(sorted(fused, key=lambda one: (-one.score, one.number)))


def pool_score(label: Label, rank: int, k: int = RRF_K) -> float:
    """What a corpus's result on `rank` (1 first) scores in the pool, in [0, 1]."""
    return CORPUS_WEIGHTS[label] * (k + 1) / (k + rank)
