"""PostgreSQL with pgvector (extra `pgvector`): one table for each collection.

Small tables are compared exactly, large ones by an HNSW index. All tables are in the schema
`patchshot`, whose comment names this program and a version. A schema of that name without the
comment belongs to another program and is not changed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import psycopg
from psycopg import errors

from agent.errors import StoreError, StoreMismatch, StoreUnreachable
from agent.search.stores import shown_url, without_password_of
from agent.search.stores.base import (
    EVERYTHING,
    SCHEMA_VERSION,
    TEXTS,
    CollectionInfo,
    EntryFilter,
    StoredEntry,
    VectorCollection,
    VectorStore,
    checked_name,
    entry_of,
    refuse_other,
    sql_condition,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from psycopg.rows import TupleRow

    Connection = psycopg.Connection[TupleRow]

T = TypeVar("T")

INDEX_FROM = 20_000
"""Entries from which an index is created. Comparing fewer takes milliseconds."""

NARROW = 10_000
"""Up to this many selected entries, all of them are compared: an index filters afterwards."""

_INDEXABLE = 4_000  # maximum dimension for HNSW of pgvector in half precision
_EF_SEARCH = 200  # candidates of a graph search; the default of 40 misses 1 in 10 results
_MARK = "vectors of patchshot, version "
_LOCK = 0x50535653  # advisory lock held while the schema is created
_CONNECT_SECONDS = 5
_PAUSES = (0.1, 0.4, 1.0, 2.0, 4.0)  # a supervised server is back a few seconds after a crash
_COLUMNS = f"{', '.join(TEXTS)}, vector"
_TABLES = """
CREATE SCHEMA patchshot;
CREATE TABLE patchshot.collection (
    key SERIAL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL
)
"""
_TABLE = """
CREATE TABLE {table} (
    id TEXT COLLATE "C" PRIMARY KEY,
    content TEXT NOT NULL,
    project TEXT NOT NULL,
    corpus TEXT NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    language TEXT NOT NULL,
    tags TEXT NOT NULL,
    payload TEXT NOT NULL,
    vector vector({dimension}) NOT NULL
);
CREATE INDEX ON {table} (project, corpus)
"""
# Rows are sorted to prevent deadlocks between writers. The vector of an equal text stays, because a
# new one would be inserted into the index again.
_UPSERT = f"""
INSERT INTO {{table}} AS old ({_COLUMNS}) SELECT {_COLUMNS} FROM pg_temp.incoming ORDER BY id
ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in TEXTS[1:])},
    vector = CASE WHEN old.content = excluded.content THEN old.vector ELSE excluded.vector END
WHERE ({", ".join(f"old.{name}" for name in TEXTS[1:])})
    IS DISTINCT FROM ({", ".join(f"excluded.{name}" for name in TEXTS[1:])})
"""


class PostgresStore(VectorStore):
    """All collections of a database, over one connection that reconnects when it breaks.

    Thread-safe; runs one action at a time. Raises StoreUnreachable or StoreMismatch.
    """

    def __init__(self, url: str) -> None:
        self.url = shown_url(url)
        self._address = _quoted(url)
        self._secret_url = url
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        try:
            self.run(_prepare, _PAUSES[:1])
        except StoreError:
            self.close()
            raise

    def run(self, action: Callable[[Connection], T], pauses: Sequence[float] | None = None) -> T:
        """Run `action` in one transaction; repeat it if the connection breaks.

        Raises StoreUnreachable if the server stays unreachable or its disk is full, and StoreError
        if it rejects the statement.
        """
        waits = [*(_PAUSES if pauses is None else pauses)]
        with self._lock:
            while True:
                try:
                    return self._attempt(action)
                except (errors.DiskFull, errors.OutOfMemory) as error:
                    raise self._unusable(error, "free some space on the server") from None
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    self.close()
                    if not waits:
                        raise self._unusable(error, "start it, or check the address") from None
                    time.sleep(waits.pop(0))
                except psycopg.Error as error:
                    raise StoreError(
                        f"vector store {self.url} refused"
                        f" ({without_password_of(self._secret_url, str(error))}); check the rights"
                        " of its user, or name another database"
                    ) from None

    def _attempt(self, action: Callable[[Connection], T]) -> T:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._address,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                prepare_threshold=None,  # connection poolers lose prepared statements
                application_name="patchshot",
            )
        with self._connection.transaction():
            return action(self._connection)

    def _unusable(self, error: Exception, advice: str) -> StoreUnreachable:
        reason = without_password_of(self._secret_url, str(error)) or type(error).__name__
        return StoreUnreachable(f"vector store {self.url} cannot be used ({reason}); {advice}")

    def collection(self, name: str, model: str, dimension: int) -> PostgresCollection:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        collection = PostgresCollection(self, checked_name(name), model, dimension)
        self.run(collection.make)
        return collection

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return all collections by name."""

        def read(connection: Connection) -> tuple[CollectionInfo, ...]:
            query = "SELECT key, name, model, dimension FROM patchshot.collection ORDER BY name"
            return tuple(
                CollectionInfo(name, model, dimension, _count(connection, key, EVERYTHING))
                for key, name, model, dimension in _rows(connection, query)
            )

        return self.run(read)

    def drop(self, name: str) -> None:
        """Remove a collection if it exists."""

        def remove(connection: Connection) -> None:
            statement = "DELETE FROM patchshot.collection WHERE name = %s RETURNING key"
            for (key,) in _rows(connection, statement, [name]):
                connection.execute(f"DROP TABLE {_table(key)}".encode())

        self.run(remove)

    def close(self) -> None:
        """Close the connection. A later action opens a new one."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


class PostgresCollection(VectorCollection):
    """Entries of one model in a table; made by `PostgresStore.collection`."""

    def __init__(self, store: PostgresStore, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._store = store

    def make(self, connection: Connection) -> int:
        """Return the key of the collection. Create it if it is missing. Raises StoreMismatch."""
        key = self._key(connection)
        if key is None:
            statement = (
                "INSERT INTO patchshot.collection (name, model, dimension) VALUES (%s, %s, %s)"
                " ON CONFLICT (name) DO NOTHING RETURNING key"
            )
            made = _rows(connection, statement, [self.name, self.model, self.dimension])
            if not made:  # another process created it first
                return self._key(connection) or 0
            key = int(made[0][0])
            table = _TABLE.format(table=_table(key), dimension=self.dimension)
            connection.execute(table.encode())
        return key

    def _key(self, connection: Connection) -> int | None:
        query = "SELECT key, model, dimension FROM patchshot.collection WHERE name = %s"
        for key, model, dimension in _rows(connection, query, [self.name]):
            refuse_other(CollectionInfo(self.name, model, dimension, 0), self.model, self.dimension)
            return int(key)
        return None

    def _read(self, action: Callable[[Connection, int], T], instead: T) -> T:
        """Run `action` with the key; return `instead` if the collection was dropped."""

        def read(connection: Connection) -> T:
            key = self._key(connection)
            return instead if key is None else action(connection, key)

        return self._store.run(read)

    def _write(self, rows: Sequence[StoredEntry]) -> int:
        """Copy all rows into a temporary table and merge it, in one transaction."""

        def write(connection: Connection) -> int:
            table = _table(self.make(connection))
            connection.execute(
                "CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS"
                f" SELECT {_COLUMNS} FROM {table} LIMIT 0".encode()
            )
            copying = f"COPY pg_temp.incoming ({_COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
            with connection.cursor() as cursor, cursor.copy(copying) as copy:
                for row in rows:
                    # pgvector's binary form: int16 dimension, int16 zero, float32 each
                    head = len(row.vector).to_bytes(2, "big") + b"\0\0"
                    vector = head + row.vector.astype(">f4").tobytes()
                    copy.write_row((*(getattr(row, name) for name in TEXTS), vector))
            changes = connection.execute(_UPSERT.format(table=table).encode()).rowcount
            connection.execute("DROP TABLE pg_temp.incoming")
            return changes

        changes = self._store.run(write)
        if changes and self.dimension <= _INDEXABLE:
            self._read(self._index, None)
        return changes

    def _index(self, connection: Connection, key: int) -> None:
        """Create the index once the table is large. PostgreSQL then keeps it up to date."""
        if _count(connection, key, EVERYTHING, most=INDEX_FROM) >= INDEX_FROM:
            connection.execute(
                f"CREATE INDEX IF NOT EXISTS entry_{key:d}_hnsw ON {_table(key)} USING hnsw"
                f" ((vector::halfvec({self.dimension})) halfvec_cosine_ops)".encode()
            )

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        def read(connection: Connection, key: int) -> list[tuple[str, str]]:
            query = f"SELECT id, content FROM {_table(key)} WHERE id = ANY(%s)"
            return [(name, content) for name, content in _rows(connection, query, [list(ids)])]

        return self._read(read, [])

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[StoredEntry]:
        def read(connection: Connection, key: int) -> list[TupleRow]:
            if _is_indexed(connection, key) and (
                selection == EVERYTHING
                or _count(connection, key, selection, most=NARROW + 1) > NARROW
            ):
                rows = _by_index(connection, key, query, limit, selection)
                if len(rows) == limit:
                    return rows
            return _ordered(connection, key, "vector <=> %s::vector", query, limit, selection)

        rows: list[TupleRow] = self._read(read, [])
        return [
            entry_of(texts, np.frombuffer(vector, ">f4", offset=4).astype(np.float32))
            for *texts, vector in rows
        ]

    def _delete(self, selection: EntryFilter) -> int:
        where, values = _condition(selection)

        def remove(connection: Connection, key: int) -> int:
            return connection.execute(
                f"DELETE FROM {_table(key)} WHERE {where}".encode(), values
            ).rowcount

        return self._read(remove, 0)

    def _count(self, selection: EntryFilter) -> int:
        return self._read(lambda connection, key: _count(connection, key, selection), 0)


def _prepare(connection: Connection) -> None:
    """Create the schema if it does not exist. Raises StoreMismatch for a foreign one."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    if not _rows(connection, "SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            raise StoreUnreachable(
                f"the database has no pgvector ({' '.join(str(error).split())}); install it on the"
                " server and let an administrator run: CREATE EXTENSION vector"
            ) from None
    query = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"
    found = _rows(connection, query, ["patchshot"])
    if not found:
        connection.execute(_TABLES.encode())
        connection.execute(f"COMMENT ON SCHEMA patchshot IS '{_MARK}{SCHEMA_VERSION}'".encode())
        return
    mark = found[0][0] or ""
    if not mark.startswith(_MARK):
        raise StoreMismatch(
            "the database has a schema patchshot that is not ours; name another database"
        )
    if mark != f"{_MARK}{SCHEMA_VERSION}":
        raise StoreMismatch(
            f"the database is of version {mark.removeprefix(_MARK)}, this program knows"
            f" {SCHEMA_VERSION}; name another database, or run DROP SCHEMA patchshot CASCADE and"
            " index again"
        )


def _by_index(
    connection: Connection,
    key: int,
    query: NDArray[np.float32],
    limit: int,
    selection: EntryFilter,
) -> list[TupleRow]:
    connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
    connection.execute(f"SET LOCAL hnsw.ef_search = {_EF_SEARCH}".encode())
    order = f"vector::halfvec({len(query)}) <=> %s::halfvec({len(query)})"
    return _ordered(connection, key, order, query, limit, selection)


def _ordered(
    connection: Connection,
    key: int,
    order: str,
    query: NDArray[np.float32],
    limit: int,
    selection: EntryFilter,
) -> list[TupleRow]:
    where, values = _condition(selection)
    text = f"SELECT {_COLUMNS} FROM {_table(key)} WHERE {where} ORDER BY {order} LIMIT %s"
    numbers = "[" + ",".join(map(repr, query.tolist())) + "]"
    return connection.execute(text.encode(), (*values, numbers, limit), binary=True).fetchall()


def _rows(connection: Connection, query: str, values: Sequence[Any] = ()) -> list[TupleRow]:
    return connection.execute(query.encode(), values).fetchall()


def _is_indexed(connection: Connection, key: int) -> bool:
    query = "SELECT 1 FROM pg_indexes WHERE schemaname = 'patchshot' AND indexname = %s"
    return bool(_rows(connection, query, [f"entry_{key:d}_hnsw"]))


def _count(
    connection: Connection, key: int, selection: EntryFilter, *, most: int | None = None
) -> int:
    """Return how many entries are selected; counting stops at `most`."""
    where, values = _condition(selection)
    query = f"SELECT COUNT(*) FROM (SELECT 1 FROM {_table(key)} WHERE {where} LIMIT %s) AS chosen"
    return int(_rows(connection, query, [*values, most])[0][0])


def _table(key: int) -> str:
    return f"patchshot.entry_{key:d}"


def _condition(selection: EntryFilter) -> tuple[str, list[object]]:
    values: list[object] = []

    def bind(value: str) -> str:
        values.append(value)
        return "%s"

    return sql_condition(selection, bind, "strpos(tags, {}) > 0"), values


def _quoted(url: str) -> str:
    """Quote every `@` except the last one: the driver splits user and host at the first `@`."""
    scheme, mark, rest = url.partition("//")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    return scheme + mark + user.replace("@", "%40") + at + host + rest[len(authority) :]
