"""Exact cosine search with numpy in bounded memory, and the order of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.search.stores.base import score_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS_AT_ONCE = 16_384  # rows widened to float32 at a time: 25 MB at d = 384
_SCORES_AT_ONCE = 8_000_000  # maximum scores per group of queries: 32 MB

NEAR = 1e-5
"""Upper bound on the rounding error of a float32 product, for any order of summation.

Scores this close to the last rank are computed again before the cut.
"""


@dataclass(frozen=True, slots=True, eq=False)
class NearRows:
    """Candidates for one query: row numbers (n,) int64, cosines (n,) float64."""

    rows: NDArray[np.int64]
    cosines: NDArray[np.float64]


def nearest(
    matrix: NDArray[np.float32] | NDArray[np.float16],
    rows: NDArray[np.int64],
    queries: NDArray[np.float32],
    top_k: int,
    positions: NDArray[np.int64] | None = None,
) -> list[NearRows]:
    """Return for each of `queries` (m, d) the best `top_k` of `matrix` (n, d), including ties.

    The rows of the matrix have length 1 or 0, and `rows` (n,) has their numbers. `positions`
    restricts the search. Zero vectors get the cosine -1, so they score 0.
    """
    count = len(rows) if positions is None else len(positions)
    if not count or top_k < 1:
        return [NearRows(np.empty(0, np.int64), np.empty(0)) for _ in queries]
    found = []
    step = max(1, _SCORES_AT_ONCE // count)
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        for query, scores in zip(some, _products(matrix, some, positions), strict=True):
            places = _leading(scores, top_k)
            if positions is not None:
                places = positions[places]
            found.append(NearRows(rows[places], cosines(matrix[places], query)))
    return found


def _products(
    matrix: NDArray[np.float32] | NDArray[np.float16],
    queries: NDArray[np.float32],
    positions: NDArray[np.int64] | None,
) -> NDArray[np.float32]:
    """Return the products of all pairs, (m, n); -1 for zero vectors."""
    count = len(matrix) if positions is None else len(positions)
    products = np.empty((len(queries), count), dtype=np.float32)
    # Rows that must be copied are copied in parts, to limit memory.
    step = count if positions is None and matrix.dtype == np.float32 else _ROWS_AT_ONCE
    for start in range(0, count, step):
        part = slice(start, min(count, start + step))
        piece = matrix[part] if positions is None else matrix[positions[part]]
        wide = piece.astype(np.float32, copy=False)
        products[:, part] = queries @ wide.T
        # Zero vectors are rare. Only rows orthogonal to the first query can be zero, so only they
        # are checked.
        orthogonal = np.flatnonzero(products[0, part] == 0.0)
        if orthogonal.size:
            zeros = orthogonal[~wide[orthogonal].any(axis=1)]
            products[:, start + zeros] = -1.0
    products[~queries.any(axis=1)] = -1.0
    return products


def _leading(scores: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """Return the positions of the best `top_k` and of all scores within rounding error of them."""
    if top_k >= len(scores):
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
    return np.flatnonzero(scores >= least - NEAR)


def cosines(
    rows: NDArray[np.float32] | NDArray[np.float16], query: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the cosines (n,) of unit `rows` (n, d) with a unit `query` (d,).

    Each row is summed separately and in the same order. A matrix product may differ in the last bit
    for two equal rows, which would change the order of results. -1 if either vector is zero.
    """
    wide = rows.astype(np.float64)
    found: NDArray[np.float64] = (wide * query.astype(np.float64)).sum(axis=1)
    if not query.any():
        return np.full(len(found), -1.0)
    found[~rows.any(axis=1)] = -1.0
    return found


def ordered(
    found: Iterable[tuple[float, str, int]], top_k: int, at_least: float
) -> Sequence[tuple[float, str, int]]:
    """Return (score, id, row) of the best, from (cosine, id, row), by (-score, id)."""
    scored = ((score_of(cosine), name, row) for cosine, name, row in found)
    kept = sorted((s for s in scored if s[0] >= at_least), key=lambda s: (-s[0], s[1]))
    return kept[: max(0, top_k)]


def is_clear(scores: Sequence[float], top_k: int, limit: int) -> bool:
    """Whether an engine's results for `limit` contain all candidates for the top k.

    `scores` are in falling order. If the last one equals number `top_k`, the engine may have cut
    off ties.
    """
    return len(scores) < limit or scores[top_k - 1] - scores[-1] > NEAR
