"""The order of results: words (BM25) and vectors within a corpus, then all corpora in one order.

Both use weighted reciprocal rank fusion (Cormack, Clarke & Büttcher, SIGIR 2009). The relevance of
a passage, by which prompts get it, is a probability by a logistic regression, which never rises
from rank to rank (docs/design/search.md).
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import WORD, Terms, term_hash
from agent.retrieval.ranking import K1, NAME_WEIGHT, inverse_frequency, length_norm
from agent.search.passages import Label, Passage, PoolHit, Query, without_labels
from agent.types import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

RRF_K = 60  # of the paper

CORPUS_WEIGHTS: Mapping[Label, float] = {
    Label.CODE: 1.0,
    Label.DOCS: 0.98,
    Label.INTENT: 0.98,
    Label.HISTORY: 0.97,
    Label.MEMORY: 0.97,
    Label.VECTORS: 0.97,
}
"""With k = 60 a small difference moves a result by one or two ranks; larger ones would hide a
corpus that the user asked for.
"""

# constant and weights: log(rank), share of the most BM25, share - mean of the following ones
_OF_PASSAGES = (-1.348, -1.536, 1.425, 2.344)
_FOLLOWING = 5  # results whose mean share a result is compared with


def passage_relevance(shares: Sequence[float]) -> list[float]:
    """Return the probability that each result of a corpus is what the query describes."""
    constant, of_rank, of_share, of_lead = _OF_PASSAGES
    probabilities = []
    for at, share in enumerate(shares):
        after = shares[at + 1 : at + 1 + _FOLLOWING]
        lead = share - sum(after) / len(after) if after else 0.0
        logit = constant + of_rank * math.log(at + 1) + of_share * share + of_lead * lead
        probabilities.append(1.0 / (1.0 + math.exp(-logit)))
    return list(accumulate(probabilities, min))


# --------------------------------------------------------------------------- words of a corpus


@dataclass(frozen=True)
class WordIndex:
    """The words of `n` passages: `postings` has, by the hash of a term, the numbers of its passages
    (ascending) and its counts in them. `lengths` float64 (n,).
    """

    passages: tuple[Passage, ...]
    postings: Mapping[int, tuple[array[int], array[float]]]
    lengths: NDArray[np.float64]

    def bm25(self, weights: Mapping[int, float]) -> NDArray[np.float64]:
        """Score each passage (n,) for a query of weighted terms, by their hashes."""
        scores = np.zeros(len(self.passages))
        mean = float(self.lengths.mean()) if self.lengths.size else 0.0
        for term in sorted(weights.keys() & self.postings.keys()):
            owners, counts = (np.array(column) for column in self.postings[term])
            found = np.array([owners.size], dtype=np.int64)
            rarity = float(inverse_frequency(scores.size, found)[0])
            norm = length_norm(self.lengths[owners], mean)
            scores[owners] += weights[term] * rarity * counts * (K1 + 1) / (counts + norm)
        return scores

    def most(self, weights: Mapping[int, float]) -> float:
        """Return what a passage with endless repetitions of all terms would score."""
        size = len(self.passages)
        held = np.array([self.frequency(term) for term in sorted(weights)], dtype=np.int64)
        rarity = inverse_frequency(size, held)
        weighted = rarity * np.array([weights[term] for term in sorted(weights)])
        return float(weighted.sum()) * (K1 + 1)

    def frequency(self, term: int) -> int:
        """Return the number of passages that contain a term, by its hash."""
        return len(self.postings[term][0]) if term in self.postings else 0

    def having(self, terms: Set[int]) -> frozenset[int]:
        """Return the numbers of the passages that contain all of these terms; none for no terms."""
        owners = [frozenset(self.postings.get(term, ((),))[0]) for term in terms]
        return frozenset.intersection(*owners) if owners else frozenset()


def build_word_index(passages: Sequence[Passage]) -> WordIndex:
    """Count the terms of every passage, once for each distinct text."""
    terms = Terms()
    known: dict[tuple[str, str], dict[int, float]] = {}
    postings: dict[int, tuple[array[int], array[float]]] = {}
    lengths = np.zeros(len(passages))
    for number, passage in enumerate(passages):
        own = known.get((passage.symbol, passage.text))
        if own is None:
            own = known[passage.symbol, passage.text] = _counts(passage, terms)
        for term, count in own.items():
            if term not in postings:
                postings[term] = array("i"), array("d")
            owners, counts = postings[term]
            owners.append(number)
            counts.append(count)
        lengths[number] = sum(own.values())
    return WordIndex(tuple(passages), postings, lengths)


def _counts(passage: Passage, terms: Terms) -> dict[int, float]:
    counts: dict[int, float] = {
        key: float(number)
        for key, number in terms.count_hashes(without_labels(passage.text)).items()
    }
    for key, number in terms.count_hashes(passage.symbol).items():
        counts[key] = counts.get(key, 0.0) + (NAME_WEIGHT - 1.0) * number
    return counts


# ------------------------------------------------------------------------------------- one corpus

_KEYWORD_WEIGHT = 0.3  # of a word that a model suggests, relative to a word of the query
_MAX_LITERALS = 12  # a longer query, such as an issue, contains unrelated names
_MAX_RARE = 20  # a name that more passages contain does not move them to the top
_MAX_RESULTS = 1_000  # passages of one search, far more than are shown

# Names that are not words of a natural language: NO_COLOR, fooBar, x86, HTTP2, ISO.
_SHAPED = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]|[^\W\d_]\d|^[A-Z]{2,}$")


@dataclass(frozen=True, slots=True)
class ProjectWords:
    """A query's terms for one corpus: weights by hash. `note` lists the added words."""

    weights: Mapping[int, float]
    note: str = ""
    literals: frozenset[int] = frozenset()  # hashes of the names in the query

    def best(self, word_index: WordIndex, limit: int) -> list[int]:
        """Return the passages that share words with the query, best first; ties by number."""
        scores = word_index.bm25(self.weights)
        numbers = np.flatnonzero(scores > 0.0)
        order = numbers[np.argsort(-scores[numbers], kind="stable")]
        return [int(number) for number in order[:limit]]


def weights_of(query: Query, keywords: Sequence[str], word_index: WordIndex) -> ProjectWords:
    """Return the terms of the query with weight log(1 + occurrences), and the added terms."""
    terms = Terms()
    weights = {term_hash(t): math.log1p(n) for t, n in terms.count(query.text).items()}
    for keyword in keywords:
        for term in terms.of_word(keyword):
            weights.setdefault(term_hash(term), _KEYWORD_WEIGHT)
    note = f"with {', '.join(keywords)}" if keywords else ""
    return ProjectWords(weights, note, _literals(query, word_index, terms))


def _literals(query: Query, word_index: WordIndex, terms: Terms) -> frozenset[int]:
    """Return the hashes of rare names that must match verbatim (`NO_COLOR`, `fooBar`)."""
    words = list(dict.fromkeys(WORD.findall(query.text)))[: _MAX_LITERALS + 1]
    shaped = [word for word in words if _SHAPED.search(word)]
    alone = query.kind == "identifier"
    chosen = words if alone else shaped
    if len(words) > _MAX_LITERALS:
        return frozenset()
    keys = [term_hash(of_word[0]) for word in chosen if (of_word := terms.of_word(word))]
    frequent_too = alone and (bool(shaped) or len(words) > 1)
    most = len(word_index.passages) if frequent_too else _MAX_RARE
    return frozenset(key for key in keys if 0 < word_index.frequency(key) <= most)


def rank_corpus(
    word_index: WordIndex,
    words: ProjectWords,
    near: Sequence[tuple[int, float]],
    most: int,
    *,
    by_symbol: bool = False,
) -> list[PoolHit]:
    """Return the best `most` passages of a corpus for a query. Their scores are set by `merged`.

    `near`: numbers and similarities of the vector search, best first. Passages with all
    `words.literals` come first, because embedding models represent rare names poorly. `by_symbol`:
    only the best passage of each symbol.
    """
    bm25 = word_index.bm25(words.weights)
    orders = {"words": words.best(word_index, _MAX_RESULTS)}
    if near:
        orders["vectors"] = [number for number, _ in near]
    shares: dict[int, dict[str, int]] = {}
    for name, numbers in orders.items():
        for rank, number in enumerate(dict.fromkeys(numbers), start=1):
            shares.setdefault(number, {})[name] = rank
    literal = word_index.having(words.literals)
    places = {number: place for place, (number, _) in enumerate(near)}

    def order(number: int) -> tuple[float, ...]:
        if number in literal:
            return 0, -round(float(bm25[number]), 9), places.get(number, _MAX_RESULTS), number
        return 1, -sum(rank_score(rank) for rank in shares[number].values()), number

    best = sorted(shares, key=order)
    if by_symbol:
        symbols: dict[tuple[str, str], int] = {}
        for number in best:
            passage = word_index.passages[number]
            symbols.setdefault((passage.path, passage.symbol), number)
        best = list(symbols.values())
    best = best[:most]
    highest, similarities = word_index.most(words.weights) or 1.0, dict(near)
    relevance = passage_relevance([float(bm25[number]) / highest for number in best])
    hits = []
    for rank, number in enumerate(best, start=1):
        similarity, found = similarities.get(number, 0.0), float(bm25[number])
        reasons = [
            Reason(name, rank_score(place) / len(orders), _note(name, place, words))
            for name, place in shares[number].items()
        ]
        if number in literal:
            reasons.insert(0, Reason("verbatim", 0.0, "has the query's names: before all others"))
        hits.append(
            PoolHit(
                word_index.passages[number],
                0.0,
                tuple(reasons),
                similarity=similarity,
                value=similarity or found,
                score_name="cosine" if similarity else "bm25",
                rank=rank,
                relevance=relevance[rank - 1],
            )
        )
    return hits


def _note(name: str, place: int, words: ProjectWords) -> str:
    return f"place {place}; {words.note}" if name == "words" and words.note else f"place {place}"


def rank_score(rank: int) -> float:
    """Return the score in (0, 1] of the result at `rank` (from 1) of a search of weight 1."""
    return (RRF_K + 1) / (RRF_K + rank)


# ------------------------------------------------------------------------------------ all corpora

NEAR = 0.90
"""Jaccard similarity from which two texts are merged."""

_SHINGLE = 3  # words per shingle
_MAX_WORDS = 2_000
_ANY_WORD = re.compile(r"\w+")
_PLACE = {label: number for number, label in enumerate(Label)}


def merged(hits: Iterable[PoolHit], weights: Mapping[Label, float]) -> tuple[PoolHit, ...]:
    """Return hits with scores in total order; the first of nearly equal ones stands for all."""
    top = max(weights.values()) or 1.0
    scored = ordered(
        replace(hit, score=weights[hit.passage.corpus] * rank_score(hit.rank) / top) for hit in hits
    )
    groups: list[tuple[frozenset[str], list[PoolHit]]] = []
    for hit in scored:
        own = _shingles(hit.passage.text)
        group = next((group for first, group in groups if _is_near(own, first)), None)
        if group is None:
            groups.append((own, [hit]))
        else:
            group.append(hit)
    return tuple(_joined(group) for _, group in groups)


def _shingles(text: str) -> frozenset[str]:
    """Return all runs of three lower-case words, or the words of a shorter text."""
    words = _ANY_WORD.findall(without_labels(text).lower())[:_MAX_WORDS]
    last = max(1, len(words) - _SHINGLE + 1)
    return frozenset(" ".join(words[at : at + _SHINGLE]) for at in range(last)) - {""}


def _is_near(one: frozenset[str], other: frozenset[str]) -> bool:
    if not min(len(one), len(other)) >= NEAR * max(len(one), len(other), 1):
        return False
    common = len(one & other)
    return common >= NEAR * (len(one) + len(other) - common)


def _joined(group: Sequence[PoolHit]) -> PoolHit:
    first = group[0]
    same: list[Passage] = [*first.passage.also]
    for hit in group[1:]:
        same += [hit.passage, *hit.passage.also]
    return replace(
        first,
        same=tuple(same),
        similarity=max(hit.similarity for hit in group),
        relevance=max(hit.relevance for hit in group),
    )


def ordered(hits: Iterable[PoolHit]) -> tuple[PoolHit, ...]:
    """Sort by falling score, then corpus, path, start, origin, title."""

    def key(hit: PoolHit) -> tuple[float, int, str, int, str, str]:
        one = hit.passage
        return -hit.score, _PLACE[one.corpus], one.path, one.start, one.origin, one.title

    return tuple(sorted(hits, key=key))
