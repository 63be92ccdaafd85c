"""The learned ranker: two small ensembles of decision trees over the named features.

Trained by `python -m agent.training.ranker` with LightGBM (LambdaMART: Burges, "From RankNet to
LambdaRank to LambdaMART", 2010) and kept as plain arrays, so that nothing but numpy runs them. One
ensemble ranks files, one pieces. A prediction is the plain sum times a slope plus, for every tree,
the value of the leaf a row falls into; walking down, each split's change of value is credited to
its feature (Saabas, "Interpreting random forests", 2014): the parts of a score that `--explain`
shows add up to it exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.models.archive import read_arrays, write_arrays
from agent.retrieval.features import FILE_NAMES, PIECE_NAMES

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL = "ranker.npz"
_ROWS_AT_ONCE = 64  # what walks down then stays in the processor's cache
FORMAT = 1

_ARRAYS = ("roots", "feature", "threshold", "left", "right", "value", "slope")


@dataclass(frozen=True, slots=True)
class Ensemble:
    """`t` trees in `m` nodes, and the names of the `k` features.

    `roots` int32 (t,); `feature` int32 (m,), -1 in a leaf; `threshold` float32 (m,): a value not
    above it goes `left`, int32 (m,), else `right`; `value` float64 (m,): of a leaf its output, of
    a split the mean of what is below it. `slope`: what the first feature, the plain sum, weighs
    from the start; the trees correct it.
    """

    names: tuple[str, ...]
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    slope: NDArray[np.float64]

    def contributions(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n, k + 1) for rows float32 (n, k): what each feature adds; the last column is the bias.

        A row's prediction is the sum of its parts.
        """
        # Numbers of the machine's own width: others are converted at every look-up.
        feature = self.feature.astype(np.intp)
        children = np.stack([self.right, self.left], axis=1).astype(np.intp).ravel()
        # What stands in a leaf for children is not followed, whatever it is.
        gains = self.value.take(children, mode="clip") - np.repeat(self.value, 2)
        parts = [
            self._walked(rows[first : first + _ROWS_AT_ONCE], feature, children, gains)
            for first in range(0, len(rows), _ROWS_AT_ONCE)
        ]
        return np.concatenate([np.zeros((0, rows.shape[1] + 1)), *parts])

    def _walked(
        self,
        rows: NDArray[np.float32],
        feature: NDArray[np.intp],
        children: NDArray[np.intp],
        gains: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """`children` (2 m,): where a value above a node's threshold goes, and where any other.

        `gains` (2 m,): what the value of the child is above that of the node.
        """
        count, width = rows.shape
        values = np.hstack([rows, np.zeros((count, 1), dtype=rows.dtype)]).ravel()
        parts = np.zeros((count, width + 1))
        parts[:, 0] = self.starts(rows)
        parts[:, width] = float(self.value[self.roots].sum())
        parts = parts.ravel()
        node = np.tile(self.roots, count).astype(np.intp)
        first = np.repeat(np.arange(count) * (width + 1), self.roots.size)
        while node.size:
            asked = feature[node]
            inner = np.flatnonzero(asked >= 0)
            if inner.size < node.size:
                node, first, asked = node[inner], first[inner], asked[inner]
            place = first + asked
            below = 2 * node + (values[place] <= self.threshold[node])
            parts += np.bincount(place, gains[below], parts.size)
            node = children[below]
        return parts.reshape(count, width + 1)

    def starts(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n,): what the plain sum gives before the trees correct it."""
        return float(self.slope) * rows[:, 0].astype(np.float64)


@dataclass(frozen=True, slots=True)
class Ranker:
    """`files` and `pieces` score rows of `features.file_matrix` and `features.piece_matrix`."""

    files: Ensemble
    pieces: Ensemble


@cache
def ranker_in(path: Path) -> Ranker | None:
    """The ranker in a file, read once; None where there is none, or one of other features."""
    return read_ranker(path.read_bytes()) if path.is_file() else None


def read_ranker(data: bytes) -> Ranker | None:
    """The ranker in the bytes of `write_ranker`; None for anything else."""
    arrays = read_arrays(data)
    if arrays is None or not _is_ours(arrays):
        return None
    files = _ensemble(arrays, "files", FILE_NAMES)
    pieces = _ensemble(arrays, "pieces", PIECE_NAMES)
    return Ranker(files, pieces) if _is_sound(files) and _is_sound(pieces) else None


def _ensemble(arrays: Mapping[str, Any], part: str, names: tuple[str, ...]) -> Ensemble:
    return Ensemble(names, *(arrays[f"{part}-{name}"] for name in _ARRAYS))


def write_ranker(ranker: Ranker) -> bytes:
    """The same bytes for the same ranker."""
    arrays: dict[str, NDArray[np.generic]] = {"header": np.array(json.dumps(_header()))}
    for part, ensemble in (("files", ranker.files), ("pieces", ranker.pieces)):
        arrays |= {f"{part}-{name}": getattr(ensemble, name) for name in _ARRAYS}
    return write_arrays(arrays)


def _is_ours(arrays: Mapping[str, NDArray[np.generic]]) -> bool:
    needed = {f"{part}-{name}" for part in ("files", "pieces") for name in _ARRAYS} | {"header"}
    return needed <= arrays.keys() and str(arrays["header"]) == json.dumps(_header())


def _is_sound(ensemble: Ensemble) -> bool:
    """Whether walking down ends, and stays within the arrays: children come after their parents."""
    e, count = ensemble, ensemble.feature.size
    nodes: tuple[NDArray[Any], ...] = (e.feature, e.threshold, e.left, e.right, e.value)
    kinds = ("i4", "f4", "i4", "i4", "f8")
    if any(a.shape != (count,) or a.dtype != k for a, k in zip(nodes, kinds, strict=True)):
        return False
    if e.roots.ndim != 1 or e.roots.dtype != "i4" or e.slope.shape != () or e.slope.dtype != "f8":
        return False
    inner = np.flatnonzero(e.feature >= 0)
    below = np.stack([e.left[inner], e.right[inner]])
    return bool(
        (e.feature < len(e.names)).all()
        and ((e.roots >= 0) & (e.roots < count)).all()
        and ((below > inner) & (below < count)).all()
    )


def _header() -> dict[str, object]:
    return {"format": FORMAT, "files": list(FILE_NAMES), "pieces": list(PIECE_NAMES)}
