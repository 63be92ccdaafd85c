"""Vectors kept on disk between runs: SQLite, raw float32 bytes, bounded in size.

A cache may be lost but never wrong or fatal: a file that is foreign, damaged or of another format
is replaced, and where the disk is full, read-only or locked the run goes on without it. Both are
told once by a Notice. Nothing is unpickled, and a row that cannot be a vector is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.events import Notice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter
    from agent.retrieval.embedding_protocol import EmbeddingKind

# "PSVC" as the file's application id: tells our file from another program's database.
_APPLICATION_ID = 0x50535643
_FORMAT_VERSION = 1
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_FORMAT_VERSION};
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY,      -- sha256 of embedder, kind and text
    used INTEGER NOT NULL,     -- the run that last asked for it
    vector BLOB NOT NULL       -- little-endian float32
);
CREATE INDEX IF NOT EXISTS by_use ON vectors (used);
"""
_KEYS_PER_QUERY = 500  # SQLite's oldest limit on parameters is 999
_BUSY_SECONDS = 2.0  # another run writes for milliseconds; longer means trouble
# After a trim a tenth is free, so that the next runs need not trim again.
_TRIM_TO = 0.9


def vector_key(embedder: str, kind: EmbeddingKind, text: str) -> bytes:
    """32 bytes that identify one vector: the embedder's name, the kind and the text."""
    digest = hashlib.sha256()
    for part in (embedder, kind, text):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))  # so that no two splits are equal
        digest.update(data)
    return digest.digest()


class VectorCache:
    """A persistent map from `vector_key` to a float32 vector. Thread-safe; never raises.

    `max_bytes` bounds the file, about: vectors that were not asked for longest go first. The file
    is opened at the first use.
    """

    def __init__(self, path: Path, reporter: Reporter, max_bytes: int = 512 * 1024 * 1024) -> None:
        self._path = path
        self._reporter = reporter
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._disabled = False
        self._run = 0

    def get(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The known ones among `keys`, as arrays of shape (d,)."""
        found: dict[bytes, NDArray[np.float32]] = {}
        with self._lock, self._guarded() as database:
            if database is None:
                return found
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                some = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(some))
                rows = database.execute(
                    f"SELECT key, vector FROM vectors WHERE key IN ({marks})",  # noqa: S608 - marks only
                    some,
                )
                found |= {key: v for key, data in rows if (v := _vector(data)) is not None}
                database.execute(
                    f"UPDATE vectors SET used = ? WHERE used < ? AND key IN ({marks})",  # noqa: S608
                    (self._run, self._run, *some),
                )
        return found

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep these vectors, each of shape (d,)."""
        with self._lock, self._guarded() as database:
            if database is None or not vectors:
                return
            rows = [
                (key, self._run, np.ascontiguousarray(vector, dtype="<f4").tobytes())
                for key, vector in vectors.items()
            ]
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            self._trim(database)

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection | None]:
        """A transaction; None where there is no cache. Database errors end here."""
        database = self._opened()
        if database is None:
            yield None
            return
        try:
            with database:
                yield database
        except sqlite3.OperationalError as error:  # locked, read-only, disk full
            self._give_up(error)
        except sqlite3.DatabaseError as error:
            self._discard(str(error))

    def _opened(self) -> sqlite3.Connection | None:
        """The open file, None when it cannot be used. A file that is not ours is replaced once."""
        for _ in range(2):
            if self._connection is not None or self._disabled:
                break
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = self._connect()
            except (sqlite3.OperationalError, OSError) as error:
                self._give_up(error)
            except (sqlite3.DatabaseError, _NotOurs) as error:
                self._discard(str(error))
        return self._connection

    def _discard(self, reason: str) -> None:
        """Delete the file, so that the next use makes a new one."""
        self._reporter(
            Notice(f"rebuilding the embedding cache {self._path}: {reason}", level="warning")
        )
        self._close()
        try:
            for suffix in ("", "-journal", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            self._prepare(database)
            last = database.execute("SELECT coalesce(max(used), 0) FROM vectors").fetchone()
            self._run = 1 + int(last[0])
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Create the table in a new file; check that an old one is ours."""
        database.execute("PRAGMA synchronous = OFF")  # a lost cache costs time, nothing else
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            database.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")
            return
        identity = tuple(
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        if identity != (_APPLICATION_ID, _FORMAT_VERSION):
            raise _NotOurs("it is not an embedding cache of this version")

    def _trim(self, database: sqlite3.Connection) -> None:
        """Delete what was not used for longest until the size is under the cap."""
        size = self._size(database)
        if size <= self._max_bytes:
            return
        rows = database.execute("SELECT count(*) FROM vectors").fetchone()[0]
        doomed = math.ceil(rows * (1 - self._max_bytes * _TRIM_TO / size))
        database.execute(
            "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used, key LIMIT ?)",
            (doomed,),
        )

    def _size(self, database: sqlite3.Connection) -> int:
        """Bytes of the pages in use; SQLite reuses freed pages, so the file stays near this."""
        pages, free, page_size = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * page_size

    def _give_up(self, error: Exception) -> None:
        self._disabled = True
        self._close()
        self._reporter(
            Notice(
                f"embeddings are not cached on disk ({error}): check {self._path}", level="warning"
            )
        )


class _NotOurs(Exception):
    """The file is not a sound cache of this format."""


def _vector(data: object) -> NDArray[np.float32] | None:
    """A row's vector, None where it cannot be one."""
    if not isinstance(data, bytes) or not data or len(data) % 4:
        return None
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    return vector if bool(np.isfinite(vector).all()) else None
