"""Statements on the tables of the embedded store. Each runs within a transaction of its caller."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.stores.base import EVERYTHING, CollectionInfo, Selection
from agent.stores.border import Row, inside, tag_mark
from agent.stores.resident import stored

_AT_ONCE = 500  # entries a statement

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
class State:
    """A collection as of one transaction: see `sqlite_file` for `epoch` and `last`."""

    key: int
    token: str
    epoch: int
    last: int


def find(connection: sqlite3.Connection, name: str) -> tuple[CollectionInfo, State] | None:
    """A collection by name."""
    query = "SELECT key, token, model, dimension, epoch, last FROM collection WHERE name = ?"
    found = connection.execute(query, (name,)).fetchone()
    if found is None:
        return None
    key, token, model, dimension, epoch, last = found
    state = State(key, token, epoch, last)
    return CollectionInfo(name, model, dimension, count(connection, key)), state


def infos(connection: sqlite3.Connection) -> tuple[CollectionInfo, ...]:
    """All collections, by name."""
    found = (find(connection, name) for name in names(connection))
    return tuple(one[0] for one in found if one is not None)


def state_of(connection: sqlite3.Connection, name: str) -> tuple[str, int, State] | None:
    """Model, dimension and state: what a query begins with, without counting entries."""
    query = "SELECT model, dimension, key, token, epoch, last FROM collection WHERE name = ?"
    found = connection.execute(query, (name,)).fetchone()
    return None if found is None else (found[0], found[1], State(*found[2:]))


def make(connection: sqlite3.Connection, name: str, model: str, dimension: int) -> State:
    """A new collection. Its token tells it from others that had its name before."""
    token = secrets.token_hex(8)
    statement = (
        "INSERT INTO collection (name, token, model, dimension, epoch, last)"
        " VALUES (?, ?, ?, ?, 0, 0)"
    )
    cursor = connection.execute(statement, (name, token, model, dimension))
    assert cursor.lastrowid is not None
    return State(cursor.lastrowid, token, 0, 0)


def names(connection: sqlite3.Connection) -> list[str]:
    """Of all collections, sorted."""
    return [name for (name,) in connection.execute("SELECT name FROM collection ORDER BY name")]


def tokens(connection: sqlite3.Connection) -> frozenset[str]:
    """Of all collections."""
    return frozenset(token for (token,) in connection.execute("SELECT token FROM collection"))


def drop(connection: sqlite3.Connection, key: int) -> None:
    """Remove a collection and all that it holds."""
    delete(connection, key, EVERYTHING)
    connection.execute("DELETE FROM collection WHERE key = ?", (key,))


def upsert(connection: sqlite3.Connection, key: int, rows: Mapping[str, Row]) -> int:
    """Store what is new or has changed; how many entries those were."""
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
    """What is stored of an entry beside its vector."""

    row: int
    content: str
    fields: tuple[str, ...]
    payload: str

    def replaced_by(self, other: Row) -> bool:
        """Whether the vector is another, or another project has to read it."""
        return self.content != other.content or self.fields[0] != other.project

    def regrouped_by(self, other: Row) -> bool:
        return self.fields != other.fields

    def updated_by(self, other: Row) -> bool:
        same = self.fields == other.fields and self.payload == other.payload
        return not same and not self.replaced_by(other)


def _known(connection: sqlite3.Connection, key: int, ids: Sequence[str]) -> dict[str, _Known]:
    found = connection.execute(_KNOWN, (key, json.dumps(ids)))
    return {
        name: _Known(row, content, (project, corpus, path, language, tags), payload)
        for name, row, content, project, corpus, path, language, tags, payload in found
    }


def _insert(connection: sqlite3.Connection, key: int, first: int, rows: Sequence[Row]) -> None:
    entries = [
        (number, key, row.id, row.content, *row.fields) for number, row in enumerate(rows, first)
    ]
    bodies = [(n, stored(row.vector), row.payload) for n, row in enumerate(rows, first)]
    connection.executemany(_INSERT, entries)
    connection.executemany("INSERT INTO body (row, vector, payload) VALUES (?, ?, ?)", bodies)


def _update(connection: sqlite3.Connection, rows: Sequence[tuple[int, Row]]) -> None:
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


def delete(connection: sqlite3.Connection, key: int, selection: Selection) -> int:
    """Remove what is selected; how many."""
    where, values = condition(key, selection)
    rows = connection.execute(f"SELECT row FROM entry WHERE {where}", values).fetchall()  # noqa: S608
    _remove(connection, (row for (row,) in rows))
    if rows:
        _note(connection, key, last=0, regrouped=True)
    return len(rows)


def count(connection: sqlite3.Connection, key: int, selection: Selection = EVERYTHING) -> int:
    """How many entries are selected."""
    where, values = condition(key, selection)
    query = f"SELECT COUNT(*) FROM entry WHERE {where}"  # noqa: S608 - marks only
    return int(connection.execute(query, values).fetchone()[0])


def sizes(connection: sqlite3.Connection, key: int) -> dict[str, int]:
    """Entries of each project, in order of projects."""
    query = (
        "SELECT project, COUNT(*) FROM entry WHERE collection = ? GROUP BY project ORDER BY project"
    )
    return dict(connection.execute(query, (key,)))


def sizes_after(connection: sqlite3.Connection, key: int, row: int) -> dict[str, int]:
    """Entries of each project after a row."""
    query = (  # the plus keeps SQLite from walking through the whole collection
        "SELECT project, COUNT(*) FROM entry WHERE +collection = ? AND row > ? GROUP BY +project"
    )
    return dict(connection.execute(query, (key, row)))


def condition(key: int, selection: Selection) -> tuple[str, list[object]]:
    """A condition on `entry` and its values. The selection is escaped."""
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


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]
