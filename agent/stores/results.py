"""From candidates of a search in SQLite to its results: the best of them, with what they carry."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.stores import sqlite_rows as sql
from agent.stores.base import Fields, Match, Selection, score_of
from agent.stores.border import fields_of, restored
from agent.stores.exact import Candidates, ordered
from agent.stores.resident import Part, Resident, row_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray


def positions(
    connection: sqlite3.Connection, resident: Resident, part: Part, selection: Selection
) -> NDArray[np.int64] | None:
    """Where in the matrix of a part the selected vectors are; None: everywhere."""
    if selection == Selection(project=part.project) or selection == Selection():
        return None

    def rows_of_selection(connection: sqlite3.Connection, chosen: Selection) -> NDArray[np.int64]:
        where, values = sql.condition(part.key, chosen)
        own, bounds = part.where(part.after)
        query = f"SELECT row FROM entry WHERE {where} AND {own}"  # noqa: S608 - marks only
        return row_numbers(connection.execute(query, [*values, *bounds]))

    return resident.places(connection, selection, rows_of_selection)


def first_by_id(
    connection: sqlite3.Connection, key: int, selection: Selection, top_k: int
) -> Candidates:
    """The first by id of what is selected: for a query that is at no angle to anything."""
    where, values = sql.condition(key, selection)
    query = f"SELECT row FROM entry WHERE {where} ORDER BY id LIMIT ?"  # noqa: S608 - marks only
    rows = row_numbers(connection.execute(query, [*values, top_k]))
    return Candidates(rows, np.full(len(rows), -1.0))


def matches(
    connection: sqlite3.Connection,
    found: Sequence[Sequence[Candidates]],
    top_k: int,
    at_least: float,
) -> list[tuple[Match, ...]]:
    """The best of the candidates of each query, in order, with what belongs to them."""
    leading = [_leading(_by_row(some), top_k) for some in found]
    bodies = _bodies(connection, set().union(*leading))
    best = [
        ordered(((value, bodies[row].id, row) for row, value in some.items()), top_k, at_least)
        for some in leading
    ]
    return [
        tuple(
            Match(name, score, bodies[row].fields, bodies[row].payload) for score, name, row in one
        )
        for one in best
    ]


def _by_row(found: Sequence[Candidates]) -> dict[int, float]:
    """Each row once: what an index does not know yet may have been compared with all others."""
    return {
        int(row): float(cosine)
        for one in found
        for row, cosine in zip(one.rows, one.cosines, strict=True)
    }


def _leading(cosines: Mapping[int, float], top_k: int) -> Mapping[int, float]:
    """What is among the best `top_k` by score, and all that ties with the last of them."""
    if len(cosines) <= top_k:
        return cosines
    least = heapq.nlargest(top_k, map(score_of, cosines.values()))[-1]
    return {row: value for row, value in cosines.items() if score_of(value) >= least}


@dataclass(frozen=True, slots=True)
class _Body:
    """What is shown of an entry."""

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
