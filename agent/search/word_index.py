"""The words of a corpus: postings for BM25.

The formulas are those of `agent.retrieval.ranking.lexical`; a name weighs more than a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import Terms
from agent.retrieval.ranking import K1, NAME_WEIGHT, inverse_frequency, length_norm
from agent.search.passages import Passage, without_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class WordIndex:
    """The postings of `n` passages and their `v` distinct terms.

    `hashes` uint64 (v,), ascending. The postings of term i are `owner` int32 and `count` float32
    from `starts[i]` to `starts[i + 1]` (int64 (v + 1,)), owners ascending. `lengths` float64 (n,).
    """

    passages: tuple[Passage, ...]
    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64]
    owner: NDArray[np.int32]
    count: NDArray[np.float32]
    lengths: NDArray[np.float64]

    @cached_property
    def _mean(self) -> float:
        return float(self.lengths.mean()) if self.lengths.size else 0.0

    def bm25(self, weights: Mapping[int, float]) -> NDArray[np.float64]:
        """Score each passage (n,) for a query of weighted terms, by their hashes."""
        scores = np.zeros(len(self.passages))
        for term in sorted(weights):
            part = self.postings(term)
            if part is None:
                continue
            owners, counts = self.owner[part], self.count[part].astype(np.float64)
            found = np.array([owners.size], dtype=np.int64)
            rarity = float(inverse_frequency(scores.size, found)[0])
            norm = length_norm(self.lengths[owners], self._mean)
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
        part = self.postings(term)
        return 0 if part is None else part.stop - part.start

    def having(self, terms: Set[int]) -> frozenset[int]:
        """Return the numbers of the passages that contain all of these terms; none for no terms."""
        parts = [self.postings(term) for term in sorted(terms)]
        owners = [
            frozenset[int]() if p is None else frozenset(self.owner[p].tolist()) for p in parts
        ]
        return frozenset.intersection(*owners) if owners else frozenset()

    def postings(self, term: int) -> slice | None:
        """Return the slice of `owner` and `count` for a term by its hash, if anything has it."""
        key = np.uint64(term)
        at = int(np.searchsorted(self.hashes, key))
        if at == self.hashes.size or self.hashes[at] != key:
            return None
        return slice(int(self.starts[at]), int(self.starts[at + 1]))


def build_word_index(passages: Sequence[Passage]) -> WordIndex:
    """Count the terms of every passage, once for each distinct text."""
    terms = Terms()
    known: dict[tuple[str, str], dict[int, float]] = {}
    owners: list[NDArray[np.int32]] = []
    keys: list[NDArray[np.uint64]] = []
    counts: list[NDArray[np.float32]] = []
    lengths = np.zeros(len(passages))
    for number, passage in enumerate(passages):
        own = known.get((passage.symbol, passage.text))
        if own is None:
            own = known[passage.symbol, passage.text] = _counts(passage, terms)
        keys.append(np.fromiter(own, dtype=np.uint64, count=len(own)))
        counts.append(np.fromiter(own.values(), dtype=np.float32, count=len(own)))
        owners.append(np.full(len(own), number, dtype=np.int32))
        lengths[number] = sum(own.values())
    owner = np.concatenate([np.empty(0, np.int32), *owners])
    key = np.concatenate([np.empty(0, np.uint64), *keys])
    count = np.concatenate([np.empty(0, np.float32), *counts])
    order = np.argsort(key, kind="stable")
    hashes, first = np.unique(key[order], return_index=True)
    starts = np.concatenate([first, [key.size]]).astype(np.int64)
    return WordIndex(tuple(passages), hashes, starts, owner[order], count[order], lengths)


def _counts(passage: Passage, terms: Terms) -> dict[int, float]:
    counts: dict[int, float] = {
        key: float(number)
        for key, number in terms.count_hashes(without_labels(passage.text)).items()
    }
    for key, number in terms.count_hashes(passage.symbol).items():
        counts[key] = counts.get(key, 0.0) + (NAME_WEIGHT - 1.0) * number
    return counts
