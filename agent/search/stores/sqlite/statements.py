"""SQL on the tables of the embedded store. The caller runs the transaction."""

from __future__ import annotations

import heapq
import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.search.stores.base import (
    EVERYTHING,
    CollectionInfo,
    EntryFilter,
    Fields,
    VectorMatch,
    score_of,
)
from agent.search.stores.entries import StoredEntry, fields_of, inside, restored, tag_mark
from agent.search.stores.exact import NearRows, ordered
from agent.search.stores.sqlite.resident import Part, Resident, row_numbers, stored

if TYPE_CHECKING:
    from numpy.typing import NDArray


def positions(
    connection: sqlite3.Connection, resident: Resident, part: Part, selection: EntryFilter
) -> NDArray[np.int64] | None:
    """Return the positions of the selected vectors in the matrix of a part; None means all."""
    if selection == EntryFilter(project=part.project) or selection == EntryFilter():
        return None

    def rows_of_selection(connection: sqlite3.Connection, chosen: EntryFilter) -> NDArray[np.int64]:
        where, values = condition(part.key, chosen)
        own, bounds = part.where(part.after)
        query = f"SELECT row FROM entry WHERE {where} AND {own}"  # noqa: S608 - marks only
        return row_numbers(connection.execute(query, [*values, *bounds]))

    return resident.places(connection, selection, rows_of_selection)


def first_by_id(
    connection: sqlite3.Connection, key: int, selection: EntryFilter, top_k: int
) -> NearRows:
    """Return the first selected entries by id, for a zero query."""
    where, values = condition(key, selection)
    query = f"SELECT row FROM entry WHERE {where} ORDER BY id LIMIT ?"  # noqa: S608 - marks only
    rows = row_numbers(connection.execute(query, [*values, top_k]))
    return NearRows(rows, np.full(len(rows), -1.0))


def matches(
    connection: sqlite3.Connection,
    found: Sequence[Sequence[NearRows]],
    top_k: int,
    at_least: float,
) -> list[tuple[VectorMatch, ...]]:
    """Return the best candidates of each query in order, with fields and payload."""
    leading = [_leading(_by_row(some), top_k) for some in found]
    bodies = _bodies(connection, set().union(*leading))
    best = [
        ordered(((value, bodies[row].id, row) for row, value in some.items()), top_k, at_least)
        for some in leading
    ]
    return [
        tuple(
            VectorMatch(name, score, bodies[row].fields, bodies[row].payload)
            for score, name, row in one
        )
        for one in best
    ]


def _by_row(found: Sequence[NearRows]) -> dict[int, float]:
    """Return each row once, because the index and the exact search may both have found it."""
    return {
        int(row): float(cosine)
        for one in found
        for row, cosine in zip(one.rows, one.cosines, strict=True)
    }


def _leading(cosines: Mapping[int, float], top_k: int) -> Mapping[int, float]:
    """Return the best `top_k` by score, and all that tie with the last of them."""
    if len(cosines) <= top_k:
        return cosines
    least = heapq.nlargest(top_k, map(score_of, cosines.values()))[-1]
    return {row: value for row, value in cosines.items() if score_of(value) >= least}


@dataclass(frozen=True, slots=True)
class _Body:
    """The fields and payload of an entry, which results show."""

    id: str
    fields: Fields
    payload: str


def _bodies(connection: sqlite3.Connection, rows: set[int]) -> dict[int, _Body]:
    query = (
        "SELECT row, id, project, corpus, path, language, tags, payload"
        " FROM entry JOIN body USING (row) WHERE row IN (SELECT value FROM json_each(?))"
    )
    found = connection.execute(query, (json.dumps(sorted(rows)),))
    return {
        row: _Body(restored(name), fields_of(*fields), restored(payload))
        for row, name, *fields, payload in found
    }


_AT_ONCE = 500  # entries per statement

_INSERT = (
    "INSERT INTO entry (row, collection, id, content, project, corpus, path, language, tags)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = "UPDATE entry SET project = ?, corpus = ?, path = ?, language = ?, tags = ? WHERE row = ?"
_KNOWN = (
    "SELECT id, row, content, project, corpus, path, language, tags, payload"
    " FROM entry JOIN body USING (row)"
    " WHERE collection = ? AND id IN (SELECT value FROM json_each(?))"
)


@dataclass(frozen=True, slots=True)
class CollectionState:
    """The state of a collection in one transaction. `file` explains `epoch` and `last`."""

    key: int
    token: str
    epoch: int
    last: int


def find(
    connection: sqlite3.Connection, name: str
) -> tuple[CollectionInfo, CollectionState] | None:
    """Return a collection by name."""
    query = "SELECT key, token, model, dimension, epoch, last FROM collection WHERE name = ?"
    found = connection.execute(query, (name,)).fetchone()
    if found is None:
        return None
    key, token, model, dimension, epoch, last = found
    state = CollectionState(key, token, epoch, last)
    return CollectionInfo(name, model, dimension, count(connection, key)), state


def infos(connection: sqlite3.Connection) -> tuple[CollectionInfo, ...]:
    """Return all collections by name."""
    found = (find(connection, name) for name in names(connection))
    return tuple(one[0] for one in found if one is not None)


def state_of(connection: sqlite3.Connection, name: str) -> tuple[str, int, CollectionState] | None:
    """Return model, dimension and state without counting entries."""
    query = "SELECT model, dimension, key, token, epoch, last FROM collection WHERE name = ?"
    found = connection.execute(query, (name,)).fetchone()
    return None if found is None else (found[0], found[1], CollectionState(*found[2:]))


def make(connection: sqlite3.Connection, name: str, model: str, dimension: int) -> CollectionState:
    """Create a collection. Its token distinguishes it from earlier ones of that name."""
    token = secrets.token_hex(8)
    statement = (
        "INSERT INTO collection (name, token, model, dimension, epoch, last)"
        " VALUES (?, ?, ?, ?, 0, 0)"
    )
    cursor = connection.execute(statement, (name, token, model, dimension))
    assert cursor.lastrowid is not None
    return CollectionState(cursor.lastrowid, token, 0, 0)


def names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all collections, sorted."""
    return [name for (name,) in connection.execute("SELECT name FROM collection ORDER BY name")]


def tokens(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the tokens of all collections."""
    return frozenset(token for (token,) in connection.execute("SELECT token FROM collection"))


def drop(connection: sqlite3.Connection, key: int) -> None:
    """Remove a collection and all its entries."""
    delete(connection, key, EVERYTHING)
    connection.execute("DELETE FROM collection WHERE key = ?", (key,))


def upsert(connection: sqlite3.Connection, key: int, rows: Mapping[str, StoredEntry]) -> int:
    """Store new and changed entries; return how many there were."""
    changed, regrouped = 0, False
    free = _next_row(connection)
    for some in _parts(list(rows.values())):
        known = _known(connection, key, [row.id for row in some])
        fresh = [row for row in some if row.id not in known or known[row.id].replaced_by(row)]
        renamed = [row for row in some if row.id in known and known[row.id].updated_by(row)]
        doomed = [known[row.id].row for row in fresh if row.id in known]
        _remove(connection, doomed)
        _insert(connection, key, free, fresh)
        _update(connection, [(known[row.id].row, row) for row in renamed])
        free += len(fresh)
        changed += len(fresh) + len(renamed)
        regrouped = regrouped or bool(doomed) or any(known[r.id].regrouped_by(r) for r in renamed)
    _note(connection, key, last=free - 1 if changed else 0, regrouped=regrouped)
    return changed


@dataclass(frozen=True, slots=True)
class _Known:
    """The stored fields of an entry, without its vector."""

    row: int
    content: str
    fields: tuple[str, ...]
    payload: str

    def replaced_by(self, other: StoredEntry) -> bool:
        """Whether the vector differs or now belongs to another project."""
        return self.content != other.content or self.fields[0] != other.project

    def regrouped_by(self, other: StoredEntry) -> bool:
        return self.fields != other.fields

    def updated_by(self, other: StoredEntry) -> bool:
        same = self.fields == other.fields and self.payload == other.payload
        return not same and not self.replaced_by(other)


def _known(connection: sqlite3.Connection, key: int, ids: Sequence[str]) -> dict[str, _Known]:
    found = connection.execute(_KNOWN, (key, json.dumps(ids)))
    return {
        name: _Known(row, content, (project, corpus, path, language, tags), payload)
        for name, row, content, project, corpus, path, language, tags, payload in found
    }


def _insert(
    connection: sqlite3.Connection, key: int, first: int, rows: Sequence[StoredEntry]
) -> None:
    entries = [
        (number, key, row.id, row.content, *row.fields) for number, row in enumerate(rows, first)
    ]
    bodies = [(n, stored(row.vector), row.payload) for n, row in enumerate(rows, first)]
    connection.executemany(_INSERT, entries)
    connection.executemany("INSERT INTO body (row, vector, payload) VALUES (?, ?, ?)", bodies)


def _update(connection: sqlite3.Connection, rows: Sequence[tuple[int, StoredEntry]]) -> None:
    connection.executemany(_UPDATE, [(*row.fields, number) for number, row in rows])
    payloads = [(row.payload, number) for number, row in rows]
    connection.executemany("UPDATE body SET payload = ? WHERE row = ?", payloads)


def _remove(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    listed = [(number,) for number in numbers]
    connection.executemany("DELETE FROM entry WHERE row = ?", listed)
    connection.executemany("DELETE FROM body WHERE row = ?", listed)


def _next_row(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entry'").fetchone()
    return 1 + (int(found[0]) if found else 0)


def _note(connection: sqlite3.Connection, key: int, *, last: int, regrouped: bool) -> None:
    statement = "UPDATE collection SET last = max(last, ?), epoch = epoch + ? WHERE key = ?"
    connection.execute(statement, (last, int(regrouped), key))


def delete(connection: sqlite3.Connection, key: int, selection: EntryFilter) -> int:
    """Remove the selected entries; return how many."""
    where, values = condition(key, selection)
    rows = connection.execute(f"SELECT row FROM entry WHERE {where}", values).fetchall()  # noqa: S608
    _remove(connection, (row for (row,) in rows))
    if rows:
        _note(connection, key, last=0, regrouped=True)
    return len(rows)


def count(connection: sqlite3.Connection, key: int, selection: EntryFilter = EVERYTHING) -> int:
    """Return how many entries are selected."""
    where, values = condition(key, selection)
    query = f"SELECT COUNT(*) FROM entry WHERE {where}"  # noqa: S608 - marks only
    return int(connection.execute(query, values).fetchone()[0])


def sizes(connection: sqlite3.Connection, key: int) -> dict[str, int]:
    """Return the number of entries of each project, by project."""
    query = (
        "SELECT project, COUNT(*) FROM entry WHERE collection = ? GROUP BY project ORDER BY project"
    )
    return dict(connection.execute(query, (key,)))


def sizes_after(connection: sqlite3.Connection, key: int, row: int) -> dict[str, int]:
    """Return the number of entries of each project after a row."""
    query = (  # the plus prevents SQLite from scanning the whole collection
        "SELECT project, COUNT(*) FROM entry WHERE +collection = ? AND row > ? GROUP BY +project"
    )
    return dict(connection.execute(query, (key, row)))


def condition(key: int, selection: EntryFilter) -> tuple[str, list[object]]:
    """Return a condition on `entry` and its values for an escaped filter."""
    parts, values = ["entry.collection = ?"], list[object]([key])
    if selection.project is not None:
        parts.append("project = ?")
        values.append(selection.project)
    for column, wanted in (
        ("corpus", selection.corpora or None),
        ("language", selection.languages or None),
        ("id", selection.ids),
    ):
        if wanted is not None:
            parts.append(f"{column} IN (SELECT value FROM json_each(?))")  # noqa: S608 - a constant
            values.append(json.dumps(sorted(wanted)))
    for tag in sorted(selection.tags):
        parts.append("instr(tags, ?) > 0")
        values.append(tag_mark(tag))
    if selection.under:
        parts.append("(path = ? OR path >= ? AND path < ?)")
        values += [selection.under, *inside(selection.under)]
    return " AND ".join(parts), values


def _parts(rows: Sequence[StoredEntry]) -> Iterator[Sequence[StoredEntry]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]
