"""Search of a large collection in SQLite by an approximate index, with exact rescoring.

The index returns near rows by coarse scores. Looking them up in the file drops removed and
unselected rows; the rest is scored by the stored vectors. If too few remain, more rows are
requested. If few entries are selected, all of them are compared.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from agent.search.stores.base import EntryFilter
from agent.search.stores.exact import NearRows, cosines, nearest
from agent.search.stores.sqlite import statements as sql
from agent.search.stores.sqlite.ann import SHARD, AnnIndex, near_rows
from agent.search.stores.sqlite.resident import (
    BOTH,
    joined_vectors,
    read_vectors,
    widened,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KNOWN = 64  # maximum cached answers about narrow selections


@dataclass(frozen=True, slots=True)
class Scale:
    """Thresholds for using and building an index, measured on the benchmark machine.

    `limit`: up to this many vectors, exact search of all is fast (10 ms at d = 384).
    `tail`: number of new vectors at which a writer adds them to the index; until then they are
    searched exactly (1 ms).
    `narrow`: up to this many selected entries, all of them are compared.
    `dead`: share of removed vectors from which an index is rebuilt.
    `growth`: an index is rebuilt when it has this many times the vectors of its training.
    """

    limit: int = 100_000
    tail: int = 10_000
    narrow: int = 10_000
    dead: float = 0.25
    growth: float = 3.0
    shard: int = SHARD


@dataclass(slots=True, eq=False)
class Large:
    """Searches one collection by its index. Calls run within transactions, one at a time."""

    index: AnnIndex
    dimension: int
    scale: Scale
    _narrow: OrderedDict[tuple[sql.CollectionState, EntryFilter], bool] = field(
        default_factory=OrderedDict
    )

    def candidates(
        self,
        connection: sqlite3.Connection,
        state: sql.CollectionState,
        queries: NDArray[np.float32],
        top_k: int,
        selection: EntryFilter,
    ) -> list[list[NearRows]]:
        """Return the candidates for each query among the rows up to `index.last`."""
        where, values = sql.condition(state.key, selection)
        if self._is_narrow(connection, state, selection):
            return self._compared(connection, queries, top_k, where, values)
        chosen = None if selection == EntryFilter() else (where, values)
        found = [self._approximate(connection, query, top_k, chosen) for query in queries]
        poor = [number for number, one in enumerate(found) if one is None]
        if poor:
            rest = self._compared(connection, queries[poor], top_k, where, values)
            for number, exact in zip(poor, rest, strict=True):
                found[number] = exact
        return [one or [] for one in found]

    def _is_narrow(
        self, connection: sqlite3.Connection, state: sql.CollectionState, selection: EntryFilter
    ) -> bool:
        if selection == EntryFilter():
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
    ) -> list[NearRows] | None:
        """Return near rows with exact cosines; None if too few of them are selected."""

        def look_up(rows: NDArray[np.int64]) -> NearRows:
            return self._looked_up(connection, rows, query, chosen)

        found = near_rows(self.index, query, top_k, look_up, every=chosen is None)
        return None if found is None else [found]

    def _looked_up(
        self,
        connection: sqlite3.Connection,
        rows: NDArray[np.int64],
        query: NDArray[np.float32],
        chosen: tuple[str, Sequence[object]] | None,
    ) -> NearRows:
        where = "row IN (SELECT value FROM json_each(?))"
        values: list[object] = [json.dumps(rows.tolist())]
        table = "body"  # removed rows are missing in this table too
        if chosen is not None:
            # The plus prevents SQLite from scanning an index of the whole collection.
            other = chosen[0].replace("entry.", "+entry.")
            where, values = f"{where} AND {other}", [*values, *chosen[1]]
            table = BOTH
        present, vectors = joined_vectors(connection, where, values, self.dimension, table)
        return NearRows(present, cosines(vectors, query))

    def _compared(
        self,
        connection: sqlite3.Connection,
        queries: NDArray[np.float32],
        top_k: int,
        where: str,
        values: Sequence[object],
    ) -> list[list[NearRows]]:
        """Compare all selected entries, read from the file."""
        found: list[list[NearRows]] = [[] for _ in queries]
        for rows, vectors in read_vectors(connection, where, values, self.dimension):
            more = nearest(widened(vectors), rows, queries, top_k)
            for known, one in zip(found, more, strict=True):
                known.append(one)
        return found
