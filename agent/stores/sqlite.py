"""The embedded store: one SQLite file, exact search with numpy; no server, nothing to install.

Vectors stay in memory by project, as far as a budget goes, and are brought up to date by what was
written since: a query reads a counter and its results, and builds nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Collection as Set
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.stores import sqlite_rows as sql
from agent.stores.base import EVERYTHING, CollectionInfo, Entry, Fields, Match, Selection
from agent.stores.border import (
    checked_name,
    escaped,
    escaped_selection,
    fields_of,
    refuse_other,
    restored,
    rows_of,
    unit_queries,
)
from agent.stores.exact import Candidates, nearest, ordered
from agent.stores.resident import BUDGET, Resident, empty, load, row_numbers, units_of
from agent.stores.sqlite_file import StoreFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter


class SqliteStore:
    """All collections of one file. Raises StoreUnreachable or StoreMismatch where it is opened."""

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self._file = StoreFile(path, reporter)
        self._memory = _Memory()
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

        def read(connection: sqlite3.Connection) -> tuple[CollectionInfo, ...]:
            found = (sql.find(connection, name) for name in sql.names(connection))
            return tuple(one[0] for one in found if one is not None)

        return self._file.run(read)

    def drop(self, name: str) -> None:
        """Remove a collection; nothing happens where there is none."""

        def remove(connection: sqlite3.Connection) -> None:
            found = sql.find(connection, name)
            if found is not None:
                sql.drop(connection, found[1].key)

        self._file.run(remove, writing=True)

    def close(self) -> None:
        """Let go of the file and of what is kept in memory."""
        self._file.close()
        self._memory.clear()

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True, eq=False)
class _Memory:
    """Matrices of all collections of a store, by the collection's token and project.

    Used within the transactions of `StoreFile`, one at a time.
    """

    residents: OrderedDict[tuple[str, str], Resident] = field(default_factory=OrderedDict)
    sizes: dict[str, tuple[sql.State, dict[str, int]]] = field(default_factory=dict)

    def projects(self, connection: sqlite3.Connection, state: sql.State) -> Mapping[str, int]:
        """Entries of each project of a collection, counted when something has changed."""
        known = self.sizes.get(state.token)
        if known is None or known[0] != state:
            known = self.sizes[state.token] = (state, sql.sizes(connection, state.key))
        return known[1]

    def resident(
        self, connection: sqlite3.Connection, state: sql.State, project: str, dimension: int
    ) -> Resident:
        """The vectors of a project as they are now."""
        key = (state.token, project)
        resident = self.residents.pop(key, None) or empty(dimension)
        load(connection, resident, state.key, project, (state.epoch, state.last))
        self.residents[key] = resident
        self._let_go()
        return resident

    def _let_go(self) -> None:
        """Keep the budget, and in any case what was used last."""
        while len(self.residents) > 1 and self._size() > BUDGET:
            self.residents.popitem(last=False)

    def _size(self) -> int:
        return sum(resident.matrix.nbytes for resident in self.residents.values())

    def clear(self) -> None:
        """Forget all of it."""
        self.residents.clear()
        self.sizes.clear()


class SqliteCollection:
    """Entries of one model in a file; made by `SqliteStore.collection`."""

    def __init__(
        self, file: StoreFile, memory: _Memory, name: str, model: str, dimension: int
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

        return self._file.run(write, writing=True)

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
            return _matches(connection, found, top_k, at_least)

        return self._file.run(read)

    def _candidates(
        self,
        connection: sqlite3.Connection,
        state: sql.State,
        queries: NDArray[np.float32],
        top_k: int,
        selection: Selection,
    ) -> list[list[Candidates]]:
        """For each query what may be among its best, of one project after another."""
        found: list[list[Candidates]] = [[] for _ in queries]
        projects = self._memory.projects(connection, state)
        wanted = projects if selection.project is None else projects.keys() & {selection.project}
        for project in wanted:
            resident = self._memory.resident(connection, state, project, self._dimension)
            positions = _positions(connection, resident, state, project, selection)
            matrix, rows = resident.view()
            for known, more in zip(
                found, nearest(matrix, rows, queries, top_k, positions), strict=True
            ):
                known.append(more)
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


def _positions(
    connection: sqlite3.Connection,
    resident: Resident,
    state: sql.State,
    project: str,
    selection: Selection,
) -> NDArray[np.int64] | None:
    """Where in the matrix of a project the selected vectors are; None: everywhere."""
    if selection == Selection(project=selection.project):
        return None

    def rows_of_selection(connection: sqlite3.Connection, chosen: Selection) -> NDArray[np.int64]:
        where, values = sql.condition(state.key, chosen)
        query = f"SELECT row FROM entry WHERE {where} AND project = ?"  # noqa: S608 - marks only
        return row_numbers(connection.execute(query, [*values, project]))

    return resident.places(connection, selection, rows_of_selection)


def _matches(
    connection: sqlite3.Connection,
    found: Sequence[Sequence[Candidates]],
    top_k: int,
    at_least: float,
) -> list[tuple[Match, ...]]:
    """The best of the candidates, in order, with what belongs to them."""
    names = _ids(connection, {int(r) for some in found for one in some for r in one.rows})
    best = [
        ordered(
            (
                (float(cosine), names[int(row)], int(row))
                for one in some
                for row, cosine in zip(one.rows, one.cosines, strict=True)
            ),
            top_k,
            at_least,
        )
        for some in found
    ]
    bodies = _bodies(connection, {row for some in best for _, _, row in some})
    return [
        tuple(Match(name, score, bodies[row][0], bodies[row][1]) for score, name, row in some)
        for some in best
    ]


def _ids(connection: sqlite3.Connection, rows: set[int]) -> dict[int, str]:
    query = "SELECT row, id FROM entry WHERE row IN (SELECT value FROM json_each(?))"
    found = connection.execute(query, (json.dumps(sorted(rows)),))
    return {row: restored(name) for row, name in found}


def _bodies(connection: sqlite3.Connection, rows: set[int]) -> dict[int, tuple[Fields, str]]:
    query = (
        "SELECT row, project, corpus, path, language, tags, payload"
        " FROM entry JOIN body USING (row) WHERE row IN (SELECT value FROM json_each(?))"
    )
    found = connection.execute(query, (json.dumps(sorted(rows)),))
    return {row: (fields_of(*fields), restored(payload)) for row, *fields, payload in found}
