"""Vectors as int8, a quarter of the memory of float32. Their cosines are known within bounds.

A search compares the int8 numbers with all of a query, and scores again what the bounds leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows widened to float32 at a time, so that they stay in the processor's cache: 0.8 MB at d = 384.
_ROWS_AT_ONCE = 512
_LARGEST = 127.0
# The length of a rounding error bounds its product with a unit query. The components of rounding
# errors are independent, so for many dimensions the product is `length / sqrt(d)` times a normal
# variable, and six standard deviations are exceeded once in 500 million vectors.
_DEVIATIONS = 6.0


@dataclass(frozen=True, slots=True, eq=False)
class CompactVectors:
    """`codes` int8 (n, d) times `scales` float32 (n,) are unit vectors, or zeros.

    `errors` float32 (n,) bound what a cosine with a row may be wrong by.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    errors: NDArray[np.float32]

    def cosines(
        self, units: NDArray[np.float64], rows: NDArray[np.int64] | None
    ) -> NDArray[np.float64]:
        """Return the cosines (m, n) of unit queries (m, d) with the rows; None means all rows."""
        queries = units.astype(np.float32).T
        count = len(self.codes) if rows is None else len(rows)
        found = np.empty((count, len(units)), dtype=np.float32)
        wide = np.empty((_ROWS_AT_ONCE, self.codes.shape[1]), dtype=np.float32)
        for first in range(0, count, _ROWS_AT_ONCE):
            part = slice(first, min(count, first + _ROWS_AT_ONCE))
            some = wide[: part.stop - first]
            np.copyto(some, self.codes[part] if rows is None else self.codes[rows[part]])
            np.matmul(some, queries, out=found[part])
        scales = self.scales if rows is None else self.scales[rows]
        return np.asarray((found * scales[:, None]).T, dtype=np.float64)


def compact(
    pieces: Iterable[NDArray[np.float32]], lengths: NDArray[np.float64], dimension: int
) -> CompactVectors:
    """Return vectors as int8 from pieces (k, d) of them. Vectors of length 0 become zeros."""
    codes = np.empty((len(lengths), dimension), dtype=np.int8)
    scales, errors = np.empty(len(lengths), np.float32), np.empty(len(lengths), np.float32)
    share = np.float32(min(1.0, _DEVIATIONS / math.sqrt(dimension)))
    done = 0
    for vectors in pieces:
        part = slice(done, done + len(vectors))
        done = part.stop
        own = lengths[part]
        units = vectors / np.where(own > 0.0, own, np.inf).astype(np.float32)[:, None]
        scale = np.abs(units).max(axis=1) / np.float32(_LARGEST)
        whole = np.rint(units / np.where(scale > 0.0, scale, np.float32(1.0))[:, None])
        units -= whole * scale[:, None]
        codes[part], scales[part] = whole, scale
        errors[part] = np.sqrt(np.einsum("ij,ij->i", units, units)) * share
    return CompactVectors(codes, scales, errors)
