"""Byte records by key, within a size limit: what the index, the history and the vectors keep.

The records are cached results. The reader checks what it gets: the file may be damaged or forged.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agent.shared.cache.sqlite_file import CacheFile, SqliteFormat

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

_T = TypeVar("_T")

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
    """Records in a `CacheFile`. Safe for threads and processes; never raises.

    Records use at most about `limit` bytes: `close` removes those that were not used for longest.
    `path` None keeps nothing. `clock` gives seconds since the epoch.
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
        self._file = CacheFile(path, file_format, reporter)
        self._limit = limit
        self._today = int(clock() // _DAY)
        self._written = False

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the known records and mark them as used today."""
        rows = self._read(keys, "data", lambda _, data: data)
        return {key: data for key, data in rows if isinstance(data, bytes)}

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace records, all in one transaction."""
        rows = [(key, self._today, len(data), data) for key, data in records]
        self._write("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", rows)
        self._written = True

    def close(self) -> None:
        """Remove the records that were not used for longest, if over the limit, and close."""
        if self._written:
            self._clear_out()
            self._written = False
        self._file.close()

    def _read(
        self, keys: Sequence[bytes], column: str, value: Callable[[sqlite3.Connection, Any], _T]
    ) -> list[tuple[bytes, _T]]:
        """Key and `value(connection, column)` of each known record, marked as used today."""
        records: list[tuple[bytes, _T]] = []
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            select = partial(_select, column=column, keys=batch, value=value)
            rows: list[tuple[bytes, int, _T]] = self._file.run(select, [])
            records.extend((key, of) for key, _, of in rows)
            stale = [(self._today, key) for key, used, _ in rows if used != self._today]
            if stale:
                self._write("UPDATE record SET used = ? WHERE key = ?", stale)
        return records

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(statement, rows)

        self._file.run(write, None, writing=True)

    def _clear_out(self) -> None:
        query = "SELECT TOTAL(size) FROM record"
        total = self._file.run(lambda connection: connection.execute(query).fetchone()[0], 0)
        if total > self._limit:
            self._write(_CLEAR_OUT, [(int(self._limit * _KEEP_SHARE),)])


def _select(
    connection: sqlite3.Connection,
    column: str,
    keys: Sequence[bytes],
    value: Callable[[sqlite3.Connection, Any], _T],
) -> list[tuple[bytes, int, _T]]:
    """Key, day of last use, and `value(connection, column)` of each known record."""
    marks = ",".join("?" * len(keys))
    query = f"SELECT key, used, {column} FROM record WHERE key IN ({marks})"  # noqa: S608
    rows = connection.execute(query, keys).fetchall()
    return [(key, used, value(connection, of)) for key, used, of in rows]


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
