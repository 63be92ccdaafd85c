"""One connection to PostgreSQL: connecting again, translating errors, and whose schema it is.

All that we keep in a database is in the schema `patchshot`, whose comment says that it is ours and
of which version. A schema of that name without it is somebody else's, and is left alone.
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
from agent.stores.base import SCHEMA_VERSION
from agent.stores.border import without_password, without_password_of

if TYPE_CHECKING:
    from psycopg.rows import TupleRow

    Connection = psycopg.Connection[TupleRow]

T = TypeVar("T")

SCHEMA = "patchshot"
_MARK = "vectors and records of patchshot, version "
_LOCK = 0x50535653  # of whoever makes or migrates the schema
_CONNECT_SECONDS = 5

# A server that was killed is back within seconds where something restarts it.
_PAUSES = (0.1, 0.4, 1.0, 2.0, 4.0)
_PAUSES_AT_FIRST = (0.2,)  # one that was not there when we came is more likely down for good

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
    """A connection that is made again when it breaks. Safe for threads, one action at a time.

    `reading`: no schema is made or migrated; whether there is one says `known_version`.
    """

    def __init__(self, url: str, *, reading: bool = False) -> None:
        self.url = without_password(url)
        self._address = _quoted(url)
        self._said = url
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        try:
            self._run(known_version if reading else _prepare, _PAUSES_AT_FIRST)
        except StoreError:
            self.close()
            raise

    def run(self, action: Callable[[Connection], T]) -> T:
        """What `action` gives, in one transaction; run again on a new connection where one breaks.

        Raises StoreUnreachable where the server is gone and did not come back, or is full;
        StoreError where it refuses.
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
                prepare_threshold=None,  # poolers between us and the server lose them
                application_name="patchshot",
            )
        with self._connection.transaction():
            return action(self._connection)

    def close(self) -> None:
        """Let go of the connection. A later action makes another."""
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
    """With each `@` of the user's part but the last quoted: the driver would look for a host."""
    scheme, mark, rest = url.partition("//")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    quoted = user.replace("@", "%40") + at + host
    return scheme + mark + quoted + rest[len(authority) :]


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _prepare(connection: Connection) -> None:
    """Make the schema where there is none; bring an older one up to date."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    _require_vectors(connection)
    version = known_version(connection)
    if version is None:
        connection.execute(_TABLES)
    else:
        for older in range(version, SCHEMA_VERSION):
            _MIGRATIONS[older](connection)
    if version != SCHEMA_VERSION:
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


def known_version(connection: Connection) -> int | None:
    """Of the schema; None where there is none. Raises StoreMismatch where it is not ours."""
    query = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"
    found = connection.execute(query, (SCHEMA,)).fetchone()
    if found is None:
        return None
    mark, number = (found[0] or "")[: len(_MARK)], (found[0] or "")[len(_MARK) :]
    if mark != _MARK or not number.isdecimal():
        raise StoreMismatch(
            f"the database has a schema {SCHEMA} that is not ours; name another database"
        )
    if int(number) > SCHEMA_VERSION:
        raise StoreMismatch(
            f"the database is of version {number}, this program knows {SCHEMA_VERSION};"
            " upgrade patchshot, or name another database"
        )
    return int(number)


def _add_languages(connection: Connection) -> None:
    """From version 0, which was never released and knew neither languages nor records."""
    keys = connection.execute("SELECT key FROM patchshot.collection ORDER BY key").fetchall()
    statement = sql.SQL("ALTER TABLE {} ADD COLUMN language TEXT NOT NULL DEFAULT 'text'")
    for (key,) in keys:
        connection.execute(statement.format(table_of(key)))
    connection.execute(
        "CREATE TABLE patchshot.record"
        " (key BYTEA PRIMARY KEY, used INTEGER NOT NULL, data BYTEA NOT NULL)"
    )


_MIGRATIONS = {0: _add_languages}


def table_of(key: int) -> sql.Identifier:
    """The table of a collection's entries."""
    return sql.Identifier(SCHEMA, f"entry_{key:d}")
