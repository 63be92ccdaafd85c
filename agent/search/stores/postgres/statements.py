"""Statements on the table of a collection in PostgreSQL. The caller runs the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, LiteralString

import numpy as np
from psycopg import sql

from agent.search.stores.base import EVERYTHING, CollectionInfo, EntryFilter, Fields, VectorMatch
from agent.search.stores.engine import NARROW, TIE_ROOM, best_matches
from agent.search.stores.entries import StoredEntry, fields_of, inside, restored, tag_mark
from agent.search.stores.postgres.connection import table_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.search.stores.postgres.connection import Connection

_EF_SEARCH = 200  # candidates of a graph search; the default of 40 misses 1 in 10 results

COLUMNS: LiteralString = "id, content, project, corpus, path, language, tags, payload, vector"


def copy_in(connection: Connection, key: int, rows: Iterable[StoredEntry]) -> None:
    """Copy rows into a temporary table, which is ten times as fast as one statement per row."""
    columns = sql.SQL(COLUMNS)
    statement = sql.SQL(
        "CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT {} FROM {} LIMIT 0"
    )
    connection.execute(statement.format(columns, table_of(key)))
    copying = sql.SQL("COPY pg_temp.incoming ({}) FROM STDIN (FORMAT BINARY)").format(columns)
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        for row in rows:
            texts = (row.id, row.content, *row.fields, row.payload)
            copy.write_row((*texts, _binary(row.vector)))


# pgvector's binary form (src/vector.c, vector_send): int16 dimension, int16 zero, float32 each.
def _binary(vector: NDArray[np.float32]) -> bytes:
    head = len(vector).to_bytes(2, "big") + b"\0\0"
    return head + vector.astype(">f4").tobytes()


def vector_of(data: object) -> NDArray[np.float32]:
    """Parse the binary form of a vector (d,)."""
    assert isinstance(data, bytes), "psycopg gives types that it does not know as they came"
    return np.frombuffer(data, dtype=">f4", offset=4).astype(np.float32)


def _text(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def best_of(
    connection: Connection,
    key: int,
    query: NDArray[np.float32],
    top_k: int,
    selection: EntryFilter,
    *,
    at_least: float,
    exact: bool,
) -> tuple[VectorMatch, ...]:
    """Return the best matches for one query. The results of an index are rescored exactly."""
    if not exact and query.any():
        rows = _nearest(connection, key, query, top_k, selection, exact=False)
        if len(rows) >= top_k:
            return _best(rows, query, top_k, at_least)
    return _best(
        _nearest(connection, key, query, top_k, selection, exact=True), query, top_k, at_least
    )


def _nearest(
    connection: Connection,
    key: int,
    query: NDArray[np.float32],
    top_k: int,
    selection: EntryFilter,
    *,
    exact: bool,
) -> list[tuple[object, ...]]:
    where, values = condition(selection)
    if exact:
        # The distance to a zero vector is NaN. Such entries sort last, after opposite vectors.
        order: sql.Composable = sql.SQL("coalesce(nullif(vector <=> %s::vector, 'NaN'), 2), id")
    else:
        connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        connection.execute(sql.SQL("SET LOCAL hnsw.ef_search = {}").format(max(_EF_SEARCH, 1)))
        order = sql.SQL("vector::halfvec({0}) <=> %s::halfvec({0})").format(len(query))
    statement = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT %s").format(
        sql.SQL(COLUMNS), table_of(key), where, order
    )
    limit = top_k if exact else top_k + TIE_ROOM
    return connection.execute(statement, (*values, _text(query), limit), binary=True).fetchall()


def _best(
    rows: Sequence[tuple[object, ...]], query: NDArray[np.float32], top_k: int, at_least: float
) -> tuple[VectorMatch, ...]:
    if not rows:
        return ()

    def body(number: int) -> tuple[Fields, str]:
        _, _, *fields, payload, _ = rows[number]
        return fields_of(*map(str, fields)), restored(str(payload))

    vectors = np.stack([vector_of(row[-1]) for row in rows])
    names = (restored(str(row[0])) for row in rows)
    return best_matches(query, vectors, names, body, top_k, at_least)


def is_narrow(connection: Connection, key: int, selection: EntryFilter) -> bool:
    """Whether few enough entries are selected to compare all of them."""
    if selection == EVERYTHING:
        return False
    return count(connection, key, selection, most=NARROW + 1) <= NARROW


def count(
    connection: Connection, key: int, selection: EntryFilter, *, most: int | None = None
) -> int:
    """Return how many entries are selected; counting stops at `most`."""
    where, values = condition(selection)
    query = sql.SQL("SELECT COUNT(*) FROM (SELECT 1 FROM {} WHERE {} LIMIT %s) AS chosen")
    found = connection.execute(query.format(table_of(key), where), (*values, most)).fetchone()
    return int(found[0]) if found else 0


def infos(connection: Connection) -> tuple[CollectionInfo, ...]:
    """Return all collections by name."""
    query = "SELECT key, name, model, dimension FROM patchshot.collection ORDER BY name"
    return tuple(
        CollectionInfo(name, model, dimension, count(connection, key, EVERYTHING))
        for key, name, model, dimension in connection.execute(query).fetchall()
    )


def index_name(key: int) -> str:
    """Return the name of a collection's HNSW index."""
    return f"entry_{key:d}_hnsw"


def is_indexed(connection: Connection, key: int) -> bool:
    """Whether the collection has an HNSW index."""
    query = "SELECT 1 FROM pg_indexes WHERE schemaname = 'patchshot' AND indexname = %s"
    return connection.execute(query, (index_name(key),)).fetchone() is not None


def condition(selection: EntryFilter) -> tuple[sql.Composable, list[object]]:
    """Return a condition and its values for an escaped filter."""
    parts, values = list[sql.Composable]([sql.SQL("TRUE")]), list[object]()
    if selection.project is not None:
        parts.append(sql.SQL("project = %s"))
        values.append(selection.project)
    for text, wanted in (
        (sql.SQL("corpus = ANY(%s)"), selection.corpora or None),
        (sql.SQL("language = ANY(%s)"), selection.languages or None),
        (sql.SQL("id = ANY(%s)"), selection.ids),
    ):
        if wanted is not None:
            parts.append(text)
            values.append(sorted(wanted))
    for tag in sorted(selection.tags):
        parts.append(sql.SQL("strpos(tags, %s) > 0"))
        values.append(tag_mark(tag))
    if selection.under:
        parts.append(sql.SQL("(path = %s OR path >= %s AND path < %s)"))
        values += [selection.under, *inside(selection.under)]
    return sql.SQL(" AND ").join(parts), values
