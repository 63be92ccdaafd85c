"""The embedded store: one SQLite file with float16 vectors, searched exactly with numpy.

The vectors of a project's corpora are read once and stay in memory until the file changes. A write
is one transaction, so a killed process leaves the old state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agent.errors import StoreMismatch, StoreUnreachable
from agent.search.stores.base import (
    TEXTS,
    CollectionInfo,
    EntryFilter,
    StoredEntry,
    VectorCollection,
    VectorStore,
    checked_name,
    entry_of,
    refuse_other,
    sql_condition,
)
from agent.shared.cache import DamagedFile, ForeignFile, SqliteFile, SqliteFormat
from agent.types.events import Notice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

T = TypeVar("T")
Vectors = tuple["NDArray[np.int64]", "NDArray[np.float16]"]

_ROWS_AT_ONCE = 16_384  # rows widened to float32 at a time: 25 MB at d = 384
_SELECTIONS = 8  # selections whose vectors stay in memory
_FORMAT = SqliteFormat(
    "vector store",
    0x50535653,  # "PSVS"
    2,
    # `revision` changes with every write: vectors in memory are current if it is the same.
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


class EmbeddedStore(VectorStore):
    """All collections of one file. The constructor raises StoreUnreachable or StoreMismatch."""

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self.path = path
        self.url = f"sqlite://{path.absolute()}"
        self._report = reporter
        self._file = SqliteFile(path, _FORMAT, self._say_replaced)
        self.vectors: dict[tuple[object, ...], Vectors] = {}
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

    def collection(self, name: str, model: str, dimension: int) -> EmbeddedCollection:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        made = EmbeddedCollection(self, checked_name(name), model, dimension)
        self.run(made.make, writing=True)
        return made

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return all collections by name."""
        query = (
            "SELECT name, model, dimension, (SELECT COUNT(*) FROM entry WHERE collection = key)"
            " FROM collection ORDER BY name"
        )
        rows = self.run(lambda connection: connection.execute(query).fetchall())
        return tuple(CollectionInfo(*row) for row in rows)

    def drop(self, name: str) -> None:
        """Remove a collection if it exists."""

        def remove(connection: sqlite3.Connection) -> None:
            chosen = "(SELECT key FROM collection WHERE name = ?)"
            connection.execute(f"DELETE FROM entry WHERE collection IN {chosen}", (name,))
            connection.execute("DELETE FROM collection WHERE name = ?", (name,))

        self.run(remove, writing=True)

    def close(self) -> None:
        """Close the file and drop the vectors in memory."""
        self._file.close()
        self.vectors.clear()

    def _say_replaced(self, message: str) -> None:
        self._report(Notice(f"{message}, and a new one was made: index again", "warning"))


class EmbeddedCollection(VectorCollection):
    """Entries of one model in a file; made by `EmbeddedStore.collection`."""

    def __init__(self, store: EmbeddedStore, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._store = store

    def make(self, connection: sqlite3.Connection) -> int:
        """Return the key of the collection. Create it if it is missing. Raises StoreMismatch."""
        state = self._state(connection)
        if state is not None:
            return state[0]
        statement = "INSERT INTO collection (name, model, dimension, revision) VALUES (?, ?, ?, 0)"
        values = (self.name, self.model, self.dimension)
        return int(connection.execute(statement, values).lastrowid or 0)

    def _state(self, connection: sqlite3.Connection) -> tuple[int, int] | None:
        """Return key and revision; None if the collection was dropped."""
        query = "SELECT key, revision, model, dimension FROM collection WHERE name = ?"
        row = connection.execute(query, (self.name,)).fetchone()
        if row is None:
            return None
        refuse_other(CollectionInfo(self.name, row[2], row[3], 0), self.model, self.dimension)
        return row[0], row[1]

    def _write(self, rows: Sequence[StoredEntry]) -> int:
        """Write all rows in one transaction."""

        def write(connection: sqlite3.Connection) -> int:
            key, before = self.make(connection), connection.total_changes
            values = (
                (key, *(getattr(row, n) for n in TEXTS), row.vector.astype("<f2").tobytes())
                for row in rows
            )
            connection.executemany(_UPSERT, values)
            return self._changed(connection, key, connection.total_changes - before)

        return self._store.run(write, writing=True)

    def _changed(self, connection: sqlite3.Connection, key: int, changes: int) -> int:
        if changes:
            connection.execute("UPDATE collection SET revision = random() WHERE key = ?", (key,))
        return changes

    def _select(self, columns: str, selection: EntryFilter) -> list[tuple[object, ...]]:
        def read(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
            return self._read(connection, columns, selection) if self._state(connection) else []

        return self._store.run(read)

    def _read(
        self, connection: sqlite3.Connection, columns: str, selection: EntryFilter
    ) -> list[tuple[object, ...]]:
        where, values = _condition(selection)
        chosen = "collection = (SELECT key FROM collection WHERE name = ?)"
        query = f"SELECT {columns} FROM entry WHERE {chosen} AND {where}"
        return connection.execute(query, (self.name, *values)).fetchall()

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        rows = self._select("id, content", EntryFilter(ids=frozenset(ids)))
        return [(str(name), str(content)) for name, content in rows]

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[StoredEntry]:
        def read(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
            state = self._state(connection)
            if state is None:
                return []
            rows, matrix = self._loaded(connection, state, selection)
            broad = EntryFilter(project=selection.project, corpora=selection.corpora)
            if selection != broad:
                chosen = [row for (row,) in self._read(connection, "row", selection)]
                places = np.flatnonzero(np.isin(rows, np.array(chosen, dtype=np.int64)))
                rows, matrix = rows[places], matrix[places]
            near = rows[_largest(matrix, query, limit)].tolist()
            columns, marks = ", ".join(TEXTS), ", ".join("?" * len(near))
            text = f"SELECT {columns}, vector FROM entry WHERE row IN ({marks})"
            return connection.execute(text, near).fetchall()

        return [
            entry_of(map(str, texts), np.frombuffer(blob, "<f2").astype(np.float32))  # type: ignore[call-overload]
            for *texts, blob in self._store.run(read)
        ]

    def _loaded(
        self, connection: sqlite3.Connection, state: tuple[int, int], selection: EntryFilter
    ) -> Vectors:
        """Return the row numbers (n,) and vectors (n, d) of the selected project and corpora."""
        cache, key = self._store.vectors, (*state, selection.project, selection.corpora)
        if key not in cache:
            broad = EntryFilter(project=selection.project, corpora=selection.corpora)
            pairs = self._read(connection, "row, vector", broad)
            rows = np.array([row for row, _ in pairs], dtype=np.int64)
            data = b"".join(blob for _, blob in pairs)  # type: ignore[misc]
            if len(data) != 2 * len(rows) * self.dimension:
                raise DamagedFile
            matrix = np.frombuffer(data, "<f2").reshape(len(rows), self.dimension)
            while len(cache) >= _SELECTIONS:
                cache.pop(next(iter(cache)))
            cache[key] = rows, matrix
        return cache[key]

    def _delete(self, selection: EntryFilter) -> int:
        where, values = _condition(selection)

        def remove(connection: sqlite3.Connection) -> int:
            state = self._state(connection)
            if state is None:
                return 0
            statement = f"DELETE FROM entry WHERE collection = ? AND {where}"
            changes = connection.execute(statement, (state[0], *values)).rowcount
            return self._changed(connection, state[0], changes)

        return self._store.run(remove, writing=True)

    def _count(self, selection: EntryFilter) -> int:
        rows = self._select("COUNT(*)", selection)
        return int(str(rows[0][0])) if rows else 0


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


def _condition(selection: EntryFilter) -> tuple[str, list[str]]:
    values: list[str] = []

    def bind(value: str) -> str:
        values.append(value)
        return "?"

    return sql_condition(selection, bind, "instr(tags, {}) > 0"), values
