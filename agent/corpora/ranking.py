"""The order within one corpus: words and vectors, fused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.corpora.formats import Query
from agent.corpora.fusion import LEXICAL_WEIGHT, RRF_K, VECTOR_WEIGHT, Order, fuse_orders
from agent.corpora.synonyms import synonyms, word_for
from agent.retrieval.identifiers import WORD, Terms, term_hash

if TYPE_CHECKING:
    from agent.corpora.shelf import Shelf

KEYWORD_WEIGHT = 0.3
"""Of a word that a model suggests, beside one of the query."""

MAX_LITERALS = 12
"""Words of a query whose names are looked for verbatim: an issue has names of all sorts."""

MAX_RARE = 20
"""Passages that a name may stand in to lead alone: what a person looks through."""

# Names that are no words of a language: NO_COLOR, fooBar, x86, HTTP2, ISO.
_SHAPED = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]|[^\W\d_]\d|^[A-Z]{2,}$")

MAX_FOUND = 1_000
"""Passages of one search; far more than are shown."""

WORDS, VECTORS = "words", "vectors"


@dataclass(frozen=True, slots=True)
class ProjectWords:
    """A query's terms for one corpus: weights by hash; `note` names what was added to it."""

    weights: Mapping[int, float]
    note: str = ""
    literals: frozenset[int] = frozenset()  # hashes of the names that it asks for

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
    literal: bool = False  # it has all the names of the query


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
    literals = literals_of(query, shelf, terms)
    return ProjectWords(weights, f"with {', '.join(added)}" if added else "", literals)


def literals_of(query: Query, shelf: Shelf, terms: Terms) -> frozenset[int]:
    """What a query asks for verbatim, as hashes: its names (`NO_COLOR`, `fooBar`), where rare.

    A query of one identifier names it however often it occurs; a plain word alone is one if rare.
    """
    words = list(dict.fromkeys(WORD.findall(query.text)))[: MAX_LITERALS + 1]
    shaped = [word for word in words if _SHAPED.search(word)]
    alone = query.kind == "identifier"
    chosen = words if alone else shaped
    if not chosen or len(words) > MAX_LITERALS:
        return frozenset()
    whole = [found[0] for word in chosen if (found := terms.of_word(word))]
    counts = {key: shelf.frequency(key) for key in map(term_hash, whole)}
    named = alone and (bool(shaped) or len(words) > 1)
    return frozenset(key for key, n in counts.items() if n and (named or n <= MAX_RARE))


def rank_corpus(
    shelf: Shelf, words: ProjectWords, near: Sequence[tuple[int, float]]
) -> tuple[Found, ...]:
    """All that words or vectors find, best first. `near`: numbers and scores, best first.

    What has all `words.literals` comes before the rest, by words, and by vectors where those tie:
    a vector knows nothing of a name that it never met.
    """
    found = _fused(shelf, words, near)
    having = shelf.having(words.literals)
    if not having:
        return found
    scores = shelf.bm25(words.weights)
    first = [replace(one, literal=True) for one in found if one.number in having]
    places = {number: place for place, (number, _) in enumerate(near)}
    first.sort(
        key=lambda one: (
            -round(float(scores[one.number]), 9),
            places.get(one.number, MAX_FOUND),
            one.number,
        )
    )
    return (*first, *(one for one in found if one.number not in having))


def _fused(
    shelf: Shelf, words: ProjectWords, near: Sequence[tuple[int, float]]
) -> tuple[Found, ...]:
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
