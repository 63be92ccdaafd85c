"""How an index gets at the vectors of its collection: some at a time, so that others may write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.stores.resident import Part, joined_vectors, row_numbers

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from agent.stores.sqlite_file import StoreFile

_AT_ONCE = 16_384  # vectors that are read at a time: 25 MB of 384 numbers


@dataclass(frozen=True, slots=True)
class Reading:
    """The vectors of the collection `key`, by row; each call is a transaction of its own."""

    file: StoreFile
    key: int
    dimension: int

    def rows(self, after: int) -> NDArray[np.int64]:
        """All rows after a number, ascending."""
        where, values = Part(self.key, None).where(after)
        query = f"SELECT row FROM entry WHERE {where}"  # noqa: S608 - marks only
        return self.file.run(lambda connection: row_numbers(connection.execute(query, values)))

    def after(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The next rows (n,) after a number with their vectors (n, d); none at the end."""
        where, values = Part(self.key, None).where(row)
        return self._read(f"{where} LIMIT ?", [*values, _AT_ONCE])

    def those(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors (m, d) of the rows that are still there, ascending."""
        parts = [np.empty((0, self.dimension), np.float32)]
        for start in range(0, len(rows), _AT_ONCE):
            listed = json.dumps(rows[start : start + _AT_ONCE].tolist())
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
