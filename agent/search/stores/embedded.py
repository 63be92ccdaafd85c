"""The embedded store: one SQLite file with float16 vectors, compared exactly with numpy.

A write is one transaction, so a killed process leaves the old state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from agent.errors import StoreMismatch, StoreUnreachable
from agent.search.stores.base import TEXTS, EntryFilter, StoredEntry, sql_condition
from agent.search.stores.sql import SqlCollection, SqlStore
from agent.shared.cache import DamagedFile, ForeignFile, SqliteFile, SqliteFormat
from agent.types.events import Notice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

T = TypeVar("T")

_ROWS_AT_ONCE = 16_384  # rows widened to float32 at a time: 25 MB at d = 384
_FORMAT = SqliteFormat(
    "vector store",
    0x50535653,  # "PSVS"
    2,
    # `revision` is no longer used; the files of earlier releases have it.
    """
    CREATE TABLE collection (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        model TEXT NOT NULL,
        dimension INTEGER NOT NULL,
        revision INTEGER NOT NULL
    );
    CREATE TABLE entry (
        row INTEGER PRIMARY KEY,
        collection INTEGER NOT NULL,
        id TEXT NOT NULL,
        content TEXT NOT NULL,
        project TEXT NOT NULL,
        corpus TEXT NOT NULL,
        path TEXT NOT NULL,
        language TEXT NOT NULL,
        tags TEXT NOT NULL,
        payload TEXT NOT NULL,
        vector BLOB NOT NULL,
        UNIQUE (collection, id)
    );
    CREATE INDEX entry_by_project ON entry (collection, project, corpus)
    """,
    busy_seconds=30.0,  # a batch of thousands of entries takes one second
    durable=True,
)
_UPSERT = (
    f"INSERT INTO entry (collection, {', '.join(TEXTS)}, vector)"
    f" VALUES (?{', ?' * len(TEXTS)}, ?) ON CONFLICT (collection, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in TEXTS[1:])
    # equal texts have equal vectors: the stored one stays
    + ", vector = iif(content = excluded.content, vector, excluded.vector) WHERE "
    + " OR ".join(f"{name} <> excluded.{name}" for name in TEXTS[1:])
)


class EmbeddedCollection(SqlCollection["EmbeddedStore"]):
    """Entries of one model in a file."""

    def create(self, connection: sqlite3.Connection) -> int:
        """Insert the collection and return its key."""
        statement = "INSERT INTO collection (name, model, dimension, revision) VALUES (?, ?, ?, 0)"
        values = (self.name, self.model, self.dimension)
        return int(connection.execute(statement, values).lastrowid or 0)

    def rows_of(self, key: int, selection: EntryFilter) -> tuple[str, list[Any]]:
        """Return `entry WHERE CONDITION` for the selected entries, and the values in it."""
        condition, values = sql_condition(selection, "instr(tags, ?) > 0")
        return f"entry WHERE collection = ? AND {condition}", [key, *values]

    def _write(self, rows: Sequence[StoredEntry]) -> int:
        """Write all rows in one transaction."""

        def write(connection: sqlite3.Connection) -> int:
            key, before = self.make(connection), connection.total_changes
            values = ((key, *row[:-1], row.vector.astype("<f2").tobytes()) for row in rows)
            connection.executemany(_UPSERT, values)
            return connection.total_changes - before

        return self._store.run(write, writing=True)

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[StoredEntry]:
        def read(connection: sqlite3.Connection, key: int) -> list[tuple[Any, ...]]:
            rows, values = self.rows_of(key, selection)
            pairs = connection.execute(f"SELECT row, vector FROM {rows}", values).fetchall()
            data = b"".join(blob for _, blob in pairs)
            if len(data) != 2 * len(pairs) * self.dimension:
                raise DamagedFile
            matrix = np.frombuffer(data, "<f2").reshape(len(pairs), self.dimension)
            near = [pairs[at][0] for at in _largest(matrix, query, limit).tolist()]
            marks = ", ".join("?" * len(near))
            text = f"SELECT {', '.join(TEXTS)}, vector FROM entry WHERE row IN ({marks})"
            return connection.execute(text, near).fetchall()

        rows: list[tuple[Any, ...]] = self._run(read, [])
        return [
            StoredEntry._make((*row[:-1], np.frombuffer(row[-1], "<f2").astype(np.float32)))
            for row in rows
        ]


class EmbeddedStore(SqlStore):
    """All collections of one file. The constructor raises StoreUnreachable or StoreMismatch."""

    table = "collection"
    kind = EmbeddedCollection

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self.path = path
        self.url = f"sqlite://{path.absolute()}"
        self._report = reporter
        self._file = SqliteFile(path, _FORMAT, self._report_replaced)
        self.run(lambda connection: connection.execute("SELECT 1 FROM collection"))

    def run(self, action: Callable[[sqlite3.Connection], T], *, writing: bool = False) -> T:
        """Run `action` in one transaction. Raises StoreUnreachable or StoreMismatch."""
        try:
            return self._file.run(action, writing=writing)
        except ForeignFile as error:
            what = "is not a vector store of this program; name another file"
            if error.application_id == _FORMAT.application_id:
                what = f"is of version {error.version}, not {_FORMAT.version}; name another file"
            raise StoreMismatch(f"vector store {self.path} {what}") from None
        except (sqlite3.Error, DamagedFile, OSError) as error:
            raise StoreUnreachable(
                f"vector store {self.path} cannot be used ({error}); check its folder, its"
                " permissions and the space on its disk, or name another file"
            ) from None

    def drop_entries(self, connection: sqlite3.Connection, key: int) -> None:
        """Delete the entries of a collection."""
        connection.execute("DELETE FROM entry WHERE collection = ?", (key,))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _report_replaced(self, message: str) -> None:
        self._report(Notice(f"{message}, and a new one was made: index again", "warning"))


def _largest(
    matrix: NDArray[np.float16], query: NDArray[np.float32], limit: int
) -> NDArray[np.int64]:
    """Return the positions of the `limit` largest products with the query."""
    products = np.empty(len(matrix), dtype=np.float32)
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        products[part] = matrix[part].astype(np.float32) @ query
    if limit >= len(products):
        return np.arange(len(products))
    return np.argpartition(-products, limit)[:limit]
