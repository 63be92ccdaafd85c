"""The persistent cache of file records: one SQLite file, shared by all repositories of a user.

A cache must never be the reason that a run fails. Whatever goes wrong (no permission, disk full,
another program's file, damage), the store says so once as a Notice and goes on empty.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent.events import Notice
from agent.write_ahead import write_ahead

if TYPE_CHECKING:
    from agent.protocols import Reporter

DEFAULT_LIMIT = 1024**3
"""Bytes of records kept. A repository of 2,500 Python files takes about 10 MB."""

_APPLICATION_ID = 0x50534958  # "PSIX": tells our files from other programs'
_SCHEMA_VERSION = 1
_PAGE_BYTES = 16_384  # records of half a megabyte are read in two thirds of the time 4,096 takes
_BUSY_SECONDS = 5.0
_BATCH = 500  # keys a query: below SQLite's oldest limit of 999 variables
_KEEP_SHARE = 0.8  # of the limit after clearing out, so that it does not happen on every run
_DAY = 86_400  # resolution of "last used": finer would mean a write for every read

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    key BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS record_by_use ON record (used, size);
"""

# Everything but the most recently used records that together stay within the parameter.
_CLEAR_OUT = """
DELETE FROM record WHERE rowid IN (
    SELECT id FROM (
        SELECT rowid AS id, SUM(size) OVER (ORDER BY used DESC, rowid DESC) AS kept FROM record
    ) WHERE kept > ?
)
"""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class _ForeignFile(Exception):
    """A sound SQLite file of some other program or schema."""


class Records(Protocol):
    """Byte records by 16-byte keys, kept by a store that never raises once it is open."""

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The records that are known."""
        ...

    def heads(self, keys: Sequence[bytes], size: int) -> Mapping[bytes, tuple[bytes, int]]:
        """Of each known record the first `size` bytes and its length."""
        ...

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace records, all in one transaction."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class ReadThrough:
    """Records of this machine, and behind them those that several share.

    What is not here is looked up there and kept here; what is new goes to both. `shared` opens the
    others when they are first needed: a warm query needs none. None from it: there are none today.
    A context manager that closes both.
    """

    def __init__(self, local: Records, shared: Callable[[], Records | None]) -> None:
        self._local = local
        self._open = shared
        self._tried = False
        self._shared: Records | None = None

    def _behind(self) -> Records | None:
        if not self._tried:
            self._tried, self._shared = True, self._open()
        return self._shared

    def __enter__(self) -> ReadThrough:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The records that are known on either side."""
        here = self._local.get(keys)
        missing = [key for key in keys if key not in here]
        if not missing or (behind := self._behind()) is None:
            return here
        there = behind.get(missing)
        if there:
            self._local.put(there.items())
        return {**here, **there}

    def heads(self, keys: Sequence[bytes], size: int) -> Mapping[bytes, tuple[bytes, int]]:
        """Of each record that is known on either side the first `size` bytes and its length."""
        here = self._local.heads(keys, size)
        missing = [key for key in keys if key not in here]
        if not missing or (behind := self._behind()) is None:
            return here
        return {**here, **behind.heads(missing, size)}

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace records on both sides."""
        kept = list(records)
        self._local.put(kept)
        if (behind := self._behind()) is not None:
            behind.put(kept)

    def close(self) -> None:
        """Let go of both."""
        self._local.close()
        if self._shared is not None:
            self._shared.close()


class RecordStore:
    """Byte records by key. Safe for several processes at a time; use one instance a thread.

    `path` None keeps nothing. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        reporter: Reporter,
        limit: int = DEFAULT_LIMIT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._report = reporter
        self._limit = limit
        self._today = int(clock() // _DAY)
        self._written = False
        self._connection = None if path is None else self._open(path)

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The records that are known, and marks them as used today."""
        found: dict[bytes, bytes] = {}
        try:
            for start in range(0, len(keys), _BATCH):
                self._get_batch(keys[start : start + _BATCH], found)
        except sqlite3.Error as error:
            self._fail(error)
        return found

    def _get_batch(self, keys: Sequence[bytes], found: dict[bytes, bytes]) -> None:
        if self._connection is None:
            return
        marks = ",".join("?" * len(keys))
        stale: list[bytes] = []
        query = f"SELECT key, used, data FROM record WHERE key IN ({marks})"  # noqa: S608 - marks
        for key, used, data in self._connection.execute(query, keys):
            if isinstance(data, bytes):
                found[key] = data
            if used != self._today:
                stale.append(key)
        self._mark_used(stale)

    def _mark_used(self, keys: Iterable[bytes]) -> None:
        stale = [(self._today, key) for key in keys]
        if stale:
            self._write("UPDATE record SET used = ? WHERE key = ?", stale)

    def heads(self, keys: Sequence[bytes], size: int) -> Mapping[bytes, tuple[bytes, int]]:
        """Of each known record the first `size` bytes and its length; marks them as used today."""
        found: dict[bytes, tuple[bytes, int]] = {}
        try:
            for start in range(0, len(keys), _BATCH):
                self._heads_of_batch(keys[start : start + _BATCH], size, found)
        except sqlite3.Error as error:
            self._fail(error)
        return found

    def _heads_of_batch(
        self, keys: Sequence[bytes], size: int, found: dict[bytes, tuple[bytes, int]]
    ) -> None:
        if self._connection is None:
            return
        marks = ",".join("?" * len(keys))
        query = f"SELECT key, used, rowid FROM record WHERE key IN ({marks})"  # noqa: S608 - marks
        rows = self._connection.execute(query, keys).fetchall()
        for key, _, row in rows:
            with self._connection.blobopen("record", "data", row, readonly=True) as blob:
                found[key] = blob.read(size), len(blob)
        self._mark_used(key for key, used, _ in rows if used != self._today)

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace records, all in one transaction."""
        rows = ((key, self._today, len(data), data) for key, data in records)
        try:
            self._write("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            self._fail(error)
        self._written = True

    def close(self) -> None:
        """Clear out what has not been used for longest, if over the limit, and let go."""
        try:
            if self._written:
                self._clear_out()
        except sqlite3.Error as error:
            self._fail(error)
        self._disconnect()

    def _clear_out(self) -> None:
        if self._connection is None:
            return
        (total,) = self._connection.execute("SELECT TOTAL(size) FROM record").fetchone()
        if total > self._limit:
            self._write(_CLEAR_OUT, [(int(self._limit * _KEEP_SHARE),)])

    def _write(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        if self._connection is None:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _open(self, path: Path) -> sqlite3.Connection | None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return self._open_or_rebuild(path)
        except (sqlite3.Error, OSError) as error:
            self._say(f"index cache {path} cannot be used ({error}); going on without it")
            return None

    def _open_or_rebuild(self, path: Path) -> sqlite3.Connection:
        try:
            return _connect(path)
        except _ForeignFile:
            self._set_aside(path, "is not an index of this version")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _DAMAGED:
                raise
            self._set_aside(path, "is damaged")
        return _connect(path)

    def _set_aside(self, path: Path, problem: str) -> None:
        aside = path.with_name(path.name + ".bad")
        path.replace(aside)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        self._say(f"index cache {path} {problem}; moved to {aside.name} and rebuilt")

    def _fail(self, error: sqlite3.Error) -> None:
        """A working store that fails: rebuild when damaged, otherwise go on without."""
        self._disconnect()
        code = getattr(error, "sqlite_errorcode", None)
        if code in _DAMAGED and self._path is not None:
            try:
                self._set_aside(self._path, "is damaged")
                self._connection = _connect(self._path)
            except (sqlite3.Error, OSError, _ForeignFile):
                self._connection = None
            return
        self._say(f"index cache {self._path} failed ({error}); going on without it")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass  # the cache is given up anyway

    def _say(self, message: str) -> None:
        self._report(Notice(message, "warning"))


def _connect(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.Error when it cannot be used, _ForeignFile when it is not ours."""
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    tables, application, version = _identity(connection)
    if (application, version) == (_APPLICATION_ID, _SCHEMA_VERSION):
        connection.execute("SELECT key, used, size, data FROM record LIMIT 0")
    else:
        if tables or application or version:
            raise _ForeignFile
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        write_ahead(connection, _BUSY_SECONDS)
        # One transaction: another process sees all of the schema or nothing.
        connection.executescript(
            f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID};"
            f" PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;"
        )
    # Killed processes harm nothing. What a power failure may leave behind is found by SQLite or by
    # the check sums of records, and made anew; waiting for the disk took a fifth of a refresh.
    connection.execute("PRAGMA synchronous = OFF")


def _identity(connection: sqlite3.Connection) -> tuple[int, ...]:
    """Number of tables, application and version, as of one moment: another process may be making
    the file just now, and half of what it writes would look like a file of some other program.
    """
    connection.execute("BEGIN")
    try:
        questions = ("SELECT COUNT(*) FROM sqlite_master", "PRAGMA application_id")
        found = [connection.execute(q).fetchone()[0] for q in (*questions, "PRAGMA user_version")]
    finally:
        connection.execute("COMMIT")
    return tuple(found)
