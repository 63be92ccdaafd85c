"""Search of a collection in SQLite that is too large for the exact way: an index, scored again.

An index gives rows that are near by its coarse numbers. They are looked up in the file, where what
is gone or not selected drops out, and scored by their stored vectors. Where too few are left, more
are asked for; where few entries are selected, all of them are compared.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from agent.stores import sqlite_rows as sql
from agent.stores.ann import SHARD, AnnIndex
from agent.stores.base import Selection
from agent.stores.exact import Candidates, cosines, nearest
from agent.stores.resident import joined_vectors, read_vectors, widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OVER = 4  # candidates for each result: int8 swaps neighbours that lie close together
_LEAST, _MOST = 64, 4_096  # candidates of a shard
_KNOWN = 64  # selections of which it is remembered whether they are narrow


@dataclass(frozen=True, slots=True)
class Scale:
    """When an index is used and made; the numbers are those of the machine it was measured on.

    `limit`: vectors up to which the exact search of all is quick (10 ms at 384 numbers). `tail`:
    new ones from which a writer takes them into the index; until then they are searched exactly
    (2 ms). `narrow`: selected entries up to which all of them are compared. `dead`: the share of an
    index that may be gone before it is made anew.
    """

    limit: int = 100_000
    tail: int = 20_000
    narrow: int = 10_000
    dead: float = 0.25
    shard: int = SHARD


@dataclass(slots=True, eq=False)
class Large:
    """The search of one collection by its index; used within transactions, one at a time."""

    index: AnnIndex
    dimension: int
    scale: Scale
    _narrow: OrderedDict[tuple[sql.State, Selection], bool] = field(default_factory=OrderedDict)

    def candidates(
        self,
        connection: sqlite3.Connection,
        state: sql.State,
        queries: NDArray[np.float32],
        top_k: int,
        selection: Selection,
    ) -> list[list[Candidates]]:
        """For each query what may be among the best of the rows up to `index.last`."""
        where, values = sql.condition(state.key, selection)
        if self._is_narrow(connection, state, selection):
            return self._compared(connection, queries, top_k, where, values)
        found = [self._approximate(connection, q, top_k, where, values) for q in queries]
        poor = [number for number, one in enumerate(found) if one is None]
        if poor:
            rest = self._compared(connection, queries[poor], top_k, where, values)
            for number, exact in zip(poor, rest, strict=True):
                found[number] = exact
        return [one or [] for one in found]

    def _is_narrow(
        self, connection: sqlite3.Connection, state: sql.State, selection: Selection
    ) -> bool:
        if selection == Selection():
            return False
        key = (state, selection)
        if key not in self._narrow:
            where, values = sql.condition(state.key, selection)
            query = f"SELECT COUNT(*) FROM (SELECT 1 FROM entry WHERE {where} LIMIT ?)"  # noqa: S608
            limit = self.scale.narrow + 1
            (count,) = connection.execute(query, [*values, limit]).fetchone()
            self._narrow[key] = count < limit
        self._narrow.move_to_end(key)
        while len(self._narrow) > _KNOWN:
            self._narrow.popitem(last=False)
        return self._narrow[key]

    def _approximate(
        self,
        connection: sqlite3.Connection,
        query: NDArray[np.float32],
        top_k: int,
        where: str,
        values: Sequence[object],
    ) -> list[Candidates] | None:
        """Near rows with their exact cosines; None where too few of those found are selected."""
        count = max(_LEAST, _OVER * top_k)
        while True:
            near = self.index.search(query, count)
            found = self._looked_up(connection, near, query, where, values)
            if len(found.rows) >= top_k:
                return [found]
            if count >= _MOST:
                return None
            count *= 4

    def _looked_up(
        self,
        connection: sqlite3.Connection,
        rows: NDArray[np.int64],
        query: NDArray[np.float32],
        where: str,
        values: Sequence[object],
    ) -> Candidates:
        # The plus keeps SQLite from walking through an index of the whole collection.
        other = where.replace("entry.", "+entry.")
        chosen = f"row IN (SELECT value FROM json_each(?)) AND {other}"  # noqa: S608 - marks only
        listed = [json.dumps(rows.tolist()), *values]
        present, vectors = joined_vectors(connection, chosen, listed, self.dimension)
        return Candidates(present, cosines(vectors, query))

    def _compared(
        self,
        connection: sqlite3.Connection,
        queries: NDArray[np.float32],
        top_k: int,
        where: str,
        values: Sequence[object],
    ) -> list[list[Candidates]]:
        """The exact way over all that is selected, read from the file."""
        found: list[list[Candidates]] = [[] for _ in queries]
        for rows, vectors in read_vectors(connection, where, values, self.dimension):
            more = nearest(widened(vectors), rows, queries, top_k)
            for known, one in zip(found, more, strict=True):
                known.append(one)
        return found
