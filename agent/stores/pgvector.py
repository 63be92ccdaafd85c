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
    checked_name,
    escaped,
    escaped_selection,
    refuse_other,
    restored,
    rows_of,
    unit_queries,
)
from agent.stores.pgvector_rows import (
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
from agent.stores.postgres import Postgres, table_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter
    from agent.stores.postgres import Connection

INDEX_FROM = 20_000
"""Entries from which an index pays: below, the exact way over all of them takes milliseconds."""

_INDEXABLE = 4_000  # dimensions: what HNSW of pgvector takes in half precision
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
        return self._server.run(infos)

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
        """Make the index once the table is large; PostgreSQL keeps it up to date from then on."""
        key = self.made(connection)
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

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """`content` by id, of those that are stored."""
        found = self._by_ids("content", ids)
        return {restored(name): restored(str(content)) for name, content in found}

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """Vectors (d,) float32 by id, of those that are stored."""
        return {restored(name): vector_of(data) for name, data in self._by_ids("vector", ids)}

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
            exact = not is_indexed(connection, key) or is_narrow(connection, key, chosen)
            return [
                best_of(connection, key, unit, top_k, chosen, at_least=at_least, exact=exact)
                for unit in units
            ]

        return self._server.run(read)

    def delete(self, selection: Selection) -> int:
        """Remove what is selected; how many."""
        where, values = condition(escaped_selection(selection))

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
            return 0 if key is None else count(connection, key, chosen)

        return self._server.run(read)
