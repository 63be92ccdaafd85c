"""PostgreSQL with pgvector: one table a collection, exact search, and HNSW where it is large.

An HNSW index knows nothing of a selection: what it finds is filtered afterwards, and goes on being
searched (`hnsw.iterative_scan`) until there is enough. Where few entries are selected, the exact
way over them is quicker and finds all; it is also the way back where the index gave too few.
"""

from __future__ import annotations

from collections.abc import Collection as Set
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, LiteralString

import numpy as np
from psycopg import sql

from agent.stores.base import EVERYTHING, CollectionInfo, Entry, Match, Selection
from agent.stores.border import (
    Row,
    checked_name,
    escaped,
    escaped_selection,
    fields_of,
    inside,
    refuse_other,
    restored,
    rows_of,
    tag_mark,
    unit_queries,
)
from agent.stores.exact import cosines, ordered
from agent.stores.postgres import Postgres, table_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter
    from agent.stores.postgres import Connection

INDEX_FROM = 20_000
"""Entries from which an index pays: below, the exact way over all of them takes milliseconds."""

NARROW = 10_000
"""Selected entries up to which the exact way is taken although there is an index."""

_INDEXABLE = 4_000  # dimensions: what HNSW of pgvector takes in half precision
_EF_SEARCH = 200  # candidates that a search of the graph keeps; 40, the default, loses 1 in 10
_MORE = 16  # beside the top k: half precision may swap neighbours at the cut

_COLUMNS: LiteralString = "id, content, project, corpus, path, language, tags, payload, vector"

_TABLE: LiteralString = """
CREATE TABLE {table} (
    id TEXT COLLATE "C" PRIMARY KEY,
    content TEXT NOT NULL,
    project TEXT NOT NULL,
    corpus TEXT NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    language TEXT NOT NULL DEFAULT 'text',
    tags TEXT NOT NULL,
    payload TEXT NOT NULL,
    vector vector({dimension}) NOT NULL
)
"""

# A vector is written when the text has changed only: the same text has the same vector, and a new
# one would go into the index again. Sorted, so that writers wait for each other and never in rings.
_UPSERT: LiteralString = """
INSERT INTO {table} AS old ({columns}) SELECT {columns} FROM pg_temp.incoming ORDER BY id
ON CONFLICT (id) DO UPDATE SET
    content = excluded.content, project = excluded.project, corpus = excluded.corpus,
    path = excluded.path, language = excluded.language, tags = excluded.tags,
    payload = excluded.payload,
    vector = CASE WHEN old.content = excluded.content THEN old.vector ELSE excluded.vector END
WHERE (old.content, old.project, old.corpus, old.path, old.language, old.tags, old.payload)
    IS DISTINCT FROM (excluded.content, excluded.project, excluded.corpus, excluded.path,
                      excluded.language, excluded.tags, excluded.payload)
"""


class PostgresStore:
    """All collections of a database. Raises StoreUnreachable or StoreMismatch when it is made."""

    def __init__(self, url: str, reporter: Reporter) -> None:
        self._server = Postgres(url)
        self._report = reporter

    @property
    def url(self) -> str:
        """Without a password."""
        return self._server.url

    def collection(self, name: str, model: str, dimension: int) -> PostgresCollection:
        """Open it, or make it. Raises StoreMismatch for another model or dimension."""
        collection = PostgresCollection(self._server, checked_name(name), model, dimension)
        self._server.run(collection.made)
        return collection

    def collections(self) -> tuple[CollectionInfo, ...]:
        """All, by name."""

        def read(connection: Connection) -> tuple[CollectionInfo, ...]:
            query = "SELECT key, name, model, dimension FROM patchshot.collection ORDER BY name"
            return tuple(
                CollectionInfo(name, model, dimension, _count(connection, key, EVERYTHING))
                for key, name, model, dimension in connection.execute(query).fetchall()
            )

        return self._server.run(read)

    def drop(self, name: str) -> None:
        """Remove a collection; nothing happens where there is none."""

        def remove(connection: Connection) -> None:
            statement = "DELETE FROM patchshot.collection WHERE name = %s RETURNING key"
            for (key,) in connection.execute(statement, (name,)).fetchall():
                connection.execute(sql.SQL("DROP TABLE {}").format(table_of(key)))

        self._server.run(remove)

    def close(self) -> None:
        """Let go of the connection."""
        self._server.close()

    def __enter__(self) -> PostgresStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PostgresCollection:
    """Entries of one model in a table; made by `PostgresStore.collection`."""

    def __init__(self, server: Postgres, name: str, model: str, dimension: int) -> None:
        self._server = server
        self._name = name
        self._model = model
        self._dimension = dimension

    @property
    def info(self) -> CollectionInfo:
        """Name, model, dimension, and how many entries there are now."""
        return CollectionInfo(self._name, self._model, self._dimension, self.count())

    def made(self, connection: Connection) -> int:
        """Its key; made where it is not there (any more). Raises StoreMismatch."""
        statement = (
            "INSERT INTO patchshot.collection (name, model, dimension) VALUES (%s, %s, %s)"
            " ON CONFLICT (name) DO NOTHING RETURNING key"
        )
        known = self._key(connection)
        if known is not None:
            return known
        values = (self._name, self._model, self._dimension)
        made = connection.execute(statement, values).fetchone()
        if made is None:  # another process was quicker
            return self._key(connection) or 0
        table = sql.SQL(_TABLE).format(table=table_of(made[0]), dimension=self._dimension)
        connection.execute(table)
        index = sql.SQL("CREATE INDEX ON {} (project, corpus)").format(table_of(made[0]))
        connection.execute(index)
        return int(made[0])

    def _key(self, connection: Connection) -> int | None:
        query = "SELECT key, model, dimension FROM patchshot.collection WHERE name = %s"
        found = connection.execute(query, (self._name,)).fetchone()
        if found is None:
            return None
        key, model, dimension = found
        refuse_other(CollectionInfo(self._name, model, dimension, 0), self._model, self._dimension)
        return int(key)

    def upsert(self, entries: Iterable[Entry]) -> int:
        """Add or replace by id; how many were new or had changed. All of them, or none."""
        rows = rows_of(entries, self._dimension)
        if not rows:
            return 0

        def write(connection: Connection) -> int:
            key = self.made(connection)
            _copy(connection, key, rows.values())
            columns = sql.SQL(_COLUMNS)
            statement = sql.SQL(_UPSERT).format(table=table_of(key), columns=columns)
            changed = connection.execute(statement).rowcount
            connection.execute("DROP TABLE pg_temp.incoming")
            return changed

        changed = self._server.run(write)
        if changed:
            self._server.run(self._index)
        return changed

    def _index(self, connection: Connection) -> None:
        """Make the index once the table is large; PostgreSQL keeps it up to date from then on."""
        key = self.made(connection)
        if self._dimension > _INDEXABLE or _indexed(connection, key):
            return
        if _count(connection, key, EVERYTHING, most=INDEX_FROM) < INDEX_FROM:
            return
        statement = sql.SQL(
            "CREATE INDEX IF NOT EXISTS {name} ON {table}"
            " USING hnsw ((vector::halfvec({dimension})) halfvec_cosine_ops)"
        )
        connection.execute(
            statement.format(
                name=sql.Identifier(_index_name(key)),
                table=table_of(key),
                dimension=self._dimension,
            )
        )

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """`content` by id, of those that are stored."""
        found = self._by_ids("content", ids)
        return {restored(name): restored(str(content)) for name, content in found}

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """Vectors (d,) float32 by id, of those that are stored."""
        return {restored(name): _vector(data) for name, data in self._by_ids("vector", ids)}

    def _by_ids(self, column: str, ids: Set[str]) -> list[tuple[str, object]]:
        wanted = sorted(map(escaped, ids))
        query = sql.SQL("SELECT id, {} FROM {} WHERE id = ANY(%s) ORDER BY id")

        def read(connection: Connection) -> list[tuple[str, object]]:
            key = self._key(connection)
            if key is None:
                return []
            text = query.format(sql.Identifier(column), table_of(key))
            rows = connection.execute(text, (wanted,), binary=True).fetchall()
            return [(name, value) for name, value in rows]

        return self._server.run(read)

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

        def read(connection: Connection) -> list[tuple[Match, ...]]:
            key = self._key(connection)
            if key is None or top_k < 1:
                return [() for _ in units]
            exact = not _indexed(connection, key) or _narrow(connection, key, chosen)
            return [
                _found(connection, key, unit, top_k, chosen, at_least=at_least, exact=exact)
                for unit in units
            ]

        return self._server.run(read)

    def delete(self, selection: Selection) -> int:
        """Remove what is selected; how many."""
        where, values = _condition(escaped_selection(selection))

        def remove(connection: Connection) -> int:
            key = self._key(connection)
            if key is None:
                return 0
            statement = sql.SQL("DELETE FROM {} WHERE {}").format(table_of(key), where)
            return connection.execute(statement, values).rowcount

        return self._server.run(remove)

    def count(self, selection: Selection = EVERYTHING) -> int:
        """How many entries are selected."""
        chosen = escaped_selection(selection)

        def read(connection: Connection) -> int:
            key = self._key(connection)
            return 0 if key is None else _count(connection, key, chosen)

        return self._server.run(read)


def _copy(connection: Connection, key: int, rows: Iterable[Row]) -> None:
    """Bring rows into a table of this transaction: ten times as fast as a statement each."""
    columns = sql.SQL(_COLUMNS)
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


def _vector(data: object) -> NDArray[np.float32]:
    assert isinstance(data, bytes), "psycopg gives types that it does not know as they came"
    return np.frombuffer(data, dtype=">f4", offset=4).astype(np.float32)


def _text(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def _found(
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
    where, values = _condition(selection)
    if exact:
        # Zero vectors are at no angle to anything (NaN): they come last, after the opposite ones.
        order: sql.Composable = sql.SQL("coalesce(nullif(vector <=> %s::vector, 'NaN'), 2), id")
    else:
        connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        connection.execute(sql.SQL("SET LOCAL hnsw.ef_search = {}").format(max(_EF_SEARCH, 1)))
        order = sql.SQL("vector::halfvec({0}) <=> %s::halfvec({0})").format(len(query))
    statement = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT %s").format(
        sql.SQL(_COLUMNS), table_of(key), where, order
    )
    limit = top_k if exact else top_k + _MORE
    return connection.execute(statement, (*values, _text(query), limit), binary=True).fetchall()


def _best(
    rows: Sequence[tuple[object, ...]], query: NDArray[np.float32], top_k: int, at_least: float
) -> tuple[Match, ...]:
    if not rows:
        return ()
    vectors = np.stack([_vector(row[-1]) for row in rows])
    scored = [
        (float(cosine), restored(str(row[0])), number)
        for number, (row, cosine) in enumerate(zip(rows, cosines(vectors, query), strict=True))
    ]
    return tuple(
        Match(name, score, fields_of(*map(str, rows[n][2:7])), restored(str(rows[n][7])))
        for score, name, n in ordered(scored, top_k, at_least)
    )


def _narrow(connection: Connection, key: int, selection: Selection) -> bool:
    if selection == EVERYTHING:
        return False
    return _count(connection, key, selection, most=NARROW + 1) <= NARROW


def _count(
    connection: Connection, key: int, selection: Selection, *, most: int | None = None
) -> int:
    """How many are selected; counting ends at `most`."""
    where, values = _condition(selection)
    query = sql.SQL("SELECT COUNT(*) FROM (SELECT 1 FROM {} WHERE {} LIMIT %s) AS chosen")
    found = connection.execute(query.format(table_of(key), where), (*values, most)).fetchone()
    return int(found[0]) if found else 0


def _index_name(key: int) -> str:
    return f"entry_{key:d}_hnsw"


def _indexed(connection: Connection, key: int) -> bool:
    query = "SELECT 1 FROM pg_indexes WHERE schemaname = 'patchshot' AND indexname = %s"
    return connection.execute(query, (_index_name(key),)).fetchone() is not None


def _condition(selection: Selection) -> tuple[sql.Composable, list[object]]:
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
