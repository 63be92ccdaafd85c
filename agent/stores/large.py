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
from agent.stores.exact import NEAR, Candidates, cosines, nearest
from agent.stores.inverted import LEAST
from agent.stores.resident import BOTH, joined_vectors, read_vectors, widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OVER = 4  # candidates for each result: int8 swaps neighbours that lie close together
# What is worse by this much is not looked up, which costs a page that may not be in memory: twice
# the standard deviation of what int8 errs by in the difference of two cosines.
_MARGIN = 0.009
_MOST = 4_096  # candidates that are looked up for a query: 30 ms
_KNOWN = 64  # selections of which it is remembered whether they are narrow


@dataclass(frozen=True, slots=True)
class Scale:
    """When an index is used and made; the numbers are those of the machine it was measured on.

    `limit`: vectors up to which the exact search of all is quick (10 ms at 384 numbers). `tail`:
    new ones from which a writer takes them into the index; until then they are searched exactly
    (1 ms). `narrow`: selected entries up to which all of them are compared. An index is made anew
    when the share `dead` of it is gone, or when there are `growth` times as many vectors as its
    lists were made for.
    """

    limit: int = 100_000
    tail: int = 10_000
    narrow: int = 10_000
    dead: float = 0.25
    growth: float = 3.0
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
        chosen = None if selection == Selection() else (where, values)
        found = [self._approximate(connection, query, top_k, chosen) for query in queries]
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
        chosen: tuple[str, Sequence[object]] | None,
    ) -> list[Candidates] | None:
        """Near rows with their exact cosines; None where too few of those found are selected."""
        count = max(LEAST, _OVER * top_k)
        promising = chosen is None
        while True:
            near, coarse = self.index.search(query, count)
            rows = near[: _promising(coarse, top_k)] if promising else near
            found = self._looked_up(connection, rows, query, chosen)
            if len(found.rows) >= top_k:
                clear = len(rows) < len(near) or not _may_tie(found, top_k)
                if clear or count >= _MOST:
                    return [found]
            if count >= _MOST:
                return None
            promising = False  # some are gone
            count *= 4

    def _looked_up(
        self,
        connection: sqlite3.Connection,
        rows: NDArray[np.int64],
        query: NDArray[np.float32],
        chosen: tuple[str, Sequence[object]] | None,
    ) -> Candidates:
        where = "row IN (SELECT value FROM json_each(?))"
        values: list[object] = [json.dumps(rows.tolist())]
        table = "body"  # what is gone is not there either
        if chosen is not None:
            # The plus keeps SQLite from walking through an index of the whole collection.
            other = chosen[0].replace("entry.", "+entry.")
            where, values = f"{where} AND {other}", [*values, *chosen[1]]
            table = BOTH
        present, vectors = joined_vectors(connection, where, values, self.dimension, table)
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


def _promising(coarse: NDArray[np.float32], top_k: int) -> int:
    """How many candidates, best first, may be among the best `top_k` for all that int8 tells."""
    if len(coarse) <= top_k:
        return len(coarse)
    return int(np.count_nonzero(coarse >= coarse[top_k - 1] - _MARGIN))


def _may_tie(found: Candidates, top_k: int) -> bool:
    """Whether more that are as near as number `top_k` may be left: equal vectors tie by id."""
    falling = -np.sort(-found.cosines)
    return bool(falling[top_k - 1] - falling[-1] <= NEAR)
