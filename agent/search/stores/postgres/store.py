"""PostgreSQL with pgvector: one table for each collection, exact search, HNSW for large tables.

PostgreSQL filters the results of an HNSW index after the search and continues
(`hnsw.iterative_scan`) until there are enough. If few entries are selected, comparing all of them
is faster and complete. That is also done if the index returned too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, LiteralString, TypeVar

from psycopg import sql

from agent.search.stores.base import EVERYTHING, CollectionInfo, EntryFilter, VectorMatch
from agent.search.stores.engine import BaseCollection, BaseStore, checked_name
from agent.search.stores.entries import StoredEntry
from agent.search.stores.postgres.connection import Postgres, has_schema, table_of
from agent.search.stores.postgres.statements import (
    COLUMNS,
    best_of,
    condition,
    copy_in,
    count,
    index_name,
    infos,
    is_indexed,
    is_narrow,
    vector_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.search.stores.postgres.connection import Connection
    from agent.types.protocols import Reporter

T = TypeVar("T")

INDEX_FROM = 20_000
"""Entries from which an index is created. Comparing fewer takes milliseconds."""

_INDEXABLE = 4_000  # maximum dimension for HNSW of pgvector in half precision
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

# A vector is only written if its text has changed, because equal texts have equal vectors and a new
# vector would be inserted into the index again. Rows are sorted to prevent deadlocks between
# concurrent writers.
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


def open_url(url: str, _reporter: Reporter, _api_key: str | None) -> PostgresStore:
    """Open the database of the URL."""
    return PostgresStore(url)


def list_collections(url: str, _reporter: Reporter) -> tuple[CollectionInfo, ...] | None:
    """Return the collections in a read-only transaction; none if there is no schema."""

    def read(connection: Connection) -> tuple[CollectionInfo, ...]:
        connection.execute("SET TRANSACTION READ ONLY")
        return infos(connection) if has_schema(connection) else ()

    with closing(Postgres(url, reading=True)) as server:
        return server.run(read)


class PostgresStore(BaseStore):
    """All collections of a database. The constructor raises StoreUnreachable or StoreMismatch."""

    def __init__(self, url: str) -> None:
        self._server = Postgres(url)

    @property
    def url(self) -> str:
        """Return the URL without a password."""
        return self._server.url

    def collection(self, name: str, model: str, dimension: int) -> PostgresCollection:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        collection = PostgresCollection(self._server, checked_name(name), model, dimension)
        self._server.run(collection.make)
        return collection

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return all collections by name."""
        return self._server.run(infos)

    def drop(self, name: str) -> None:
        """Remove a collection if it exists."""

        def remove(connection: Connection) -> None:
            statement = "DELETE FROM patchshot.collection WHERE name = %s RETURNING key"
            for (key,) in connection.execute(statement, (name,)).fetchall():
                connection.execute(sql.SQL("DROP TABLE {}").format(table_of(key)))

        self._server.run(remove)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()


class PostgresCollection(BaseCollection):
    """Entries of one model in a table; made by `PostgresStore.collection`."""

    def __init__(self, server: Postgres, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._server = server

    def make(self, connection: Connection) -> int:
        """Return the key of the collection. Create it if it is missing or was dropped.

        Raises StoreMismatch.
        """
        statement = (
            "INSERT INTO patchshot.collection (name, model, dimension) VALUES (%s, %s, %s)"
            " ON CONFLICT (name) DO NOTHING RETURNING key"
        )
        known = self._key(connection)
        if known is not None:
            return known
        values = (self._name, self._model, self._dimension)
        made = connection.execute(statement, values).fetchone()
        if made is None:  # another process created it first
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
        self._refuse_other(model, dimension)
        return int(key)

    def _reading(self, action: Callable[[Connection, int], T], instead: T) -> T:
        """Run `action` with the key and return its result; return `instead` if the collection was
        dropped.
        """

        def read(connection: Connection) -> T:
            key = self._key(connection)
            return instead if key is None else action(connection, key)

        return self._server.run(read)

    def _write(self, rows: Mapping[str, StoredEntry]) -> int:
        """Write all rows in one transaction."""

        def write(connection: Connection) -> int:
            key = self.make(connection)
            copy_in(connection, key, rows.values())
            columns = sql.SQL(COLUMNS)
            statement = sql.SQL(_UPSERT).format(table=table_of(key), columns=columns)
            changed = connection.execute(statement).rowcount
            connection.execute("DROP TABLE pg_temp.incoming")
            return changed

        changed = self._server.run(write)
        if changed:
            self._server.run(self._index)
        return changed

    def _index(self, connection: Connection) -> None:
        """Create the index once the table is large. PostgreSQL then keeps it up to date."""
        key = self.make(connection)
        if self._dimension > _INDEXABLE or is_indexed(connection, key):
            return
        if count(connection, key, EVERYTHING, most=INDEX_FROM) < INDEX_FROM:
            return
        statement = sql.SQL(
            "CREATE INDEX IF NOT EXISTS {name} ON {table}"
            " USING hnsw ((vector::halfvec({dimension})) halfvec_cosine_ops)"
        )
        connection.execute(
            statement.format(
                name=sql.Identifier(index_name(key)),
                table=table_of(key),
                dimension=self._dimension,
            )
        )

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        return [(name, str(content)) for name, content in self._by_ids("content", ids)]

    def _vectors(self, ids: Sequence[str]) -> Iterable[tuple[str, NDArray[np.float32]]]:
        return [(name, vector_of(data)) for name, data in self._by_ids("vector", ids)]

    def _by_ids(self, column: str, ids: Sequence[str]) -> list[tuple[str, object]]:
        query = sql.SQL("SELECT id, {} FROM {} WHERE id = ANY(%s) ORDER BY id")

        def read(connection: Connection, key: int) -> list[tuple[str, object]]:
            text = query.format(sql.Identifier(column), table_of(key))
            rows = connection.execute(text, (list(ids),), binary=True).fetchall()
            return [(name, value) for name, value in rows]

        return self._reading(read, [])

    def _search(
        self, queries: NDArray[np.float32], top_k: int, selection: EntryFilter, at_least: float
    ) -> Sequence[tuple[VectorMatch, ...]]:
        def read(connection: Connection, key: int) -> list[tuple[VectorMatch, ...]]:
            exact = not is_indexed(connection, key) or is_narrow(connection, key, selection)
            return [
                best_of(connection, key, query, top_k, selection, at_least=at_least, exact=exact)
                for query in queries
            ]

        return self._reading(read, [()] * len(queries))

    def _delete(self, selection: EntryFilter) -> int:
        where, values = condition(selection)

        def remove(connection: Connection, key: int) -> int:
            statement = sql.SQL("DELETE FROM {} WHERE {}").format(table_of(key), where)
            return connection.execute(statement, values).rowcount

        return self._reading(remove, 0)

    def _count(self, selection: EntryFilter) -> int:
        return self._reading(lambda connection, key: count(connection, key, selection), 0)
