"""The embedded store: one SQLite file with float16 vectors, compared exactly with numpy.

A write is one transaction, so a killed process leaves the old state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from agent.errors import StoreMismatch, StoreUnreachable
from agent.search.stores.base import (
    EVERYTHING,
    TEXTS,
    CollectionMeta,
    Entry,
    EntryFilter,
    VectorCollection,
    VectorStore,
    sql_condition,
)
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
    # `revision`, `path`, `language`, `tags` and `payload` are no longer used; the files of earlier
    # releases have them.
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
_CREATE = (
    "INSERT INTO collection (name, model, dimension, revision) VALUES (?, ?, ?, 0)"
    " ON CONFLICT DO NOTHING"
)
_KEY = "(SELECT key FROM collection WHERE name = ? AND model = ? AND dimension = ?)"
_UPSERT = (
    f"INSERT INTO entry (collection, {', '.join(TEXTS)}, vector, path, language, tags, payload)"
    f" VALUES ({_KEY}{', ?' * len(TEXTS)}, ?, '', '', '', '')"
    " ON CONFLICT (collection, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in TEXTS[1:])
    # equal texts have equal vectors: the stored one stays
    + ", vector = iif(content = excluded.content, vector, excluded.vector) WHERE "
    + " OR ".join(f"{name} <> excluded.{name}" for name in TEXTS[1:])
)


class EmbeddedStore(VectorStore):
    """All collections of one file. The constructor raises StoreUnreachable or StoreMismatch."""

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self.path = path
        self.url = f"sqlite://{path.absolute()}"
        self._report = reporter
        self._file = SqliteFile(path, _FORMAT, self._report_replaced)
        self._names()

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

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        return self.run(lambda connection: connection.execute(statement, values).fetchall())

    def _names(self) -> list[str]:
        return [name for (name,) in self.read("SELECT name FROM collection")]

    def _meta(self, name: str) -> CollectionMeta | None:
        rows = self.read("SELECT model, dimension FROM collection WHERE name = ?", [name])
        return CollectionMeta(model=rows[0][0], dimension=rows[0][1]) if rows else None

    def _create(self, name: str, meta: CollectionMeta) -> None:
        values = (name, meta.model, meta.dimension)
        self.run(lambda connection: connection.execute(_CREATE, values), writing=True)

    def _remove(self, name: str) -> None:
        def remove(connection: sqlite3.Connection) -> None:
            own = "(SELECT key FROM collection WHERE name = ?)"
            connection.execute(f"DELETE FROM entry WHERE collection = {own}", [name])
            connection.execute("DELETE FROM collection WHERE name = ?", [name])

        self.run(remove, writing=True)

    def _opened(self, name: str, model: str, dimension: int) -> VectorCollection:
        return EmbeddedCollection(self, name, model, dimension)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _report_replaced(self, message: str) -> None:
        self._report(Notice(f"{message}, and a new one was made: index again", "warning"))


class EmbeddedCollection(VectorCollection):
    """Entries of one model in a file."""

    def __init__(self, store: EmbeddedStore, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._store = store
        self._identity = (name, model, dimension)

    def _selected(self, selection: EntryFilter) -> tuple[str, list[Any]]:
        """Return `entry WHERE CONDITION`, and the values in it."""
        condition, values = sql_condition(selection)
        return f"entry WHERE collection = {_KEY} AND {condition}", [*self._identity, *values]

    def _write(self, rows: Sequence[Entry]) -> int:

        def write(connection: sqlite3.Connection) -> int:
            connection.execute(_CREATE, self._identity)  # another process may have removed it
            before = connection.total_changes
            blobs = (row.vector.astype("<f2").tobytes() for row in rows)
            values = (
                (*self._identity, *row[:-1], blob) for row, blob in zip(rows, blobs, strict=True)
            )
            connection.executemany(_UPSERT, values)
            return connection.total_changes - before

        return self._store.run(write, writing=True)

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        rows, values = self._selected(EVERYTHING)
        statement = f"SELECT id, content FROM {rows} AND id IN ({', '.join('?' * len(ids))})"
        return self._store.read(statement, [*values, *ids])

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[tuple[str, NDArray[np.float32]]]:
        rows, values = self._selected(selection)

        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            pairs = connection.execute(f"SELECT row, vector FROM {rows}", values).fetchall()
            data = b"".join(blob for _, blob in pairs)
            if len(data) != 2 * len(pairs) * self.dimension:
                raise DamagedFile
            matrix = np.frombuffer(data, "<f2").reshape(len(pairs), self.dimension)
            near = [pairs[at][0] for at in _largest(matrix, query, limit).tolist()]
            text = f"SELECT id, vector FROM entry WHERE row IN ({', '.join('?' * len(near))})"
            return connection.execute(text, near).fetchall()

        found = self._store.run(read)
        return [(name, np.frombuffer(blob, "<f2").astype(np.float32)) for name, blob in found]

    def _delete(self, selection: EntryFilter) -> int:
        rows, values = self._selected(selection)
        statement = f"DELETE FROM {rows}"
        return self._store.run(lambda c: c.execute(statement, values).rowcount, writing=True)

    def _count(self, selection: EntryFilter) -> int:
        rows, values = self._selected(selection)
        return int(self._store.read(f"SELECT COUNT(*) FROM {rows}", values)[0][0])


def _largest(
    matrix: NDArray[np.float16], query: NDArray[np.float32], limit: int
) -> NDArray[np.int64]:
    products = np.empty(len(matrix), dtype=np.float32)
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        products[part] = matrix[part].astype(np.float32) @ query
    if limit >= len(products):
        return np.arange(len(products))
    return np.argpartition(-products, limit)[:limit]
