"""Caches the vectors of one project in memory: it reads them once and then applies changes."""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from agent.search.stores.base import EntryFilter
from agent.shared.cache import DamagedFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.search.stores.sqlite.file import StoreFile

    AnyMatrix = NDArray[np.float32] | NDArray[np.float16]

BUDGET = 512 * 1024 * 1024
"""Maximum bytes of the matrices of a collection: 350,000 float32 vectors at d = 384.

A larger project is stored in half precision. The least recently used matrix is dropped first.
"""

BOTH = "entry JOIN body USING (row)"
"""Entries with the fields of filters, joined with their vectors."""

_READ_AT_ONCE = 4_096  # rows read at a time: 3 MB at d = 384 in float16
_VECTORS_AT_ONCE = 16_384  # vectors read at a time: 25 MB at d = 384
_GROWTH = 1.5  # room for later rows; unwritten pages take no memory
_SELECTIONS = 32  # maximum cached selections

RowQuery = Callable[[sqlite3.Connection, EntryFilter], "NDArray[np.int64]"]


@dataclass(slots=True, eq=False)
class Resident:
    """The vectors of a project as of `epoch` and `last` (see `file`), rows ascending.

    `matrix` has room for more rows than `rows`. Rows that a search uses never change: new rows are
    appended behind them, or everything is copied.
    """

    rows: NDArray[np.int64]
    matrix: AnyMatrix
    epoch: int
    last: int
    positions: OrderedDict[EntryFilter, NDArray[np.int64]] = field(default_factory=OrderedDict)

    def view(self) -> tuple[AnyMatrix, NDArray[np.int64]]:
        """Return vectors (n, d) and their row numbers (n,)."""
        return self.matrix[: len(self.rows)], self.rows

    def places(
        self, connection: sqlite3.Connection, selection: EntryFilter, rows_of: RowQuery
    ) -> NDArray[np.int64]:
        """Return positions of the selected rows. They are cached until the rows change."""
        known = self.positions.get(selection)
        if known is None:
            known = np.flatnonzero(np.isin(self.rows, rows_of(connection, selection)))
            self.positions[selection] = known
        self.positions.move_to_end(selection)
        while len(self.positions) > _SELECTIONS:
            self.positions.popitem(last=False)
        return known

    def append(self, rows: NDArray[np.int64], vectors: NDArray[np.float16]) -> None:
        """Add (n, d) vectors at the end."""
        used, total = len(self.rows), len(self.rows) + len(rows)
        if total > len(self.matrix):
            dimension = self.matrix.shape[1]
            room = _room(int(total * _GROWTH), dimension)
            room[:used] = self.matrix[:used]
            self.matrix = room
        self.matrix[used:total] = widened(vectors).astype(self.matrix.dtype)
        self.rows = np.concatenate([self.rows, rows])

    def keep(self, present: NDArray[np.int64]) -> None:
        """Drop the rows that are not `present`."""
        kept = np.flatnonzero(np.isin(self.rows, present))
        if len(kept) < len(self.rows):
            self.matrix, self.rows = self.matrix[kept], self.rows[kept]


@dataclass(frozen=True, slots=True)
class Part:
    """The entries of a matrix: one project (None: all) of a collection, after a row."""

    key: int
    project: str | None
    after: int = 0

    def where(self, after: int) -> tuple[str, list[object]]:
        """Return a condition on `entry` for rows after a number, and its values."""
        # the plus prevents SQLite from using an index that would need sorting
        if self.project is None:
            return "+collection = ? AND row > ? ORDER BY row", [self.key, after]
        return (
            "collection = ? AND project = ? AND row > ? ORDER BY row",
            [self.key, self.project, after],
        )


def load(
    connection: sqlite3.Connection, resident: Resident, part: Part, state: tuple[int, int]
) -> None:
    """Update to `state` (epoch, last) without reading a vector twice. Raises DamagedFile."""
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
    """Yield rows (n,) and vectors (n, d) for a condition on `table`, some thousand at a time."""
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
    """Return all of `read_vectors` at once, normalised."""
    parts = list(read_vectors(connection, where, values, dimension, table))
    if not parts:
        return np.empty(0, np.int64), np.empty((0, dimension), np.float32)
    rows = np.concatenate([rows for rows, _ in parts])
    return rows, widened(np.concatenate([vectors for _, vectors in parts]))


def empty(dimension: int, after: int = 0) -> Resident:
    """Return an empty matrix for rows after a number."""
    return Resident(np.empty(0, np.int64), np.empty((0, dimension), np.float32), 0, after)


def vectors_of(blobs: list[object], dimension: int) -> NDArray[np.float16]:
    """Return stored vectors as (n, d). Raises DamagedFile if one is not of this dimension."""
    if any(not isinstance(blob, bytes) or len(blob) != 2 * dimension for blob in blobs):
        raise DamagedFile(f"a vector is not of dimension {dimension}")
    data = b"".join(blob for blob in blobs if isinstance(blob, bytes))
    return np.frombuffer(data, dtype="<f2").astype(np.float16).reshape(len(blobs), dimension)


def stored(vector: NDArray[np.float32]) -> bytes:
    """Return a unit vector as little-endian float16, half the size of float32."""
    return vector.astype("<f2").tobytes()


def _room(rows: int, dimension: int) -> AnyMatrix:
    if rows * dimension * 4 > BUDGET:
        return np.empty((rows, dimension), np.float16)
    return np.empty((rows, dimension), np.float32)


def widened(vectors: NDArray[np.float16]) -> NDArray[np.float32]:
    """Return float32 vectors of length 1; rounding to float16 changed lengths by up to 0.05%."""
    wide = np.nan_to_num(vectors.astype(np.float32), posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def units_of(blobs: list[object], dimension: int) -> NDArray[np.float32]:
    """Return stored vectors as (n, d) of length 1 or 0. Raises DamagedFile."""
    return widened(vectors_of(blobs, dimension))


def row_numbers(cursor: sqlite3.Cursor) -> NDArray[np.int64]:
    """Return the first column of a query."""
    return np.fromiter((row for (row,) in cursor), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class CollectionReader:
    """The `VectorReader` of the collection `key`. Each call is one transaction."""

    file: StoreFile
    key: int
    dimension: int

    def rows(self, after: int) -> NDArray[np.int64]:
        """Return all rows after a number, ascending."""
        where, values = Part(self.key, None).where(after)
        query = f"SELECT row FROM entry WHERE {where}"  # noqa: S608 - marks only
        return self.file.run(lambda connection: row_numbers(connection.execute(query, values)))

    def after(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the next rows (n,) after a number and their vectors (n, d); none at the end."""
        where, values = Part(self.key, None).where(row)
        return self._read(f"{where} LIMIT ?", [*values, _VECTORS_AT_ONCE])

    def those(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return vectors (m, d) of the rows that still exist, ascending."""
        parts = [np.empty((0, self.dimension), np.float32)]
        for start in range(0, len(rows), _VECTORS_AT_ONCE):
            listed = json.dumps(rows[start : start + _VECTORS_AT_ONCE].tolist())
            where = "row IN (SELECT value FROM json_each(?)) ORDER BY row"
            parts.append(self._read(where, [listed])[1])
        return np.concatenate(parts)

    def _read(
        self, where: str, values: Sequence[object]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        def read(
            connection: sqlite3.Connection,
        ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            return joined_vectors(connection, where, values, self.dimension)

        return self.file.run(read)
