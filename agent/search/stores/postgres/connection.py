"""One connection to PostgreSQL. It reconnects, translates errors, and creates the schema.

All tables are in the schema `patchshot`, whose comment names this program and a version. A schema
of that name without the comment belongs to another program and is not changed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, LiteralString, TypeVar

import psycopg
from psycopg import errors, sql

from agent.errors import StoreError, StoreMismatch, StoreUnreachable
from agent.search.stores.base import SCHEMA_VERSION
from agent.search.stores.urls import without_password, without_password_of

if TYPE_CHECKING:
    from psycopg.rows import TupleRow

    Connection = psycopg.Connection[TupleRow]

T = TypeVar("T")

SCHEMA = "patchshot"
_MARK = "vectors and records of patchshot, version "
_LOCK = 0x50535653  # advisory lock held while the schema is created
_CONNECT_SECONDS = 5

# A supervised server is usually back a few seconds after a crash.
_PAUSES = (0.1, 0.4, 1.0, 2.0, 4.0)
_PAUSES_AT_FIRST = (0.2,)  # a server that is down at the start probably stays down

_TABLES: LiteralString = """
CREATE SCHEMA patchshot;
CREATE TABLE patchshot.collection (
    key SERIAL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL
);
CREATE TABLE patchshot.record (
    key BYTEA PRIMARY KEY,
    used INTEGER NOT NULL,
    data BYTEA NOT NULL
);
"""


class Postgres:
    """A connection that reconnects when it breaks. Thread-safe; runs one action at a time.

    With `reading` no schema is created.
    """

    def __init__(self, url: str, *, reading: bool = False) -> None:
        self.url = without_password(url)
        self._address = _quoted(url)
        self._said = url
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        try:
            self._run(has_schema if reading else _prepare, _PAUSES_AT_FIRST)
        except StoreError:
            self.close()
            raise

    def run(self, action: Callable[[Connection], T]) -> T:
        """Run `action` in one transaction and return its result.

        Repeat it if the connection breaks.

        Raises StoreUnreachable if the server stays unreachable or its disk is full, and StoreError
        if it rejects the statement.
        """
        return self._run(action, _PAUSES)

    def _run(self, action: Callable[[Connection], T], pauses: Sequence[float]) -> T:
        with self._lock:
            for pause in (*pauses, None):
                try:
                    return self._attempt(action)
                except (errors.DiskFull, errors.OutOfMemory) as error:
                    raise self._unreachable(error, "free some space on the server") from None
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    self.close()
                    if pause is None:
                        raise self._unreachable(error, "start it, or check the address") from None
                    time.sleep(pause)
                except psycopg.Error as error:
                    raise StoreError(
                        f"vector store {self.url} refused ({self._line(error)}); check the rights"
                        " of its user, or name another database"
                    ) from None
        raise AssertionError("the last try returns or raises")

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

    def close(self) -> None:
        """Close the connection. A later action opens a new one."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _unreachable(self, error: Exception, advice: str) -> StoreUnreachable:
        return StoreUnreachable(
            f"vector store {self.url} cannot be used ({self._line(error)}); {advice}"
        )

    def _line(self, error: Exception) -> str:
        return without_password_of(self._said, _line(error))


def _quoted(url: str) -> str:
    """Quote every `@` except the last one: the driver splits user and host at the first `@`."""
    scheme, mark, rest = url.partition("//")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    quoted = user.replace("@", "%40") + at + host
    return scheme + mark + quoted + rest[len(authority) :]


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _prepare(connection: Connection) -> None:
    """Create the schema if it does not exist."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    _require_vectors(connection)
    if not has_schema(connection):
        connection.execute(_TABLES)
        comment = sql.SQL("COMMENT ON SCHEMA patchshot IS {}")
        connection.execute(comment.format(sql.Literal(f"{_MARK}{SCHEMA_VERSION}")))


def _require_vectors(connection: Connection) -> None:
    found = connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone()
    if found is not None:
        return
    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.Error as error:
        raise StoreUnreachable(
            f"the database has no pgvector ({_line(error)}); install it on the server and let an"
            " administrator run: CREATE EXTENSION vector"
        ) from None


def has_schema(connection: Connection) -> bool:
    """Whether the schema of this program exists.

    Raises StoreMismatch for a foreign one or another version.
    """
    query = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"
    found = connection.execute(query, (SCHEMA,)).fetchone()
    if found is None:
        return False
    mark, number = (found[0] or "")[: len(_MARK)], (found[0] or "")[len(_MARK) :]
    if mark != _MARK or not number.isdecimal():
        raise StoreMismatch(
            f"the database has a schema {SCHEMA} that is not ours; name another database"
        )
    if int(number) != SCHEMA_VERSION:
        advice = "upgrade patchshot, or name another database"
        if int(number) < SCHEMA_VERSION:
            advice = f"run DROP SCHEMA {SCHEMA} CASCADE and index again, or name another database"
        raise StoreMismatch(
            f"the database is of version {number}, this program knows {SCHEMA_VERSION}; {advice}"
        )
    return True


def table_of(key: int) -> sql.Identifier:
    """Return the name of the table with a collection's entries."""
    return sql.Identifier(SCHEMA, f"entry_{key:d}")
