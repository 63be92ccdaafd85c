"""The embedded store: one SQLite file, with no server and nothing to install.

Vectors are searched exactly with numpy. They are cached in memory by project within a budget, and
new rows are added to the cache: a query only reads a counter and its results. Large collections are
searched by an approximate index if the extra `ann` is installed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agent.search.stores.base import CollectionInfo, EntryFilter, VectorMatch
from agent.search.stores.engine import BaseCollection, BaseStore, checked_name
from agent.search.stores.entries import StoredEntry
from agent.search.stores.exact import NearRows, nearest
from agent.search.stores.sqlite import statements as sql
from agent.search.stores.sqlite.file import StoreFile
from agent.search.stores.sqlite.large import Scale
from agent.search.stores.sqlite.loaded import LoadedVectors, Stale
from agent.search.stores.sqlite.resident import CollectionReader, units_of
from agent.search.stores.urls import is_new, path_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

T = TypeVar("T")


def open_url(url: str, reporter: Reporter, _api_key: str | None) -> SqliteStore:
    """Open the file of the URL."""
    return SqliteStore(path_of(url), reporter)


def list_collections(url: str, reporter: Reporter) -> tuple[CollectionInfo, ...] | None:
    """Return the collections; none for a missing or empty file."""
    path = path_of(url)
    if is_new(path) or (path.is_file() and path.stat().st_size == 0):
        return ()
    with closing(StoreFile(path, reporter, reading=True)) as file:
        return file.run(sql.infos)


class SqliteStore(BaseStore):
    """All collections of one file. The constructor raises StoreUnreachable or StoreMismatch.

    `scale` decides when an index replaces the exact search (extra `ann`).
    """

    def __init__(self, path: Path, reporter: Reporter, *, scale: Scale | None = None) -> None:
        self._file = StoreFile(path, reporter)
        self._loaded = LoadedVectors(path, reporter, scale or Scale())
        self._file.run(sql.names)  # rejects a foreign file immediately

    @property
    def url(self) -> str:
        """Return `sqlite://` and the file's absolute path."""
        return f"sqlite://{self._file.path.absolute()}"

    def collection(self, name: str, model: str, dimension: int) -> SqliteCollection:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        collection = SqliteCollection(
            self._file, self._loaded, checked_name(name), model, dimension
        )
        self._file.run(collection.make, writing=True)
        return collection

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return all collections by name."""
        return self._file.run(sql.infos)

    def drop(self, name: str) -> None:
        """Remove a collection if it exists."""

        def remove(connection: sqlite3.Connection) -> None:
            found = sql.find(connection, name)
            if found is not None:
                sql.drop(connection, found[1].key)

        self._file.run(remove, writing=True)
        self._loaded.sweep(lambda: self._file.run(sql.tokens))

    def close(self) -> None:
        """Close the file and drop the vectors in memory."""
        self._file.close()
        self._loaded.clear()


class SqliteCollection(BaseCollection):
    """Entries of one model in a file; made by `SqliteStore.collection`."""

    def __init__(
        self, file: StoreFile, loaded: LoadedVectors, name: str, model: str, dimension: int
    ) -> None:
        super().__init__(name, model, dimension)
        self._file = file
        self._loaded = loaded

    def make(self, connection: sqlite3.Connection) -> sql.CollectionState:
        """Return the state of the collection. Create it if it is missing or was dropped.

        Raises StoreMismatch.
        """
        return self._state(connection) or sql.make(
            connection, self._name, self._model, self._dimension
        )

    def _state(self, connection: sqlite3.Connection) -> sql.CollectionState | None:
        """Return the state of the collection; None if it was dropped or its file was replaced."""
        found = sql.state_of(connection, self._name)
        if found is None:
            return None
        model, dimension, state = found
        self._refuse_other(model, dimension)
        return state

    def _run(
        self,
        action: Callable[[sqlite3.Connection, sql.CollectionState], T],
        instead: T,
        *,
        writing: bool = False,
    ) -> T:
        """Run `action` with the state and return its result; return `instead` if the collection was
        dropped.
        """

        def run(connection: sqlite3.Connection) -> T:
            state = self._state(connection)
            return instead if state is None else action(connection, state)

        return self._file.run(run, writing=writing)

    def _write(self, rows: Mapping[str, StoredEntry]) -> int:
        """Write all rows in one transaction."""

        def write(connection: sqlite3.Connection) -> int:
            return sql.upsert(connection, self.make(connection).key, rows)

        changed = self._file.run(write, writing=True)
        if changed:
            self._update_index()
        return changed

    def _update_index(self) -> None:
        """Add the written rows to the approximate index, or build one if the collection is
        large.
        """
        try:
            self._run(lambda c, state: self._loaded.check(c, state, self._dimension), None)
        except Stale as stale:
            self._build(stale)

    def _build(self, stale: Stale) -> None:
        reader = CollectionReader(self._file, stale.state.key, self._dimension)
        self._loaded.build(self._name, stale, reader)
        self._loaded.sweep(lambda: self._file.run(sql.tokens))

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        return self._by_ids("SELECT id, content FROM entry", ids)

    def _vectors(self, ids: Sequence[str]) -> Iterable[tuple[str, NDArray[np.float32]]]:
        found = self._by_ids("SELECT id, vector FROM entry JOIN body USING (row)", ids)
        if not found:
            return ()
        units = units_of([blob for _, blob in found], self._dimension)
        return zip((name for name, _ in found), units, strict=True)

    def _by_ids(self, query: str, ids: Sequence[str]) -> list[tuple[str, str]]:
        def read(
            connection: sqlite3.Connection, state: sql.CollectionState
        ) -> list[tuple[str, str]]:
            where, values = sql.condition(state.key, EntryFilter(ids=frozenset(ids)))
            return connection.execute(f"{query} WHERE {where} ORDER BY id", values).fetchall()

        return self._run(read, [])

    def _search(
        self, queries: NDArray[np.float32], top_k: int, selection: EntryFilter, at_least: float
    ) -> Sequence[tuple[VectorMatch, ...]]:
        def read(
            connection: sqlite3.Connection, state: sql.CollectionState
        ) -> list[tuple[VectorMatch, ...]]:
            found = self._candidates(connection, state, queries, top_k, selection)
            return sql.matches(connection, found, top_k, at_least)

        nothing: list[tuple[VectorMatch, ...]] = [()] * len(queries)
        try:
            return self._run(read, nothing)
        except Stale as stale:
            self._build(stale)
            return self._run(read, nothing)

    def _candidates(
        self,
        connection: sqlite3.Connection,
        state: sql.CollectionState,
        queries: NDArray[np.float32],
        top_k: int,
        selection: EntryFilter,
    ) -> list[list[NearRows]]:
        """Return the candidates for the best results of each query."""
        found: list[list[NearRows]] = [[] for _ in queries]
        real = np.flatnonzero(queries.any(axis=1))
        for number in np.flatnonzero(~queries.any(axis=1)):
            found[number] = [sql.first_by_id(connection, state.key, selection, top_k)]
        large = self._loaded.large(connection, state, selection, self._dimension)
        if large is not None:
            near = large.candidates(connection, state, queries[real], top_k, selection)
            for number, some in zip(real, near, strict=True):
                found[number] += some
        for part in self._loaded.parts(connection, state, selection, large):
            resident = self._loaded.resident(connection, state, part, self._dimension)
            places = sql.positions(connection, resident, part, selection)
            matrix, rows = resident.view()
            near_here = nearest(matrix, rows, queries[real], top_k, places)
            for number, one in zip(real, near_here, strict=True):
                found[number].append(one)
        return found

    def _delete(self, selection: EntryFilter) -> int:
        return self._run(
            lambda connection, state: sql.delete(connection, state.key, selection), 0, writing=True
        )

    def _count(self, selection: EntryFilter) -> int:
        return self._run(lambda connection, state: sql.count(connection, state.key, selection), 0)
