"""The words of a corpus: what BM25 and co-occurrence need to know of its passages, kept on disk.

Formulas as in `agent.retrieval.lexical`; the name of a passage counts more than its text.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.corpora.formats import without_labels
from agent.corpora.passages import Passage
from agent.models.archive import read_arrays
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import K1, NAME_WEIGHT, inverse_frequency, length_norm
from agent.retrieval.store import RecordStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter

FORMAT = 1
"""Raise when terms or the layout change."""

_LIMIT = 512 * 1024**2  # bytes of the cache file
_ARRAYS = ("hashes", "starts", "owner", "count", "lengths")


@dataclass(frozen=True)
class Shelf:
    """`n` passages and their `v` distinct terms.

    `hashes` uint64 (v,), ascending; the postings of term i are `owner` int32 and `count` float32
    from `starts[i]` to `starts[i + 1]` (int64 (v + 1,)), owners ascending; `lengths` float64 (n,).
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
        """Score (n,) of each passage for a query of weighted terms, by their hashes."""
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

    def frequency(self, term: int) -> int:
        """How many passages have a term, by its hash."""
        part = self.postings(term)
        return 0 if part is None else part.stop - part.start

    def having(self, terms: Set[int]) -> frozenset[int]:
        """Numbers of the passages that have all of these terms; none for no terms."""
        parts = [self.postings(term) for term in sorted(terms)]
        owners = [
            frozenset[int]() if p is None else frozenset(self.owner[p].tolist()) for p in parts
        ]
        return frozenset.intersection(*owners) if owners else frozenset()

    def postings(self, term: int) -> slice | None:
        """Where `owner` and `count` hold a term, by its hash; None where no passage has it."""
        key = np.uint64(term)
        at = int(np.searchsorted(self.hashes, key))
        if at == self.hashes.size or self.hashes[at] != key:
            return None
        return slice(int(self.starts[at]), int(self.starts[at + 1]))


@dataclass(frozen=True, slots=True)
class Shelves:
    """Makes shelves. `path` None: nothing is kept between runs."""

    path: Path | None
    reporter: Reporter

    def of(self, passages: Sequence[Passage]) -> Shelf:
        """The shelf of these passages, from the cache where their texts are known."""
        key = _key(passages)
        with RecordStore(self.path, reporter=self.reporter, limit=_LIMIT) as store:
            data = store.get([key]).get(key)
            known = None if data is None else _decode(data, passages)
            if known is not None:
                return known
            shelf = make_shelf(passages)
            store.put([(key, _encode(shelf))])
        return shelf


def make_shelf(passages: Sequence[Passage]) -> Shelf:
    """Counts the terms of every passage; each distinct text once."""
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
    return Shelf(tuple(passages), hashes, starts, owner[order], count[order], lengths)


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


def _encode(shelf: Shelf) -> bytes:
    """Uncompressed: reading it back is what every query waits for."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = {name: getattr(shelf, name) for name in _ARRAYS}
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def _decode(data: bytes, passages: Sequence[Passage]) -> Shelf | None:
    """The shelf in a record; None for anything that is not one of these passages."""
    arrays: Mapping[str, Any] | None = read_arrays(data)
    if arrays is None or not arrays.keys() >= set(_ARRAYS):
        return None
    shelf = Shelf(tuple(passages), *(arrays[name] for name in _ARRAYS))
    return shelf if _is_sound(shelf) else None


def _is_sound(shelf: Shelf) -> bool:
    size = shelf.owner.size
    return (
        shelf.hashes.dtype == "u8"
        and shelf.starts.dtype == "i8"
        and shelf.owner.dtype == "i4"
        and shelf.count.dtype == "f4"
        and shelf.lengths.dtype == "f8"
        and shelf.lengths.shape == (len(shelf.passages),)
        and shelf.starts.shape == (shelf.hashes.size + 1,)
        and shelf.count.shape == shelf.owner.shape == (size,)
        and bool((np.diff(shelf.starts) >= 0).all())
        and (not size or int(shelf.starts[0]) == 0)
        and int(shelf.starts[-1]) == size
        and (not size or (int(shelf.owner.min()) >= 0))
        and (not size or int(shelf.owner.max()) < len(shelf.passages))
    )
