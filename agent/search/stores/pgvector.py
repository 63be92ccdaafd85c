"""PostgreSQL with pgvector (extra `pgvector`): one table for each collection, compared exactly.

All tables are in the schema `patchshot`, whose comment names this program and a version. A schema
of that name without the comment belongs to another program and is not changed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import psycopg
from psycopg import errors

from agent.errors import StoreError, StoreMismatch, StoreUnreachable
from agent.search.stores import shown_url, unusable
from agent.search.stores.base import (
    SCHEMA_VERSION,
    TEXTS,
    EntryFilter,
    ServerAway,
    StoredEntry,
    retried,
    sql_condition,
)
from agent.search.stores.sql import SqlCollection, SqlStore

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from psycopg.rows import TupleRow

    Connection = psycopg.Connection[TupleRow]

T = TypeVar("T")

_MARK = "vectors of patchshot, version "
_LOCK = 0x50535653  # advisory lock held while the schema is created
_CONNECT_SECONDS = 5
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
# Rows are sorted to prevent deadlocks between writers. The vector of an equal text stays.
_UPSERT = f"""
INSERT INTO {{table}} AS old ({_COLUMNS}) SELECT {_COLUMNS} FROM pg_temp.incoming ORDER BY id
ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in TEXTS[1:])},
    vector = CASE WHEN old.content = excluded.content THEN old.vector ELSE excluded.vector END
WHERE ({", ".join(f"old.{name}" for name in TEXTS[1:])})
    IS DISTINCT FROM ({", ".join(f"excluded.{name}" for name in TEXTS[1:])})
"""


class PostgresCollection(SqlCollection["PostgresStore"]):
    """Entries of one model in a table."""

    def create(self, connection: Connection) -> int:
        """Insert the collection, create its table and return its key."""
        statement = (
            "INSERT INTO patchshot.collection (name, model, dimension) VALUES (%s, %s, %s)"
            " ON CONFLICT (name) DO NOTHING RETURNING key"
        )
        values = (self.name, self.model, self.dimension)
        row = connection.execute(statement, values).fetchone()
        if row is None:  # another process created it first
            return self._key(connection) or 0
        table = _TABLE.format(table=_table(row[0]), dimension=self.dimension)
        connection.execute(table.encode())
        return int(row[0])

    def rows_of(self, key: int, selection: EntryFilter) -> tuple[str, list[Any]]:
        """Return `TABLE WHERE CONDITION` for the selected entries, and the values in it."""
        condition, values = sql_condition(selection, "strpos(tags, ?) > 0")
        return f"{_table(key)} WHERE {condition}", [*values]

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
                    copy.write_row((*row[:-1], head + row.vector.astype(">f4").tobytes()))
            changes = connection.execute(_UPSERT.format(table=table).encode()).rowcount
            connection.execute("DROP TABLE pg_temp.incoming")
            return changes

        return self._store.run(write)

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[StoredEntry]:
        def read(connection: Connection, key: int) -> list[TupleRow]:
            rows, values = self.rows_of(key, selection)
            order = "ORDER BY vector <=> ?::vector LIMIT ?"
            text = f"SELECT {_COLUMNS} FROM {rows} {order}".replace("?", "%s")
            numbers = "[" + ",".join(map(repr, query.tolist())) + "]"
            bound = (*values, numbers, limit)
            return connection.execute(text.encode(), bound, binary=True).fetchall()

        rows: list[tuple[Any, ...]] = self._run(read, [])
        return [
            StoredEntry._make(
                (*row[:-1], np.frombuffer(row[-1], ">f4", offset=4).astype(np.float32))
            )
            for row in rows
        ]


class PostgresStore(SqlStore):
    """All collections of a database, over one connection that reconnects when it breaks.

    Thread-safe; runs one action at a time. Raises StoreUnreachable or StoreMismatch.
    """

    table = "patchshot.collection"
    kind = PostgresCollection

    def __init__(self, url: str) -> None:
        self.url = shown_url(url)
        self._address = _quoted(url)
        self._secret_url = url
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        try:
            retried(lambda: self._attempt(_prepare), tries=1)
        except StoreError:
            self.close()
            raise

    def run(self, action: Callable[[Connection], T], *, writing: bool = False) -> T:
        """Run `action` in one transaction; repeat it if the connection breaks.

        Raises StoreUnreachable if the server stays unreachable or its disk is full, and StoreError
        if it rejects the statement.
        """
        del writing
        with self._lock:
            return retried(lambda: self._attempt(action))

    def execute(self, connection: Connection, statement: str, values: Sequence[Any] = ()) -> Any:
        """Execute a statement with a `?` for each value; return the cursor."""
        return connection.execute(statement.replace("?", "%s").encode(), values)

    def _attempt(self, action: Callable[[Connection], T]) -> T:
        try:
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
        except (errors.DiskFull, errors.OutOfMemory) as error:
            raise unusable(
                StoreUnreachable, self._secret_url, error, "free some space on it"
            ) from None
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise unusable(
                ServerAway, self._secret_url, error, "start it, or check the address"
            ) from None
        except psycopg.Error as error:
            advice = "check the rights of its user, or name another database"
            raise unusable(StoreError, self._secret_url, error, advice) from None

    def drop_entries(self, connection: Connection, key: int) -> None:
        """Drop the table of a collection."""
        connection.execute(f"DROP TABLE {_table(key)}".encode())

    def close(self) -> None:
        """Close the connection. A later action opens a new one."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


def _prepare(connection: Connection) -> None:
    """Create the schema if it does not exist. Raises StoreMismatch for a foreign one."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    if not connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone():
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            raise StoreUnreachable(
                f"the database has no pgvector ({' '.join(str(error).split())}); install it on the"
                " server and let an administrator run: CREATE EXTENSION vector"
            ) from None
    query = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"
    row = connection.execute(query, ["patchshot"]).fetchone()
    if row is None:
        connection.execute(_TABLES.encode())
        connection.execute(f"COMMENT ON SCHEMA patchshot IS '{_MARK}{SCHEMA_VERSION}'".encode())
        return
    mark = row[0] or ""
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


def _table(key: int) -> str:
    return f"patchshot.entry_{key:d}"


def _quoted(url: str) -> str:
    """Quote every `@` except the last one: the driver splits user and host at the first `@`."""
    scheme, mark, rest = url.partition("//")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    return scheme + mark + user.replace("@", "%40") + at + host + rest[len(authority) :]
