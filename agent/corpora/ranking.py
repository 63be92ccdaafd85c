"""The order within one corpus: words and vectors, fused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.corpora.formats import Query
from agent.corpora.fusion import LEXICAL_WEIGHT, RRF_K, VECTOR_WEIGHT, Order, fuse_orders
from agent.corpora.synonyms import synonyms, word_for
from agent.retrieval.identifiers import Terms, term_hash

if TYPE_CHECKING:
    from agent.corpora.shelf import Shelf

KEYWORD_WEIGHT = 0.3
"""Of a word that a model suggests, beside one of the query."""

MAX_FOUND = 1_000
"""Passages of one search; far more than are shown."""

WORDS, VECTORS = "words", "vectors"


@dataclass(frozen=True, slots=True)
class ProjectWords:
    """A query's terms for one corpus: weights by hash; `note` names what was added to it."""

    weights: Mapping[int, float]
    note: str = ""

    def best(self, shelf: Shelf, limit: int) -> list[int]:
        """Numbers of the passages that share words with the query, best first; ties by number."""
        scores = shelf.bm25(self.weights)
        found = np.flatnonzero(scores > 0.0)
        if found.size > limit:
            least = np.partition(scores[found], -limit)[-limit]
            found = found[scores[found] >= least]
        order = found[np.argsort(-scores[found], kind="stable")]
        return [int(number) for number in order[:limit]]


@dataclass(frozen=True, slots=True)
class Found:
    """A passage by number. `shares`: by search its place, and what of the score it gave."""

    number: int
    score: float
    shares: tuple[tuple[str, int, float], ...]


def weights_of(
    query: Query, keywords: Sequence[str], shelf: Shelf, with_synonyms: bool
) -> ProjectWords:
    """Terms of the query, each weighing log(1 + occurrences), and those added to it."""
    terms = Terms()
    weights = {term_hash(t): math.log1p(n) for t, n in terms.count(query.text).items()}
    added: list[str] = []
    for keyword in keywords:
        for term in terms.of_word(keyword):
            weights.setdefault(term_hash(term), KEYWORD_WEIGHT)
        added.append(keyword)
    if with_synonyms:
        more = synonyms(shelf, weights)
        added += [word for term in more if (word := word_for(shelf, term))]
        weights |= more
    return ProjectWords(weights, f"with {', '.join(added)}" if added else "")


def rank_corpus(
    shelf: Shelf, words: ProjectWords, near: Sequence[tuple[int, float]]
) -> tuple[Found, ...]:
    """All that words or vectors find, best first. `near`: numbers and scores, best first."""
    orders = [Order(WORDS, words.best(shelf, MAX_FOUND), LEXICAL_WEIGHT)]
    if near:
        orders.append(Order(VECTORS, [number for number, _ in near], VECTOR_WEIGHT))
    weights = {order.name: order.weight for order in orders}
    total = sum(weights.values())
    return tuple(
        Found(
            one.number,
            one.score,
            tuple(
                (name, rank, weights[name] / total * (RRF_K + 1) / (RRF_K + rank))
                for name, rank in one.ranks
            ),
        )
        for one in fuse_orders(orders)
    )
