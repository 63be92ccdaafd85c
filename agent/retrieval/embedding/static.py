"""A static encoder: a text is the weighted sum of one vector per term, as the neural bag of words
in Husain et al., "CodeSearchNet Challenge" (2019). `python -m training.static` trains it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.retrieval.weights import MODELS, read_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index import PieceTerms

STATIC_MODEL = "static.npz"
FORMAT = 1
_AT_ONCE = 1_000  # occurrences of terms: half a megabyte, which fits in the processor's cache
HEADER = json.dumps({"format": FORMAT})
ARRAYS = ("hashes", "vectors", "scales", "query_weights", "document_weights")
NAME_BOOST = 1.0
"""Each occurrence in the name adds this to log(1 + occurrences in the text)."""


@dataclass(frozen=True, slots=True)
class StaticEncoder:
    """`v` terms of `d` dimensions: ascending `hashes` uint64 (v,), `vectors` int8 (v, d) times
    `scales` float32 (v,), weights of terms float32 (v,).
    """

    fingerprint: str
    hashes: NDArray[np.uint64]
    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]
    query_weights: NDArray[np.float32]
    document_weights: NDArray[np.float32]

    @property
    def dimension(self) -> int:
        """Dimension of every vector."""
        return int(self.vectors.shape[1])

    def encode(self, terms: PieceTerms) -> bytes:
        """Return the vectors of n pieces, int8 (n, d), as bytes: only the direction has meaning."""
        places = self._places(terms.vocabulary)
        present = np.flatnonzero(places[terms.terms] >= 0)
        width = np.uint16 if terms.size <= 1 << 16 else np.uint32  # numpy sorts uint16 by radix
        chosen = present[np.argsort(terms.pieces[present].astype(width), kind="stable")]
        weights = np.log1p(terms.counts[chosen]) + NAME_BOOST * terms.name_counts[chosen]
        at = places[terms.terms[chosen]]
        factors = self.scales[at] * self.document_weights[at] * weights.astype(np.float32)
        return quantised(self._sums(terms.pieces[chosen], at, factors, terms.size)).tobytes()

    def query(
        self, hashes: NDArray[np.uint64], weights: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Return the normalised vector (d,) of weighted terms (q,); zero if no term is known."""
        places = self._places(hashes)
        at, known = places[places >= 0], weights[places >= 0].astype(np.float32)
        factors = self.scales[at] * self.query_weights[at] * known
        row = self._sums(np.zeros(at.size, dtype=np.int64), at, factors, 1)[0]
        length = float(np.linalg.norm(row))
        return np.asarray(row / length if length > 0.0 else row)

    def _places(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the number of each term, -1 for unknown ones."""
        if not self.hashes.size:
            return np.full(hashes.size, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), self.hashes.size - 1)
        return np.where(self.hashes[at] == hashes, at, -1)

    def _sums(
        self,
        owners: NDArray[np.int64],
        at: NDArray[np.int64],
        factors: NDArray[np.float32],
        size: int,
    ) -> NDArray[np.float32]:
        """Return for each owner (ascending) the weighted sum of its terms' vectors, (size, d)."""
        sums = np.zeros((size, self.dimension), dtype=np.float32)
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        ends = np.append(starts[1:], owners.size)
        first = 0
        while first < starts.size:
            start = starts[first]
            last = max(int(np.searchsorted(ends, start + _AT_ONCE, side="right")), first + 1)
            part = slice(start, ends[last - 1])
            scaled = self.vectors.take(at[part], axis=0).astype(np.float32)
            scaled *= factors[part, None]
            rows = starts[first:last]
            sums[owners[rows]] = np.add.reduceat(scaled, rows - start, axis=0)
            first = last
        return sums


def quantised(rows: NDArray[np.float32]) -> NDArray[np.int8]:
    """Scale each row to the range of int8."""
    top = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(np.rint(rows * (127.0 / np.maximum(top, 1e-12))), dtype=np.int8)


def static_cosines(query: NDArray[np.float32], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return the cosine of each row (n, d) with the normalised query (d,); NaN for zero rows."""
    cosines = np.full(len(rows), np.nan)
    for first in range(0, len(rows), _AT_ONCE):
        values = rows[first : first + _AT_ONCE].astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values)).astype(np.float64)
        # Not `@`: BLAS would start spinning threads for a tenth of a millisecond's work each.
        products = np.einsum("ij,j->i", values, query).astype(np.float64)
        some = cosines[first : first + _AT_ONCE]
        np.divide(products, np.maximum(lengths, 1e-9), out=some, where=lengths > 0.0)
    return cosines


@cache
def static_in(path: Path = MODELS / STATIC_MODEL) -> StaticEncoder | None:
    """Return the encoder in a file, read once; None if it is missing or has another format."""
    return read_static(path) if path.is_file() else None


def read_static(path: Path) -> StaticEncoder | None:
    """Read the output of `training.writing.write_static`. Returns None for anything else."""
    data = path.read_bytes()
    arrays = read_arrays(data)
    if arrays is None or str(arrays.get("header")) != HEADER or not arrays.keys() >= set(ARRAYS):
        return None
    columns: Mapping[str, Any] = arrays
    fingerprint = sha256(data).hexdigest()[:16]
    return StaticEncoder(fingerprint, *(columns[name] for name in ARRAYS))
