"""A static encoder: one vector a term, a text is the weighted sum of the vectors of its terms.

It knows the terms that the index counts anyway (`identifiers`), by their hashes, so that encoding a
piece costs a few table look-ups at indexing time and a query compares itself with every piece of
the repository, not with the best by words alone. Trained by `python -m agent.training.static` on
commit messages and the functions that the commits changed; the idea of training word vectors for
such pairs: Husain et al., "CodeSearchNet Challenge" (2019), the neural bag of words there.
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

from agent.models.archive import model_path, read_arrays, write_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.lexical import LexicalQuery
    from agent.retrieval.records import PieceTerms

MODEL = "static.npz"
FORMAT = 1
_AT_ONCE = 1_000  # occurrences of terms: half a megabyte, which stays in the processor's cache
_HEADER = json.dumps({"format": FORMAT})
_ARRAYS = ("hashes", "vectors", "scales", "query_weights", "document_weights")
NAME_BOOST = 1.0
"""Each occurrence in the name adds this to log(1 + occurrences in the text)."""


@dataclass(frozen=True, slots=True)
class StaticEncoder:
    """`v` terms of `d` dimensions.

    `hashes` uint64 (v,), ascending; `vectors` int8 (v, d), row i times `scales` float32 (v,) is the
    vector of term i; `query_weights` and `document_weights` float32 (v,) weigh it in either role.
    `fingerprint` names these very weights: vectors of two encoders never meet. `path` is the file
    they are from, for worker processes to load.
    """

    fingerprint: str
    path: Path
    hashes: NDArray[np.uint64]
    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]
    query_weights: NDArray[np.float32]
    document_weights: NDArray[np.float32]

    @property
    def dimension(self) -> int:
        """Of every vector."""
        return int(self.vectors.shape[1])

    def encode(self, terms: PieceTerms) -> bytes:
        """The int8 (n, d) vectors of n pieces, as bytes. A `PieceEncoder`.

        Rows use the whole range of int8, so only their directions mean something; a piece without
        any known term is zero.
        """
        places = self._places(terms.vocabulary)
        known = np.flatnonzero(places[terms.terms] >= 0)
        width = np.uint16 if terms.size <= 1 << 16 else np.uint32  # uint16 sorts by radix
        chosen = known[np.argsort(terms.pieces[known].astype(width), kind="stable")]
        weights = np.log1p(terms.counts[chosen]) + NAME_BOOST * terms.name_counts[chosen]
        at = places[terms.terms[chosen]]
        factors = self.scales[at] * self.document_weights[at] * weights.astype(np.float32)
        return _quantised(self._sums(terms.pieces[chosen], at, factors, terms.size)).tobytes()

    def query(self, query: LexicalQuery) -> NDArray[np.float32]:
        """The vector (d,) of a problem, normalised; zero where no term is known."""
        places = self._places(query.hashes)
        at, weights = places[places >= 0], query.weights[places >= 0].astype(np.float32)
        factors = self.scales[at] * self.query_weights[at] * weights
        row = self._sums(np.zeros(at.size, dtype=np.int64), at, factors, 1)[0]
        length = float(np.linalg.norm(row))
        return np.asarray(row / length if length > 0.0 else row)

    def _places(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The number of each term, -1 for unknown ones."""
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
        """(size, d): for each owner (they ascend) the sum of its terms' vectors times `factors`.

        In order of the terms, whatever else is summed: the same to the last bit.
        """
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


def _quantised(rows: NDArray[np.float32]) -> NDArray[np.int8]:
    """Each row stretched to the range of int8."""
    top = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(np.rint(rows * (127.0 / np.maximum(top, 1e-12))), dtype=np.int8)


def static_cosines(query: NDArray[np.float32], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """Cosine of each row (n, d) with the normalised query (d,); NaN for rows that are zero."""
    cosines = np.full(len(rows), np.nan)
    for first in range(0, len(rows), _AT_ONCE):
        values = rows[first : first + _AT_ONCE].astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values)).astype(np.float64)
        # Not `@`: BLAS starts threads that spin, for a tenth of a millisecond's work each.
        found = np.einsum("ij,j->i", values, query).astype(np.float64)
        some = cosines[first : first + _AT_ONCE]
        np.divide(found, np.maximum(lengths, 1e-9), out=some, where=lengths > 0.0)
    return cosines


def load_static() -> StaticEncoder | None:
    """The encoder that ships with the package; None where it is missing or of another format."""
    return static_in(model_path(MODEL))


@cache
def static_in(path: Path) -> StaticEncoder | None:
    """The encoder in a file, read once; None where there is none, or one of another format."""
    return read_static(path) if path.is_file() else None


def load(path: Path) -> StaticEncoder:
    """The encoder of a file that its parent process has read. Raises ValueError for another."""
    encoder = read_static(path)
    if encoder is None:
        raise ValueError(f"{path}: not a static encoder")
    return encoder


def read_static(path: Path) -> StaticEncoder | None:
    """The encoder in a file of `write_static`; None for anything else."""
    data = path.read_bytes()
    arrays = read_arrays(data)
    if arrays is None or str(arrays.get("header")) != _HEADER or not arrays.keys() >= set(_ARRAYS):
        return None
    fingerprint = sha256(data).hexdigest()[:16]
    columns: Mapping[str, Any] = arrays
    encoder = StaticEncoder(fingerprint, path, *(columns[name] for name in _ARRAYS))
    return encoder if _is_sound(encoder) else None


def _is_sound(encoder: StaticEncoder) -> bool:
    """Whether there is a vector for each term, and terms are in order."""
    hashes, vectors = encoder.hashes, encoder.vectors
    weights = (encoder.scales, encoder.query_weights, encoder.document_weights)
    return (
        hashes.dtype == "u8"
        and hashes.ndim == 1
        and bool((hashes[1:] > hashes[:-1]).all())
        and vectors.dtype == "i1"
        and vectors.ndim == 2
        and vectors.shape[1] > 0
        and all(array.shape == hashes.shape and array.dtype == "f4" for array in weights)
        and vectors.shape[0] == hashes.size
    )


def write_static(
    hashes: NDArray[np.uint64],
    vectors: NDArray[np.float32],
    query_weights: NDArray[np.float32],
    document_weights: NDArray[np.float32],
) -> bytes:
    """The encoder's file: vectors float32 (v, d) by ascending hash, quantised to int8.

    Not packed: that makes noise smaller by a tenth, and every start longer by 20 ms.
    """
    scales = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32) / 127.0
    columns = (hashes, _quantised(vectors), scales, query_weights, document_weights)
    named = {"header": np.array(_HEADER), **dict(zip(_ARRAYS, columns, strict=True))}
    return write_arrays(named, packed=False)
