"""The words of a corpus: postings for BM25, cached on disk.

The formulas are those of `agent.retrieval.ranking.lexical`; a name weighs more than a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.retrieval.index import Terms
from agent.retrieval.ranking import K1, NAME_WEIGHT, inverse_frequency, length_norm
from agent.retrieval.weights import read_arrays, write_arrays
from agent.search.passages import Passage, without_labels
from agent.shared.cache import RecordStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

FORMAT = 1
"""Increase this when terms or the layout change."""

_LIMIT = 512 * 1024**2  # maximum bytes of the cache file
_ARRAYS = ("hashes", "starts", "owner", "count", "lengths")


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


@dataclass(frozen=True, slots=True)
class WordIndexCache:
    """Builds word indexes or reads them from the cache. If `path` is None, nothing is cached."""

    path: Path | None
    reporter: Reporter

    def of(self, passages: Sequence[Passage]) -> WordIndex:
        """Return the index of these passages, from the cache if their texts are unchanged."""
        key = _key(passages)
        with RecordStore(self.path, reporter=self.reporter, limit=_LIMIT) as store:
            data = store.get([key]).get(key)
            known = None if data is None else _decode(data, passages)
            if known is not None:
                return known
            word_index = build_word_index(passages)
            arrays = {name: getattr(word_index, name) for name in _ARRAYS}
            store.put([(key, write_arrays(arrays, packed=False))])  # every query waits for reading
        return word_index


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


def _key(passages: Sequence[Passage]) -> bytes:
    digest = blake2b(f"{FORMAT}|{len(passages)}".encode(), digest_size=16, person=b"shelf")
    for passage in passages:
        for part in (passage.symbol, passage.text):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.digest()


def _decode(data: bytes, passages: Sequence[Passage]) -> WordIndex | None:
    """Decode an index; None if it does not fit these passages."""
    arrays: Mapping[str, Any] | None = read_arrays(data)
    if arrays is None or not arrays.keys() >= set(_ARRAYS):
        return None
    word_index = WordIndex(tuple(passages), *(arrays[name] for name in _ARRAYS))
    return word_index if _is_sound(word_index) else None


def _is_sound(index: WordIndex) -> bool:
    """Whether arrays of a cache file, which anybody may have edited, fit together."""
    size, passages = index.owner.size, len(index.passages)
    kinds = [getattr(index, name).dtype.str for name in _ARRAYS]
    shapes = [getattr(index, name).shape for name in _ARRAYS]
    expected = [(index.hashes.size,), (index.hashes.size + 1,), (size,), (size,), (passages,)]
    if kinds != ["<u8", "<i8", "<i4", "<f4", "<f8"] or shapes != expected:
        return False
    inside = not size or (index.owner.min() >= 0 and index.owner.max() < passages)
    rising = bool((np.diff(index.starts) >= 0).all())
    return bool(inside) and rising and (index.starts[0], index.starts[-1]) == (0, size)
