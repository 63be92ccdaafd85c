"""The SQLite file of the embedded store: whose it is, its version, damage, and transactions.

A file that is another program's is refused and left alone. One of ours that is damaged is set aside
and begun anew, which is said once: what it held can be made again from the repositories.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from agent.errors import StoreMismatch, StoreUnreachable
from agent.events import Notice
from agent.stores.base import SCHEMA_VERSION
from agent.write_ahead import write_ahead

if TYPE_CHECKING:
    from agent.protocols import Reporter

T = TypeVar("T")

APPLICATION_ID = 0x50535653
"""PSVS in the file's header: tells our files from other programs', and damaged ones too."""

_MAGIC = b"SQLite format 3\x00"
_IN_MEMORY = ":memory:"  # SQLite's own name for a database in no file
_BUSY_SECONDS = 30.0  # a batch of thousands of entries takes a second: longer means trouble
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

# Rows of `entry` and `body` are numbered alike. A number is never used again and its vector never
# changes, so that whoever keeps vectors (matrices, indexes) needs to know of two numbers only:
# `last`, the highest so far, and `epoch`, which grows when rows go or change their fields.
_SCHEMA = """
CREATE TABLE collection (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last INTEGER NOT NULL
);
CREATE TABLE entry (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL,
    id TEXT NOT NULL,
    content TEXT NOT NULL,
    project TEXT NOT NULL,
    corpus TEXT NOT NULL,
    path TEXT NOT NULL,
    language TEXT NOT NULL DEFAULT 'text',
    tags TEXT NOT NULL,
    UNIQUE (collection, id)
);
CREATE INDEX entry_by_project ON entry (collection, project);
CREATE TABLE body (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, payload TEXT NOT NULL);
"""

# From each older version to the next. Version 0, which was never released, knew no languages.
_MIGRATIONS = {0: "ALTER TABLE entry ADD COLUMN language TEXT NOT NULL DEFAULT 'text';"}


class Damaged(Exception):
    """What was read cannot have been written by us."""


class StoreFile:
    """One connection to one file. Safe for threads; other processes may use the file too.

    `reading`: nothing is made, migrated or set aside; the file is there, and is only looked at.
    """

    def __init__(self, path: Path, reporter: Reporter, *, reading: bool = False) -> None:
        self.path = path
        self._reading = reading
        self._report = reporter
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def run(self, action: Callable[[sqlite3.Connection], T], *, writing: bool = False) -> T:
        """What `action` gives, in one transaction: all that it writes stays, or nothing.

        Where the file turns out to be damaged, it is run again on a new one. Raises
        StoreUnreachable where the file cannot be used, StoreMismatch where it is not ours.
        """
        begin = "BEGIN IMMEDIATE" if writing else "BEGIN"
        with self._lock:
            try:
                return self._attempt(action, begin)
            except (sqlite3.DatabaseError, Damaged) as error:
                if self._reading or not _means_damage(error):
                    raise self._unusable(error) from None
                self._set_aside()
            try:
                return self._attempt(action, begin)
            except (sqlite3.Error, Damaged) as error:
                raise self._unusable(error) from None

    def close(self) -> None:
        """Let go of the file. A later `run` opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()

    def _attempt(self, action: Callable[[sqlite3.Connection], T], begin: str) -> T:
        connection = self._opened()
        connection.execute(begin)
        try:
            result = action(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
        return result

    def _opened(self) -> sqlite3.Connection:
        """The connection; a new one where the file was moved or removed since it was made."""
        if self._connection is not None and self._identity == _identity(self.path):
            return self._connection
        self.close()
        try:
            if not self._reading:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = self._connect()
        except OSError as error:
            raise self._unusable(error) from None
        self._identity = _identity(self.path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._refuse_foreign()
        connection = sqlite3.connect(
            _address(self.path, reading=self._reading),
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
            if self._reading:
                self._refuse_others(connection)
                self._refuse_newer(connection)
            else:
                self._prepare(connection)
                connection.execute("PRAGMA synchronous = NORMAL")  # survives a kill, with WAL
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_foreign(self) -> None:
        """What has neither SQLite's mark nor ours is not opened at all: it is nobody's damage."""
        try:
            with self.path.open("rb") as file:
                head = file.read(72)
        except FileNotFoundError:
            return
        ours = head[68:72] == APPLICATION_ID.to_bytes(4, "big")
        if head and not ours and not head.startswith(_MAGIC):
            raise self._foreign()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if _marks(connection) == (APPLICATION_ID, SCHEMA_VERSION):
            return
        self._refuse_others(connection)
        write_ahead(connection, _BUSY_SECONDS)
        # One transaction: another process sees all of the schema or nothing.
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._make_or_migrate(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _make_or_migrate(self, connection: sqlite3.Connection) -> None:
        self._refuse_others(connection)  # by now it may have become somebody's
        self._refuse_newer(connection)
        application, version = _marks(connection)
        if application != APPLICATION_ID:
            _execute_all(connection, _SCHEMA)
        else:
            for older in range(version, SCHEMA_VERSION):
                _execute_all(connection, _MIGRATIONS[older])
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _refuse_newer(self, connection: sqlite3.Connection) -> None:
        application, version = _marks(connection)
        if application == APPLICATION_ID and version > SCHEMA_VERSION:
            raise StoreMismatch(
                f"vector store {self.path} is of version {version}, this program knows"
                f" {SCHEMA_VERSION}; upgrade patchshot, or name another file"
            )

    def _refuse_others(self, connection: sqlite3.Connection) -> None:
        """Raise StoreMismatch for another program's database, before anything is changed in it."""
        query = "SELECT COUNT(*) FROM sqlite_master"
        (tables,) = connection.execute(query).fetchone()
        application, version = _marks(connection)
        if application != APPLICATION_ID and (tables or application or version):
            raise self._foreign()

    def _set_aside(self) -> None:
        """Move the damaged file away, unless another process has done so already."""
        moved = self._identity is not None and self._identity != _identity(self.path)
        self.close()
        if moved:
            return
        aside = self.path.with_name(self.path.name + ".bad")
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        self._report(
            Notice(
                f"vector store {self.path} is damaged; moved to {aside.name} and begun anew:"
                " index the repositories again",
                "warning",
            )
        )

    def _foreign(self) -> StoreMismatch:
        return StoreMismatch(
            f"{self.path} is not a vector store of this program; name another file"
        )

    def _unusable(self, error: Exception) -> StoreUnreachable:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        advice = {
            sqlite3.SQLITE_BUSY: "another process is writing for long: try again",
            sqlite3.SQLITE_FULL: "free some space",
            sqlite3.SQLITE_IOERR: "check the disk and the space on it",
            sqlite3.SQLITE_READONLY: "make it writable, or name another file",
        }.get(code, "check its folder and permissions, or name another file")
        return StoreUnreachable(f"vector store {self.path} cannot be used ({error}); {advice}")


def _address(path: Path, *, reading: bool) -> str:
    """The file as SQLite's URI: to write where that is allowed and meant, else to read.

    With a write-ahead log SQLite wants to make files beside even to read. Where it cannot, and
    there is no log to be read, `immutable` does without (https://www.sqlite.org/wal.html#readonly).
    """
    if str(path) == _IN_MEMORY:
        return _IN_MEMORY
    uri = f"file:{quote(str(path.absolute()))}"
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    if not reading and (writable or not path.exists()):
        return uri
    log = path.with_name(f"{path.name}-wal")
    return f"{uri}?mode=ro" if log.exists() else f"{uri}?mode=ro&immutable=1"


def _means_damage(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # extended codes keep the basic one there
    missing = isinstance(error, sqlite3.OperationalError) and "no such" in str(error)
    return isinstance(error, Damaged) or code in _DAMAGED or missing


def _marks(connection: sqlite3.Connection) -> tuple[int, int]:
    """Application and version, of one moment."""
    tables = "pragma_application_id, pragma_user_version"
    question = f"SELECT application_id, user_version FROM {tables}"  # noqa: S608 - of constants
    application, version = connection.execute(question).fetchone()
    return int(application), int(version)


def _execute_all(connection: sqlite3.Connection, script: str) -> None:
    """`executescript` would commit what is under way."""
    for statement in filter(str.strip, script.split(";")):
        connection.execute(statement)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
