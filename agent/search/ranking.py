"""The order within one corpus: words and vectors, fused by weighted reciprocal rank fusion.

Cormack, Clarke & Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and Individual Rank
Learning Methods" (SIGIR 2009): the sum of weight / (k + rank). It is divided by the sum for a first
rank in every order, so a score is in [0, 1].
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import WORD, Terms, term_hash
from agent.search.passages import Label
from agent.search.text_format import Query
from agent.search.word_index import synonyms, word_for

if TYPE_CHECKING:
    from agent.search.word_index import WordIndex

RRF_K = 60
"""The constant of the paper.

A larger value reduces the advantage of the first ranks. kodiai uses the same value between corpora.
"""

LEXICAL_WEIGHT = 1.0
VECTOR_WEIGHT = 1.0
"""Words and vectors have equal weight within a corpus, because neither was better on all
corpora.
"""

CORPUS_WEIGHTS: Mapping[Label, float] = {
    Label.CODE: 1.0,
    Label.DOCS: 0.98,
    Label.INTENT: 0.98,
    Label.HISTORY: 0.97,
    Label.MEMORY: 0.97,
    Label.VECTORS: 0.97,
}
"""Weight of each corpus by default.

Code comes first and past changes last. With k = 60 a small difference already moves a result by one
or two ranks. Larger differences would hide a corpus that the user asked for.
"""


@dataclass(frozen=True, slots=True)
class RankedList:
    """The result of one search: numbers, best first, and the weight of the search."""

    name: str
    numbers: Sequence[int]
    weight: float


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused number. `score` is in [0, 1]; `ranks` has the rank (from 1) by name of the search."""

    number: int
    score: float
    ranks: tuple[tuple[str, int], ...]


def fuse_orders(orders: Sequence[RankedList], k: int = RRF_K) -> tuple[Fused, ...]:
    """Fuse orders; return results by falling score, then number.

    A number counts once in each order, at its best rank.
    """
    sums: defaultdict[int, float] = defaultdict(float)
    ranks: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for order in orders:
        for rank, number in enumerate(dict.fromkeys(order.numbers), start=1):
            sums[number] += order.weight / (k + rank)
            ranks[number].append((order.name, rank))
    best = sum(order.weight for order in orders) / (k + 1)
    fused = [Fused(n, value / best, tuple(ranks[n])) for n, value in sums.items()]
    return tuple(sorted(fused, key=lambda one: (-one.score, one.number)))


def rank_score(rank: int, k: int = RRF_K) -> float:
    """Return the score in (0, 1] of the result at `rank` (from 1) of a corpus of weight 1."""
    return (k + 1) / (k + rank)


KEYWORD_WEIGHT = 0.3
"""Weight of a word that a model suggests, relative to a word of the query."""

MAX_LITERALS = 12
"""Names are only matched verbatim in queries of at most this many words, because a long issue text
contains unrelated names.
"""

MAX_RARE = 20
"""If more passages contain a name, it does not move them to the top.

A person can look through this many.
"""

# Names that are not words of a natural language: NO_COLOR, fooBar, x86, HTTP2, ISO.
_SHAPED = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]|[^\W\d_]\d|^[A-Z]{2,}$")

MAX_FOUND = 1_000
"""Maximum passages of one search, far more than are shown."""

WORDS, VECTORS = "words", "vectors"


@dataclass(frozen=True, slots=True)
class ProjectWords:
    """A query's terms for one corpus: weights by hash. `note` lists the added words."""

    weights: Mapping[int, float]
    note: str = ""
    literals: frozenset[int] = frozenset()  # hashes of the names in the query

    def best(self, word_index: WordIndex, limit: int) -> list[int]:
        """Return the passages that share words with the query, best first; ties by number."""
        scores = word_index.bm25(self.weights)
        found = np.flatnonzero(scores > 0.0)
        if found.size > limit:
            least = np.partition(scores[found], -limit)[-limit]
            found = found[scores[found] >= least]
        order = found[np.argsort(-scores[found], kind="stable")]
        return [int(number) for number in order[:limit]]


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage by number. `shares` lists name of a search, rank in it, and part of the score.

    `matched` in [0, 1]: its BM25, relative to the most that a passage can get for the query.
    """

    number: int
    score: float
    shares: tuple[tuple[str, int, float], ...]
    literal: bool = False  # contains all names of the query
    matched: float = 0.0


def weights_of(
    query: Query, keywords: Sequence[str], word_index: WordIndex, with_synonyms: bool
) -> ProjectWords:
    """Return the terms of the query with weight log(1 + occurrences), and the added terms."""
    terms = Terms()
    weights = {term_hash(t): math.log1p(n) for t, n in terms.count(query.text).items()}
    added: list[str] = []
    for keyword in keywords:
        for term in terms.of_word(keyword):
            weights.setdefault(term_hash(term), KEYWORD_WEIGHT)
        added.append(keyword)
    if with_synonyms:
        more = synonyms(word_index, weights)
        added += [word for term in more if (word := word_for(word_index, term))]
        weights |= more
    literals = literals_of(query, word_index, terms)
    return ProjectWords(weights, f"with {', '.join(added)}" if added else "", literals)


def literals_of(query: Query, word_index: WordIndex, terms: Terms) -> frozenset[int]:
    """Return the hashes of names that must match verbatim (`NO_COLOR`, `fooBar`), if they are rare.

    If the query is a single identifier, it may also be frequent, unless it is a plain word.
    """
    words = list(dict.fromkeys(WORD.findall(query.text)))[: MAX_LITERALS + 1]
    shaped = [word for word in words if _SHAPED.search(word)]
    alone = query.kind == "identifier"
    chosen = words if alone else shaped
    if not chosen or len(words) > MAX_LITERALS:
        return frozenset()
    whole = [found[0] for word in chosen if (found := terms.of_word(word))]
    counts = {key: word_index.frequency(key) for key in map(term_hash, whole)}
    named = alone and (bool(shaped) or len(words) > 1)
    return frozenset(key for key, n in counts.items() if n and (named or n <= MAX_RARE))


def rank_corpus(
    word_index: WordIndex, words: ProjectWords, near: Sequence[tuple[int, float]]
) -> tuple[RankedPassage, ...]:
    """Return all passages found by words or vectors, best first.

    `near` has numbers and scores, best first. Passages with all `words.literals` come first,
    ordered by words and then by vectors: embedding models represent rare names poorly.
    """
    scores = word_index.bm25(words.weights)
    most = word_index.most(words.weights) or 1.0
    found = tuple(
        replace(one, matched=float(scores[one.number]) / most)
        for one in _fused(word_index, words, near)
    )
    having = word_index.having(words.literals)
    if not having:
        return found
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
    word_index: WordIndex, words: ProjectWords, near: Sequence[tuple[int, float]]
) -> tuple[RankedPassage, ...]:
    orders = [RankedList(WORDS, words.best(word_index, MAX_FOUND), LEXICAL_WEIGHT)]
    if near:
        orders.append(RankedList(VECTORS, [number for number, _ in near], VECTOR_WEIGHT))
    weights = {order.name: order.weight for order in orders}
    total = sum(weights.values())
    return tuple(
        RankedPassage(
            one.number,
            one.score,
            tuple(
                (name, rank, weights[name] / total * (RRF_K + 1) / (RRF_K + rank))
                for name, rank in one.ranks
            ),
        )
        for one in fuse_orders(orders)
    )
