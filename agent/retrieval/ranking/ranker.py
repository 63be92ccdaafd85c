"""The learned ranker: two small ensembles of decision trees over the named features.

`python -m training.ranker` trains them with LightGBM (LambdaMART: Burges, "From RankNet to
LambdaRank to LambdaMART", 2010). They are stored as plain arrays, so running them needs only numpy.
One ensemble ranks files, the other pieces. A prediction is the plain sum times a slope, plus the
value of the leaf that the row reaches in each tree. On the way down, each split's change of value
is credited to its feature (Saabas, "Interpreting random forests", 2014), so the parts of a score
that `--explain` shows add up to it exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.retrieval.embedding import STATIC_MODEL, StaticEncoder, static_in
from agent.retrieval.ranking.options import RetrievalOptions
from agent.retrieval.ranking.signals import FILE_NAMES, PIECE_NAMES
from agent.retrieval.weights import MODELS, SUFFIX, read_arrays, write_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL = "ranker.npz"
_ROWS_AT_ONCE = 64  # the nodes of so many rows stay in the processor's cache
FORMAT = 2

_ARRAYS = ("roots", "feature", "threshold", "right", "value", "slope")


@dataclass(frozen=True, slots=True)
class Ensemble:
    """`t` trees in `m` nodes, and the names of the `k` features.

    `roots` int32 (t,); `feature` int32 (m,), -1 in a leaf; `threshold` float32 (m,). A row goes to
    the next node if its value is at most the threshold, else `right` nodes further, int32 (m,).
    `value` float64 (m,): the output of a leaf; for a split, the mean of the nodes below it.
    `slope`: initial weight of the first feature, the plain sum; the trees correct the result.
    """

    names: tuple[str, ...]
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    slope: NDArray[np.float64]

    def contributions(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return each feature's part of the score, with the bias as last column, float64 (n, k +
        1).

        `rows` is float32 (n, k). A row's prediction is the sum of its parts.
        """
        # Native integers: numpy converts all others at every look-up.
        feature = self.feature.astype(np.intp)
        node = np.arange(feature.size)
        children = np.stack([node + self.right, node + 1], axis=1).ravel()
        # The children of a leaf are never followed, so their values do not matter.
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
        """Walk the rows down all trees and return their contributions.

        `children` (2 m,): for each node, the child for values above the threshold and the child for
        all others. `gains` (2 m,): the child's value minus the node's.
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
        """Return the score from the plain sum alone, before the trees correct it, float64 (n,)."""
        return float(self.slope) * rows[:, 0].astype(np.float64)


@dataclass(frozen=True, slots=True)
class Ranker:
    """`files` scores rows of `signals.file_matrix`, `pieces` rows of `signals.piece_matrix`."""

    files: Ensemble
    pieces: Ensemble


@cache
def ranker_in(path: Path) -> Ranker | None:
    """Return the ranker in a file, read once; None if it is missing or made for other features."""
    return read_ranker(path.read_bytes()) if path.is_file() else None


def read_ranker(data: bytes) -> Ranker | None:
    """Parse the output of `write_ranker`. Returns None for anything else."""
    arrays = read_arrays(data)
    if arrays is None or not _is_ours(arrays):
        return None
    files = _ensemble(arrays, "files", FILE_NAMES)
    pieces = _ensemble(arrays, "pieces", PIECE_NAMES)
    return Ranker(files, pieces) if _is_sound(files) and _is_sound(pieces) else None


def _ensemble(arrays: Mapping[str, Any], part: str, names: tuple[str, ...]) -> Ensemble:
    return Ensemble(names, *(arrays[f"{part}-{name}"] for name in _ARRAYS))


def write_ranker(ranker: Ranker) -> bytes:
    """Return the ranker as bytes. Equal rankers give equal bytes."""
    arrays: dict[str, NDArray[np.generic]] = {"header": np.array(json.dumps(_header()))}
    for part, ensemble in (("files", ranker.files), ("pieces", ranker.pieces)):
        arrays |= {f"{part}-{name}": getattr(ensemble, name) for name in _ARRAYS}
    return write_arrays(arrays)


def _is_ours(arrays: Mapping[str, NDArray[np.generic]]) -> bool:
    needed = {f"{part}-{name}" for part in ("files", "pieces") for name in _ARRAYS} | {"header"}
    return needed <= arrays.keys() and str(arrays["header"]) == json.dumps(_header())


def _is_sound(ensemble: Ensemble) -> bool:
    """Whether every walk ends and stays within the arrays: children come after their parents."""
    e, count = ensemble, ensemble.feature.size
    nodes: tuple[NDArray[Any], ...] = (e.feature, e.threshold, e.right, e.value)
    kinds = ("i4", "f4", "i4", "f8")
    if any(a.shape != (count,) or a.dtype != k for a, k in zip(nodes, kinds, strict=True)):
        return False
    if e.roots.ndim != 1 or e.roots.dtype != "i4" or e.slope.shape != () or e.slope.dtype != "f8":
        return False
    inner = np.flatnonzero(e.feature >= 0)
    right = e.right[inner]
    return bool(
        (e.feature < len(e.names)).all()
        and ((e.roots >= 0) & (e.roots < count)).all()
        and ((right > 0) & (right < count - inner)).all()
    )


def _header() -> dict[str, object]:
    return {"format": FORMAT, "files": list(FILE_NAMES), "pieces": list(PIECE_NAMES)}


# ----------------------------------------------------------------------------------- shipped models


@dataclass(frozen=True, slots=True)
class Shipped:
    """The models that the options ask for. `notes` name those that are missing or damaged."""

    encoder: StaticEncoder | None
    ranker: Ranker | None
    notes: tuple[str, ...] = ()


def load_shipped(options: RetrievalOptions, folder: Path | None = None) -> Shipped:
    """Load the models in a folder (None: the package's). A missing one is None with a note."""
    folder = folder or MODELS
    notes: list[str] = []
    encoder = static_in(folder / STATIC_MODEL) if options.static else None
    bundled = any(folder.glob(f"*{SUFFIX}"))  # a bundle does not carry the static vectors
    if options.static and encoder is None and not bundled:
        notes.append(f"{_fault(folder / STATIC_MODEL)}; ranked without its vectors")
    trees = ranker_in(folder / MODEL) if options.learned else None
    if options.learned and trees is None:
        notes.append(f"{_fault(folder / MODEL)}; ranked by the plain sum")
    return Shipped(encoder, trees, tuple(notes))


def _fault(path: Path) -> str:
    if not path.is_file():
        return f"{path.name} is missing from the installation"
    return f"{path.name} is damaged or was made for another version"
