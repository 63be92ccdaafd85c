"""The index of a matrix that is in no collection: the vectors of a folder."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import StoreUnreachable
from agent.search.stores.exact import NearRows
from agent.search.stores.sqlite.ann import AnnIndex, near_rows
from agent.search.stores.sqlite.inverted import is_installed
from agent.search.stores.sqlite.large import Scale
from agent.types.events import Notice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class MatrixIndex:
    """An index of the rows of a matrix. Thread-safe.

    `narrow`: up to this many selected rows, all of them should be compared instead.
    """

    index: AnnIndex
    narrow: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def near(
        self,
        unit: NDArray[np.float64],
        top_k: int,
        cosines: Callable[[NDArray[np.int64]], NDArray[np.float64]],
        chosen: NDArray[np.bool_],
    ) -> NDArray[np.int64] | None:
        """Return places (from 0) among the `chosen` (n,) that are near a unit query (d,).

        None if too few are found, or if a zero vector, which is in no list, may be among the best.
        """

        def look_up(rows: NDArray[np.int64]) -> NearRows:
            places = rows[(rows > 0) & (rows <= len(chosen))] - 1
            places = places[chosen[places]]
            return NearRows(places, cosines(places))

        with self._lock:  # faiss keeps the number of lists to search in the index
            query = unit.astype(np.float32)
            found = near_rows(self.index, query, top_k, look_up, every=bool(chosen.all()))
        if found is None or np.partition(found.cosines, -top_k)[-top_k] <= 0.0:
            return None
        return found.rows


def open_matrix_index(
    folder: Path,
    vectors: NDArray[np.float32],
    lengths: NDArray[np.float64],
    reporter: Reporter,
    narrow: int = Scale().narrow,
) -> MatrixIndex | None:
    """Open the index of a matrix (n, d) with lengths (n,) in `folder`, or build it there.

    The name of the folder identifies the content of the matrix: folders beside it are removed when
    an index is built. None if the extra `ann` is missing or another process is building, and, with
    a notice, if the files cannot be written.
    """
    if not is_installed():
        return None
    index = AnnIndex(folder, vectors.shape[1], reporter)
    index.refresh()
    if index.last != len(vectors):
        for other in folder.parent.glob("*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        try:
            if not index.build(_MatrixReader(vectors, lengths), anew=True):
                return None
        except StoreUnreachable as error:
            reporter(Notice(f"{error}; going on without", "warning"))
            return None
        reporter(Notice(f"{len(vectors):,} vectors are searched by an index (int8)"))
    return MatrixIndex(index, narrow) if index.count else None


@dataclass(frozen=True, slots=True, eq=False)
class _MatrixReader:
    """The `VectorReader` of a matrix. Row numbers are places + 1."""

    vectors: NDArray[np.float32]
    lengths: NDArray[np.float64]

    def rows(self, after: int) -> NDArray[np.int64]:
        return np.arange(after + 1, len(self.vectors) + 1)

    def after(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows = self.rows(row)[:_ROWS_AT_ONCE]
        return rows, self.those(rows)

    def those(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        lengths = self.lengths[rows - 1]
        safe = np.where(lengths > 0.0, lengths, np.inf).astype(np.float32)
        return np.asarray(self.vectors[rows - 1] / safe[:, None])
