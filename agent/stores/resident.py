"""Vectors of one project that stay in memory: read once, then only what was added or went."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from agent.stores.base import Selection
from agent.stores.sqlite_file import Damaged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    AnyMatrix = NDArray[np.float32] | NDArray[np.float16]

BUDGET = 512 * 1024 * 1024
"""Bytes of matrices a collection keeps: 350,000 vectors of 384 float32. A project that is larger is
kept in half precision; what was used longest ago goes first."""

BOTH = "entry JOIN body USING (row)"
"""Entries by what they are selected by, with their vectors."""

_READ_AT_ONCE = 4_096  # rows: 3 MB of 384 float16
_GROWTH = 1.5  # room for what is added later; pages that were never written take no memory
_SELECTIONS = 32  # selections whose rows are remembered

RowQuery = Callable[[sqlite3.Connection, Selection], "NDArray[np.int64]"]


@dataclass(slots=True, eq=False)
class Resident:
    """The vectors of a project as of `epoch` and `last` (see `sqlite_file`), rows ascending.

    `matrix` has room for more than `rows` name. What a search has in hand is never changed: rows
    are added behind it or copied.
    """

    rows: NDArray[np.int64]
    matrix: AnyMatrix
    epoch: int
    last: int
    positions: OrderedDict[Selection, NDArray[np.int64]] = field(default_factory=OrderedDict)

    def view(self) -> tuple[AnyMatrix, NDArray[np.int64]]:
        """Vectors (n, d) and their row numbers (n,)."""
        return self.matrix[: len(self.rows)], self.rows

    def places(
        self, connection: sqlite3.Connection, selection: Selection, rows_of: RowQuery
    ) -> NDArray[np.int64]:
        """Positions of what is selected, remembered for as long as nothing changes."""
        known = self.positions.get(selection)
        if known is None:
            known = np.flatnonzero(np.isin(self.rows, rows_of(connection, selection)))
            self.positions[selection] = known
        self.positions.move_to_end(selection)
        while len(self.positions) > _SELECTIONS:
            self.positions.popitem(last=False)
        return known

    def append(self, rows: NDArray[np.int64], vectors: NDArray[np.float16]) -> None:
        """Add (n, d) vectors behind the others."""
        used, total = len(self.rows), len(self.rows) + len(rows)
        if total > len(self.matrix):
            dimension = self.matrix.shape[1]
            room = _room(int(total * _GROWTH), dimension)
            room[:used] = self.matrix[:used]
            self.matrix = room
        self.matrix[used:total] = widened(vectors).astype(self.matrix.dtype)
        self.rows = np.concatenate([self.rows, rows])

    def keep(self, present: NDArray[np.int64]) -> None:
        """Drop the rows that are not `present` any more."""
        kept = np.flatnonzero(np.isin(self.rows, present))
        if len(kept) < len(self.rows):
            self.matrix, self.rows = self.matrix[kept], self.rows[kept]


@dataclass(frozen=True, slots=True)
class Part:
    """The entries that a matrix is of: a project (None: all) of a collection, after a row."""

    key: int
    project: str | None
    after: int = 0

    def where(self, after: int) -> tuple[str, list[object]]:
        """A condition on `entry`, for rows after a number, and its values."""
        if self.project is None:  # the plus keeps SQLite from an index that would have to be sorted
            return "+collection = ? AND row > ? ORDER BY row", [self.key, after]
        return (
            "collection = ? AND project = ? AND row > ? ORDER BY row",
            [self.key, self.project, after],
        )


def load(
    connection: sqlite3.Connection, resident: Resident, part: Part, state: tuple[int, int]
) -> None:
    """Bring it to `state` (epoch, last), reading no vector twice. Raises Damaged."""
    if (resident.epoch, resident.last) == state:
        return
    if resident.epoch != state[0]:
        where, values = part.where(part.after)
        found = connection.execute(f"SELECT row FROM entry WHERE {where}", values)  # noqa: S608
        resident.keep(row_numbers(found))
    where, values = part.where(resident.last)
    for rows, vectors in read_vectors(connection, where, values, resident.matrix.shape[1]):
        resident.append(rows, vectors)
    resident.epoch, resident.last = state
    resident.positions.clear()


def read_vectors(
    connection: sqlite3.Connection,
    where: str,
    values: Sequence[object],
    dimension: int,
    table: str = BOTH,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
    """Rows (n,) and vectors (n, d) of a condition on `table`, some thousand at a time."""
    query = f"SELECT row, vector FROM {table} WHERE {where}"  # noqa: S608 - marks only
    cursor = connection.execute(query, values)
    while some := cursor.fetchmany(_READ_AT_ONCE):
        rows = np.array([row for row, _ in some], dtype=np.int64)
        yield rows, vectors_of([blob for _, blob in some], dimension)


def joined_vectors(
    connection: sqlite3.Connection,
    where: str,
    values: Sequence[object],
    dimension: int,
    table: str = BOTH,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """All of `read_vectors` at once, brought back to length 1."""
    parts = list(read_vectors(connection, where, values, dimension, table))
    if not parts:
        return np.empty(0, np.int64), np.empty((0, dimension), np.float32)
    rows = np.concatenate([rows for rows, _ in parts])
    return rows, widened(np.concatenate([vectors for _, vectors in parts]))


def empty(dimension: int, after: int = 0) -> Resident:
    """Nothing yet, of rows after a number."""
    return Resident(np.empty(0, np.int64), np.empty((0, dimension), np.float32), 0, after)


def vectors_of(blobs: list[object], dimension: int) -> NDArray[np.float16]:
    """Stored vectors as (n, d). Raises Damaged where one cannot be a vector of this dimension."""
    if any(not isinstance(blob, bytes) or len(blob) != 2 * dimension for blob in blobs):
        raise Damaged(f"a vector is not of dimension {dimension}")
    data = b"".join(blob for blob in blobs if isinstance(blob, bytes))
    return np.frombuffer(data, dtype="<f2").astype(np.float16).reshape(len(blobs), dimension)


def stored(vector: NDArray[np.float32]) -> bytes:
    """A vector of length 1 as it is stored: little-endian float16, half of the file's size."""
    return vector.astype("<f2").tobytes()


def _room(rows: int, dimension: int) -> AnyMatrix:
    if rows * dimension * 4 > BUDGET:
        return np.empty((rows, dimension), np.float16)
    return np.empty((rows, dimension), np.float32)


def widened(vectors: NDArray[np.float16]) -> NDArray[np.float32]:
    """Brought back to length 1, from which rounding took up to 0.05%."""
    wide = np.nan_to_num(vectors.astype(np.float32), posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def units_of(blobs: list[object], dimension: int) -> NDArray[np.float32]:
    """Stored vectors as (n, d) of length 1 or 0. Raises Damaged."""
    return widened(vectors_of(blobs, dimension))


def row_numbers(cursor: sqlite3.Cursor) -> NDArray[np.int64]:
    """The first column of what a query gives."""
    return np.fromiter((row for (row,) in cursor), dtype=np.int64)
