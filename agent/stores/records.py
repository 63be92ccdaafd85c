"""Records of the code index that nodes share, in PostgreSQL: `Records` of `agent.retrieval.store`.

A record is named by its content and by what made it (`agent.retrieval.groups`): whoever
cuts a file first cuts it for all. What comes from a shared store is as untrusted as a cache file:
who reads it decodes it with checks, and makes it again where that fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent.errors import StoreError
from agent.events import Notice
from agent.stores.postgres import Postgres

if TYPE_CHECKING:
    from agent.protocols import Reporter
    from agent.stores.postgres import Connection

T = TypeVar("T")

_DAY = 86_400  # resolution of "last used": finer would mean a write for every read
_AT_ONCE = 200  # records a statement: a few MB


class PostgresRecords:
    """Records in the schema of `postgres`. Safe for threads and for many processes.

    An index must not fail for a cache: where the server is gone and does not come back, that is
    said once, and it goes on as if nothing were known. `clock` gives seconds since the epoch.
    Raises StoreUnreachable or StoreMismatch when it is made.
    """

    def __init__(
        self, url: str, reporter: Reporter, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._server = Postgres(url)
        self._report = reporter
        self._today = int(clock() // _DAY)
        self._gone = False

    def __enter__(self) -> PostgresRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The records that are known, and marks them as used today."""
        query = "SELECT key, used, data FROM patchshot.record WHERE key = ANY(%s)"
        return {key: data for some in _parts(keys) for key, data in self._read(query, some, ())}

    def heads(self, keys: Sequence[bytes], size: int) -> Mapping[bytes, tuple[bytes, int]]:
        """Of each known record the first `size` bytes and its length; marks them as used today."""
        query = (
            "SELECT key, used, substring(data FROM 1 FOR %s), length(data)"
            " FROM patchshot.record WHERE key = ANY(%s)"
        )
        return {
            key: (head, length)
            for some in _parts(keys)
            for key, head, length in self._read(query, some, (size,))
        }

    def _read(
        self, query: str, keys: Sequence[bytes], values: tuple[object, ...]
    ) -> Sequence[tuple[Any, ...]]:
        """Rows without the day of last use, which is brought up to date."""

        def read(connection: Connection) -> list[tuple[Any, ...]]:
            rows = connection.execute(query, (*values, list(keys)), binary=True).fetchall()
            stale = [row[0] for row in rows if row[1] < self._today]
            if stale:
                statement = "UPDATE patchshot.record SET used = %s WHERE key = ANY(%s)"
                connection.execute(statement, (self._today, sorted(stale)))
            return [(row[0], *row[2:]) for row in rows]

        return self._run(read) or []

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace records, all in one transaction."""
        # In order of keys: writers wait for each other and never in rings.
        rows = [(key, self._today, data) for key, data in sorted(dict(records).items())]

        def write(connection: Connection) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO patchshot.record (key, used, data) VALUES (%s, %s, %s)"
                    " ON CONFLICT (key) DO UPDATE SET used = excluded.used, data = excluded.data",
                    rows,
                )

        if rows:
            self._run(write)

    def clear_out(self, limit: int) -> int:
        """Remove what was not used for longest until the rest is within `limit` bytes; how many."""

        def remove(connection: Connection) -> int:
            statement = (
                "DELETE FROM patchshot.record WHERE key IN (SELECT key FROM (SELECT key,"
                " SUM(length(data)) OVER (ORDER BY used DESC, key) AS kept FROM patchshot.record"
                ") AS aged WHERE kept > %s)"
            )
            return connection.execute(statement, (limit,)).rowcount

        return self._run(remove) or 0

    def close(self) -> None:
        """Let go of the connection."""
        self._server.close()

    def _run(self, action: Callable[[Connection], T]) -> T | None:
        if self._gone:
            return None
        try:
            return self._server.run(action)
        except StoreError as error:
            self._gone = True
            self._report(Notice(f"{error}; going on without shared records", "warning"))
            return None


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]
