"""Exact cosine search with numpy, in pieces of bounded size, and the one order of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.stores.base import score_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS_AT_ONCE = 16_384  # 25 MB of 384 float32: what a half-precision matrix is widened by
_SCORES_AT_ONCE = 8_000_000  # 32 MB of scores: queries are taken in groups of this many

NEAR = 1e-5
"""Cosines of one product in float32 differ by less, whatever order a library adds in. Whatever is
this near the last place is scored again before it is cut."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What may be among the best for one query: row numbers (n,) int64, cosines (n,) float64."""

    rows: NDArray[np.int64]
    cosines: NDArray[np.float64]


def nearest(
    matrix: NDArray[np.float32] | NDArray[np.float16],
    rows: NDArray[np.int64],
    queries: NDArray[np.float32],
    top_k: int,
    positions: NDArray[np.int64] | None = None,
) -> list[Candidates]:
    """For each of `queries` (m, d) the best `top_k` of `matrix` (n, d), and all that tie with them.

    Rows of the matrix are of length 1 or 0, and named by `rows` (n,). `positions` restricts the
    search to some. Zero vectors get the cosine -1: they score 0.
    """
    count = len(rows) if positions is None else len(positions)
    if not count or top_k < 1:
        return [Candidates(np.empty(0, np.int64), np.empty(0)) for _ in queries]
    found = []
    step = max(1, _SCORES_AT_ONCE // count)
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        for query, scores in zip(some, _products(matrix, some, positions), strict=True):
            places = _leading(scores, top_k)
            if positions is not None:
                places = positions[places]
            found.append(Candidates(rows[places], cosines(matrix[places], query)))
    return found


def _products(
    matrix: NDArray[np.float32] | NDArray[np.float16],
    queries: NDArray[np.float32],
    positions: NDArray[np.int64] | None,
) -> NDArray[np.float32]:
    """Products of all pairs, (m, n); -1 for zero vectors."""
    count = len(matrix) if positions is None else len(positions)
    products = np.empty((len(queries), count), dtype=np.float32)
    # What has to be copied is copied in pieces.
    step = count if positions is None and matrix.dtype == np.float32 else _ROWS_AT_ONCE
    for start in range(0, count, step):
        part = slice(start, min(count, start + step))
        piece = matrix[part] if positions is None else matrix[positions[part]]
        wide = piece.astype(np.float32, copy=False)
        products[:, part] = queries @ wide.T
        # Most are no zero vectors: only those that are orthogonal to the first query are looked at.
        orthogonal = np.flatnonzero(products[0, part] == 0.0)
        if orthogonal.size:
            zeros = orthogonal[~wide[orthogonal].any(axis=1)]
            products[:, start + zeros] = -1.0
    products[~queries.any(axis=1)] = -1.0
    return products


def _leading(scores: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """Places of the best `top_k`, and of what is too near the last of them to be told apart."""
    if top_k >= len(scores):
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
    return np.flatnonzero(scores >= least - NEAR)


def cosines(
    rows: NDArray[np.float32] | NDArray[np.float16], query: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Cosines (n,) of unit `rows` (n, d) with a unit `query` (d,): the same for the same row.

    Each row is added up by itself, in one order: a product of matrices may differ in its last bit
    between two rows that are equal, and with it the order of results. -1 where either is zero.
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
    """(score, id, row) of the best, from (cosine, id, row): by (-score, id)."""
    scored = ((score_of(cosine), name, row) for cosine, name, row in found)
    kept = sorted((s for s in scored if s[0] >= at_least), key=lambda s: (-s[0], s[1]))
    return kept[: max(0, top_k)]


def is_clear(scores: Sequence[float], top_k: int, limit: int) -> bool:
    """Whether an engine that was asked for `limit` results has given all that the top k may need.

    `scores` fall. Where the last is as good as number `top_k`, more may follow that tie with it.
    """
    return len(scores) < limit or scores[top_k - 1] - scores[-1] > NEAR
