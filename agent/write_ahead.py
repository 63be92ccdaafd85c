"""SQLite's write-ahead log, switched on while other processes do the same."""

from __future__ import annotations

import sqlite3
import time

_PAUSE_SECONDS = 0.02


def write_ahead(connection: sqlite3.Connection, seconds: float) -> None:
    """Let readers go on beside a writer. SQLite does not wait for others here, so we do.

    Raises sqlite3.OperationalError where the file is still busy after so many `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
