"""The SQLite file of the embedded store: its schema, and translation of its errors.

Files of other programs and of other versions are rejected and not changed, because users choose the
file names. A damaged file is set aside and a new one is created (see `agent.shared.cache`). Its
content can be indexed again from the repositories.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agent.errors import StoreMismatch, StoreUnreachable
from agent.search.stores.base import SCHEMA_VERSION
from agent.shared.cache import DamagedFile, ForeignFile, SqliteFile, SqliteFormat
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

T = TypeVar("T")

APPLICATION_ID = 0x50535653
""""PSVS" in the file header."""

# Rows of `entry` and `body` have the same numbers. A number is never reused and its vector never
# changes. So matrices and indexes of vectors are current if two numbers of the collection match:
# `last`, the highest row so far, and `epoch`, which grows when rows are removed or change fields.
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

_FORMAT = SqliteFormat(
    "vector store",
    APPLICATION_ID,
    SCHEMA_VERSION,
    _SCHEMA,
    # a batch of thousands of entries takes one second, so a longer wait is an error
    busy_seconds=30.0,
    durable=True,
)


class StoreFile:
    """One connection to one file. Thread-safe; other processes may use the file too.

    With `reading` nothing is created, changed or set aside.
    """

    def __init__(self, path: Path, reporter: Reporter, *, reading: bool = False) -> None:
        self.path = path
        self._report = reporter
        self._file = SqliteFile(path, _FORMAT, self._say_replaced, read_only=reading)

    def run(self, action: Callable[[sqlite3.Connection], T], *, writing: bool = False) -> T:
        """Run `action` in one transaction and return its result.

        Repeat it if the file was damaged.

        Raises StoreUnreachable if the file cannot be used, StoreMismatch if it belongs to another
        program.
        """
        try:
            return self._file.run(action, writing=writing)
        except ForeignFile as error:
            raise self._foreign(error) from None
        except (sqlite3.Error, DamagedFile, OSError) as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        """Close the file. A later `run` opens it again."""
        self._file.close()

    def _say_replaced(self, message: str) -> None:
        self._report(Notice(f"{message} and begun anew: index the repositories again", "warning"))

    def _foreign(self, error: ForeignFile) -> StoreMismatch:
        if error.application_id != APPLICATION_ID:
            return StoreMismatch(
                f"{self.path} is not a vector store of this program; name another file"
            )
        advice = "upgrade patchshot, or name another file"
        if error.version < SCHEMA_VERSION:
            advice = "remove it and index again, or name another file"
        return StoreMismatch(
            f"vector store {self.path} is of version {error.version}, this program knows"
            f" {SCHEMA_VERSION}; {advice}"
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
