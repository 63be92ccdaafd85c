"""The embedded store: one SQLite file, exact search with numpy; no server, nothing to install.

Vectors stay in memory by project, as far as a budget goes, and are brought up to date by what was
written since: a query reads a counter and its results, and builds nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection as Set
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.stores import sqlite_rows as sql
from agent.stores.ann_reading import Reading
from agent.stores.base import EVERYTHING, CollectionInfo, Entry, Match, Selection
from agent.stores.border import (
    checked_name,
    escaped,
    escaped_selection,
    refuse_other,
    restored,
    rows_of,
    unit_queries,
)
from agent.stores.exact import Candidates, nearest
from agent.stores.large import Scale
from agent.stores.memory import Memory, Stale
from agent.stores.resident import units_of
from agent.stores.results import first_by_id, matches, positions
from agent.stores.sqlite_file import StoreFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter


class SqliteStore:
    """All collections of one file. Raises StoreUnreachable or StoreMismatch where it is opened.

    `scale` says when an index takes over from the exact search (extra `ann`).
    """

    def __init__(self, path: Path, reporter: Reporter, *, scale: Scale | None = None) -> None:
        self._file = StoreFile(path, reporter)
        self._memory = Memory(path, reporter, scale or Scale())
        self._file.run(sql.names)  # whose file it is, is told now

    @property
    def url(self) -> str:
        """`sqlite://` and the file's absolute path."""
        return f"sqlite://{self._file.path.absolute()}"

    def collection(self, name: str, model: str, dimension: int) -> SqliteCollection:
        """Open it, or make it. Raises StoreMismatch for another model or dimension."""
        collection = SqliteCollection(
            self._file, self._memory, checked_name(name), model, dimension
        )
        self._file.run(collection.made, writing=True)
        return collection

    def collections(self) -> tuple[CollectionInfo, ...]:
        """All, by name."""
        return self._file.run(sql.infos)

    def drop(self, name: str) -> None:
        """Remove a collection; nothing happens where there is none."""

        def remove(connection: sqlite3.Connection) -> None:
            found = sql.find(connection, name)
            if found is not None:
                sql.drop(connection, found[1].key)

        self._file.run(remove, writing=True)
        self._memory.sweep(lambda: self._file.run(sql.tokens))

    def close(self) -> None:
        """Let go of the file and of what is kept in memory."""
        self._file.close()
        self._memory.clear()

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SqliteCollection:
    """Entries of one model in a file; made by `SqliteStore.collection`."""

    def __init__(
        self, file: StoreFile, memory: Memory, name: str, model: str, dimension: int
    ) -> None:
        self._file = file
        self._memory = memory
        self._name = name
        self._model = model
        self._dimension = dimension

    @property
    def info(self) -> CollectionInfo:
        """Name, model, dimension, and how many entries there are now."""
        return CollectionInfo(self._name, self._model, self._dimension, self.count())

    def made(self, connection: sqlite3.Connection) -> sql.State:
        """Its state; made where it is not there (any more). Raises StoreMismatch."""
        return self._state(connection) or sql.make(
            connection, self._name, self._model, self._dimension
        )

    def _state(self, connection: sqlite3.Connection) -> sql.State | None:
        """None where it was dropped, or its file begun anew."""
        found = sql.state_of(connection, self._name)
        if found is None:
            return None
        model, dimension, state = found
        refuse_other(CollectionInfo(self._name, model, dimension, 0), self._model, self._dimension)
        return state

    def upsert(self, entries: Iterable[Entry]) -> int:
        """Add or replace by id; how many were new or had changed. All of them, or none."""
        rows = rows_of(entries, self._dimension)
        if not rows:
            return 0

        def write(connection: sqlite3.Connection) -> int:
            return sql.upsert(connection, self.made(connection).key, rows)

        changed = self._file.run(write, writing=True)
        if changed:
            self._keep_index()
        return changed

    def _keep_index(self) -> None:
        """Take into the index what was written, where there is one or should be."""

        def look(connection: sqlite3.Connection) -> None:
            state = self._state(connection)
            if state is not None:
                self._memory.check(connection, state, self._dimension)

        try:
            self._file.run(look)
        except Stale as stale:
            self._build(stale)

    def _build(self, stale: Stale) -> None:
        """Bring the index up to date."""
        reading = Reading(self._file, stale.state.key, self._dimension)
        self._memory.build(self._name, stale, reading)
        self._memory.sweep(lambda: self._file.run(sql.tokens))

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """`content` by id, of those that are stored."""
        columns = "SELECT id, content FROM entry"
        return {restored(name): restored(content) for name, content in self._by_ids(columns, ids)}

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """Vectors (d,) float32 by id, of those that are stored."""
        found = self._by_ids("SELECT id, vector FROM entry JOIN body USING (row)", ids)
        if not found:
            return {}
        units = units_of([blob for _, blob in found], self._dimension)
        return {restored(name): unit for (name, _), unit in zip(found, units, strict=True)}

    def _by_ids(self, query: str, ids: Set[str]) -> list[tuple[str, str]]:
        wanted = Selection(ids=frozenset(map(escaped, ids)))

        def read(connection: sqlite3.Connection) -> list[tuple[str, str]]:
            state = self._state(connection)
            if state is None:
                return []
            where, values = sql.condition(state.key, wanted)
            return connection.execute(f"{query} WHERE {where} ORDER BY id", values).fetchall()

        return self._file.run(read)

    def search(
        self,
        queries: NDArray[np.float32],
        top_k: int,
        selection: Selection = EVERYTHING,
        *,
        at_least: float = 0.0,
    ) -> Sequence[tuple[Match, ...]]:
        """For each row of `queries` (m, d) the best of the selection; see `VectorCollection`."""
        units = unit_queries(queries, self._dimension)
        chosen = escaped_selection(selection)

        def read(connection: sqlite3.Connection) -> list[tuple[Match, ...]]:
            state = self._state(connection)
            if state is None or top_k < 1:
                return [() for _ in units]
            found = self._candidates(connection, state, units, top_k, chosen)
            return matches(connection, found, top_k, at_least)

        try:
            return self._file.run(read)
        except Stale as stale:
            self._build(stale)
            return self._file.run(read)

    def _candidates(
        self,
        connection: sqlite3.Connection,
        state: sql.State,
        queries: NDArray[np.float32],
        top_k: int,
        selection: Selection,
    ) -> list[list[Candidates]]:
        """For each query what may be among its best."""
        found: list[list[Candidates]] = [[] for _ in queries]
        real = np.flatnonzero(queries.any(axis=1))
        for number in np.flatnonzero(~queries.any(axis=1)):
            found[number] = [first_by_id(connection, state.key, selection, top_k)]
        large = self._memory.large(connection, state, selection, self._dimension)
        if large is not None:
            near = large.candidates(connection, state, queries[real], top_k, selection)
            for number, some in zip(real, near, strict=True):
                found[number] += some
        for part in self._memory.parts(connection, state, selection, large):
            resident = self._memory.resident(connection, state, part, self._dimension)
            places = positions(connection, resident, part, selection)
            matrix, rows = resident.view()
            near_here = nearest(matrix, rows, queries[real], top_k, places)
            for number, one in zip(real, near_here, strict=True):
                found[number].append(one)
        return found

    def delete(self, selection: Selection) -> int:
        """Remove what is selected; how many."""
        chosen = escaped_selection(selection)

        def remove(connection: sqlite3.Connection) -> int:
            state = self._state(connection)
            return 0 if state is None else sql.delete(connection, state.key, chosen)

        return self._file.run(remove, writing=True)

    def count(self, selection: Selection = EVERYTHING) -> int:
        """How many entries are selected."""
        chosen = escaped_selection(selection)

        def read(connection: sqlite3.Connection) -> int:
            state = self._state(connection)
            return 0 if state is None else sql.count(connection, state.key, chosen)

        return self._file.run(read)
