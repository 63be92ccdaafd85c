"""Cached state on disk: SQLite files of what can be made again, and byte records in them.

A file of another program or version is set aside or refused, as the caller says; a damaged one is
always set aside. `SqliteFile` raises where a file cannot be used, `RecordStore` goes on without it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from agent.shared.files import make_private_folder
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

_T = TypeVar("_T")

_MAGIC = b"SQLite format 3\x00"
_ID_AT = 68  # offset of the application id in the header (https://www.sqlite.org/fileformat.html)
_PAUSE_SECONDS = 0.02
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


@dataclass(frozen=True, slots=True)
class SqliteFormat:
    """A kind of file: what identifies it, and what a new one is made of.

    `name` is what messages call it ("index cache"). `durable` False skips waiting for the disk:
    a killed process harms nothing, a power failure may damage the file, which is then replaced.
    """

    name: str
    application_id: int
    version: int
    schema: str
    busy_seconds: float = 5.0
    page_bytes: int = 4_096
    durable: bool = False


class ForeignFile(Exception):
    """The file is sound, or no SQLite file at all, but not of the expected format."""

    def __init__(self, application_id: int = 0, version: int = 0) -> None:
        super().__init__("a file of another program or version")
        self.application_id = application_id
        self.version = version


class DamagedFile(Exception):
    """An action read something from the file that this program cannot have written."""


class SqliteFile:
    """Runs transactions on one file. Safe for threads; other processes may use the file too.

    `notify` is given one sentence whenever the file is set aside.
    """

    def __init__(
        self,
        path: Path,
        file_format: SqliteFormat,
        notify: Callable[[str], None],
        *,
        replace_foreign: bool = False,
    ) -> None:
        self.path = path
        self._format = file_format
        self._notify = notify
        self._replace_foreign = replace_foreign
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def run(self, action: Callable[[sqlite3.Connection], _T], *, writing: bool = False) -> _T:
        """Return what `action` returns, run in one transaction; once more if the file is damaged.

        Raises sqlite3.Error, OSError or DamagedFile if the file cannot be used, and ForeignFile.
        """
        begin = "BEGIN IMMEDIATE" if writing else "BEGIN"
        with self._lock:
            try:
                return self._attempt(action, begin)
            except ForeignFile:
                if not self._replace_foreign:
                    raise
                self._set_aside("belongs to another program or version")
            except (sqlite3.Error, DamagedFile) as error:
                if not _is_damage(error):
                    raise
                self._set_aside("is damaged")
            return self._attempt(action, begin)

    def close(self) -> None:
        """Close the connection. A later `run` opens the file again."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _attempt(self, action: Callable[[sqlite3.Connection], _T], begin: str) -> _T:
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
        """The connection; a new one if the file was moved or removed since it was opened."""
        if self._connection is not None and self._identity == _identity(self.path):
            return self._connection
        self._disconnect()
        make_private_folder(self.path.parent)
        self._connection = self._connect()
        self._identity = _identity(self.path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._refuse_other_kinds()
        if not self.path.exists() and os.access(self.path.parent, os.W_OK):
            os.close(os.open(self.path, os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            _address(self.path),
            timeout=self._format.busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_other_kinds(self) -> None:
        try:
            with self.path.open("rb") as file:
                head = file.read(_ID_AT + 4)
        except FileNotFoundError:
            return
        ours = head[_ID_AT:] == self._format.application_id.to_bytes(4, "big")
        if head and not ours and not head.startswith(_MAGIC):
            raise ForeignFile

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self._is_ours(connection):
            connection.execute(f"PRAGMA page_size = {self._format.page_bytes}")
            _use_write_ahead_log(connection, self._format.busy_seconds)
            self._create(connection)
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._format.durable else 'OFF'}")

    def _create(self, connection: sqlite3.Connection) -> None:
        """Write the schema, unless another process has just done so."""
        # One transaction: another process sees all of the schema or nothing.
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_ours(connection):
                for statement in filter(str.strip, self._format.schema.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self._format.application_id}")
                connection.execute(f"PRAGMA user_version = {self._format.version}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has our format; False for an empty one. Raises ForeignFile."""
        # One statement, so one moment: half of what another process creates would look foreign.
        tables, application_id, version = connection.execute(
            "SELECT (SELECT COUNT(*) FROM sqlite_master), application_id, user_version"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if (application_id, version) == (self._format.application_id, self._format.version):
            return True
        if tables or application_id or version:
            raise ForeignFile(application_id, version)
        return False

    def _set_aside(self, problem: str) -> None:
        moved = self._identity is not None and self._identity != _identity(self.path)
        self._disconnect()
        self._identity = None
        if moved:
            return
        aside = f"{self.path.name}.bad"
        for suffix in ("", "-wal", "-journal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            target = self.path.with_name(aside + suffix)
            target.unlink(missing_ok=True)
            if part.exists():
                part.replace(target)
        self._notify(f"{self._format.name} {self.path} {problem}; moved to {aside}")


def _is_damage(error: Exception) -> bool:
    """Whether an error means that the file is damaged, and not only unusable for the moment."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is the extended code
    missing = isinstance(error, sqlite3.OperationalError) and "no such" in str(error)
    return isinstance(error, DamagedFile) or code in _DAMAGED or missing


def _use_write_ahead_log(connection: sqlite3.Connection, seconds: float) -> None:
    """Switch the write-ahead log on. SQLite's own waiting does not cover this statement."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def _address(path: Path) -> str:
    """Return the file as SQLite's URI, for writing where that is allowed.

    With a write-ahead log SQLite creates files even to read; `immutable` does without.
    """
    uri = f"file:{quote(str(path.absolute()))}"
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    if writable or not path.exists():
        return uri
    log = path.with_name(f"{path.name}-wal")
    return f"{uri}?mode=ro" if log.exists() else f"{uri}?mode=ro&immutable=1"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


# ---- byte records by key: what the index, the history and the vectors keep

DEFAULT_LIMIT = 1024**3
"""Bytes of records. A repository of 2,500 Python files takes about 10 MB."""

_PAGE_BYTES = 16_384  # records of half a megabyte are read in two thirds of the time 4,096 takes
_BATCH = 500  # keys a query: below SQLite's oldest limit of 999 variables
_KEEP_SHARE = 0.8  # of the limit after clearing out, so that it does not happen on every run
_DAY = 86_400  # resolution of "last used": finer would mean a write for every read

_SCHEMA = """
CREATE TABLE record (
    key BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX record_by_use ON record (used, size);
"""

# Everything but the most recently used records that together stay within the parameter.
_CLEAR_OUT = """
DELETE FROM record WHERE rowid IN (
    SELECT id FROM (
        SELECT rowid AS id, SUM(size) OVER (ORDER BY used DESC, rowid DESC) AS kept FROM record
    ) WHERE kept > ?
)
"""


def record_format(name: str, application_id: int, version: int) -> SqliteFormat:
    """The format of a file of records; `name` is what messages call it."""
    return SqliteFormat(name, application_id, version, _SCHEMA, page_bytes=_PAGE_BYTES)


INDEX_FORMAT = record_format("index cache", 0x50534958, 1)  # "PSIX"


class RecordStore:
    """Records in a file that may be lost at any time. Safe for threads and processes; never raises.

    A file that cannot be used is reported once as a Notice. `close` removes the records that were
    not used for longest beyond `limit` bytes. `path` None keeps nothing. `clock` gives seconds
    since the epoch.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        reporter: Reporter,
        limit: int = DEFAULT_LIMIT,
        file_format: SqliteFormat = INDEX_FORMAT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._format = file_format
        self._report = reporter
        self._file: SqliteFile | None = None
        if path is not None:
            self._file = SqliteFile(
                path,
                file_format,
                lambda message: reporter(Notice(f"{message} and rebuilt", "warning")),
                replace_foreign=True,
            )
        self._limit = limit
        self._today = int(clock() // _DAY)
        self._written = False

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the known records and mark them as used today."""
        records: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            query = "SELECT key, used, data FROM record WHERE key IN ({})"
            rows = self._select(query.format(",".join("?" * len(batch))), batch)
            records |= {key: data for key, _, data in rows if isinstance(data, bytes)}
            stale = [(self._today, key) for key, used, _ in rows if used != self._today]
            if stale:
                self._write("UPDATE record SET used = ? WHERE key = ?", stale)
        return records

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace records, all in one transaction."""
        rows = [(key, self._today, len(data), data) for key, data in records]
        self._write("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", rows)
        self._written = True

    def close(self) -> None:
        """Remove the records that were not used for longest, if over the limit, and close."""
        if self._written:
            self._written = False
            sizes = self._select("SELECT TOTAL(size) FROM record", ())
            if sizes and sizes[0][0] > self._limit:
                self._write(_CLEAR_OUT, [(int(self._limit * _KEEP_SHARE),)])
        if self._file is not None:
            self._file.close()

    def _select(self, query: str, values: Sequence[bytes]) -> list[tuple[Any, ...]]:
        return self._run(lambda connection: connection.execute(query, values).fetchall(), [])

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        self._run(lambda connection: connection.executemany(statement, rows), None, writing=True)

    def _run(
        self, action: Callable[[sqlite3.Connection], _T], instead: _T, *, writing: bool = False
    ) -> _T:
        if self._file is None:
            return instead
        try:
            return self._file.run(action, writing=writing)
        except (sqlite3.Error, OSError, ForeignFile, DamagedFile) as error:
            path = self._file.path
            self._file.close()
            self._file = None
            text = f"{self._format.name} {path} cannot be used ({error}); going on without it"
            self._report(Notice(text, "warning"))
            return instead


def compress(data: bytes) -> bytes:
    """Compress quickly, to about half the size."""
    return zlib.compress(data, level=1)


def expand(data: bytes, limit: int) -> bytes:
    """Undo `compress`. Raises ValueError for damaged or cut data, or beyond `limit`."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflater.eof:
        raise ValueError("cut off, or too long")
    return raw
