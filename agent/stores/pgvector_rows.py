"""Statements on the table of a collection in PostgreSQL, within a transaction of their caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, LiteralString

import numpy as np
from psycopg import sql

from agent.stores.base import EVERYTHING, CollectionInfo, Match, Selection
from agent.stores.border import Row, fields_of, inside, restored, tag_mark
from agent.stores.exact import cosines, ordered
from agent.stores.postgres import table_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.stores.postgres import Connection

NARROW = 10_000
"""Selected entries up to which the exact way is taken although there is an index."""

_EF_SEARCH = 200  # candidates that a search of the graph keeps; 40, the default, loses 1 in 10
_MORE = 16  # beside the top k: half precision may swap neighbours at the cut

COLUMNS: LiteralString = "id, content, project, corpus, path, language, tags, payload, vector"


def copy_in(connection: Connection, key: int, rows: Iterable[Row]) -> None:
    """Bring rows into a table of this transaction: ten times as fast as a statement each."""
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
    """A vector (d,) from its binary form."""
    assert isinstance(data, bytes), "psycopg gives types that it does not know as they came"
    return np.frombuffer(data, dtype=">f4", offset=4).astype(np.float32)


def _text(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def best_of(
    connection: Connection,
    key: int,
    query: NDArray[np.float32],
    top_k: int,
    selection: Selection,
    *,
    at_least: float,
    exact: bool,
) -> tuple[Match, ...]:
    """The best for one query. What an index gives is scored again with the whole vectors."""
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
    selection: Selection,
    *,
    exact: bool,
) -> list[tuple[object, ...]]:
    where, values = condition(selection)
    if exact:
        # Zero vectors are at no angle to anything (NaN): they come last, after the opposite ones.
        order: sql.Composable = sql.SQL("coalesce(nullif(vector <=> %s::vector, 'NaN'), 2), id")
    else:
        connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        connection.execute(sql.SQL("SET LOCAL hnsw.ef_search = {}").format(max(_EF_SEARCH, 1)))
        order = sql.SQL("vector::halfvec({0}) <=> %s::halfvec({0})").format(len(query))
    statement = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT %s").format(
        sql.SQL(COLUMNS), table_of(key), where, order
    )
    limit = top_k if exact else top_k + _MORE
    return connection.execute(statement, (*values, _text(query), limit), binary=True).fetchall()


def _best(
    rows: Sequence[tuple[object, ...]], query: NDArray[np.float32], top_k: int, at_least: float
) -> tuple[Match, ...]:
    if not rows:
        return ()
    vectors = np.stack([vector_of(row[-1]) for row in rows])
    scored = [
        (float(cosine), restored(str(row[0])), number)
        for number, (row, cosine) in enumerate(zip(rows, cosines(vectors, query), strict=True))
    ]
    return tuple(
        Match(name, score, fields_of(*map(str, rows[n][2:7])), restored(str(rows[n][7])))
        for score, name, n in ordered(scored, top_k, at_least)
    )


def is_narrow(connection: Connection, key: int, selection: Selection) -> bool:
    """Whether so little is selected that all of it is compared."""
    if selection == EVERYTHING:
        return False
    return count(connection, key, selection, most=NARROW + 1) <= NARROW


def count(
    connection: Connection, key: int, selection: Selection, *, most: int | None = None
) -> int:
    """How many are selected; counting ends at `most`."""
    where, values = condition(selection)
    query = sql.SQL("SELECT COUNT(*) FROM (SELECT 1 FROM {} WHERE {} LIMIT %s) AS chosen")
    found = connection.execute(query.format(table_of(key), where), (*values, most)).fetchone()
    return int(found[0]) if found else 0


def infos(connection: Connection) -> tuple[CollectionInfo, ...]:
    """All collections, by name."""
    query = "SELECT key, name, model, dimension FROM patchshot.collection ORDER BY name"
    return tuple(
        CollectionInfo(name, model, dimension, count(connection, key, EVERYTHING))
        for key, name, model, dimension in connection.execute(query).fetchall()
    )


def index_name(key: int) -> str:
    """Of the HNSW index of a collection."""
    return f"entry_{key:d}_hnsw"


def is_indexed(connection: Connection, key: int) -> bool:
    """Whether there is one."""
    query = "SELECT 1 FROM pg_indexes WHERE schemaname = 'patchshot' AND indexname = %s"
    return connection.execute(query, (index_name(key),)).fetchone() is not None


def condition(selection: Selection) -> tuple[sql.Composable, list[object]]:
    """A condition and its values. The selection is escaped."""
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
