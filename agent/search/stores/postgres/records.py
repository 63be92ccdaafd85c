"""Records of the code index that machines share in PostgreSQL (`Records` of `agent.shared.cache`).

The key of a record depends on a file's content and on the program version, so the first machine to
chunk a file does it for all. Shared records are untrusted, like a cache file: the reader checks
them after decoding and recomputes invalid ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent.errors import StoreError
from agent.search.stores.postgres.connection import Postgres
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.search.stores.postgres.connection import Connection
    from agent.types.protocols import Reporter

T = TypeVar("T")

_DAY = 86_400  # resolution of "last used": a finer one would need a write for every read
_AT_ONCE = 200  # records per statement: a few MB


class PostgresRecords:
    """Records in the schema of `connection`. Safe for threads and for many processes.

    An index works without its cache: if the server stays unreachable, one Notice reports it, and
    from then on no record is found. `clock` returns seconds since the epoch. The constructor raises
    StoreUnreachable or StoreMismatch.
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
        """Return the stored records and mark them as used today."""
        query = "SELECT key, used, data FROM patchshot.record WHERE key = ANY(%s)"
        return {key: data for some in _parts(keys) for key, data in self._read(query, some, ())}

    def heads(self, keys: Sequence[bytes], size: int) -> Mapping[bytes, tuple[bytes, int]]:
        """Return the first `size` bytes and the length of stored records, and mark them as used."""
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
        """Return the rows without the day of last use, which is updated."""

        def read(connection: Connection) -> list[tuple[Any, ...]]:
            rows = connection.execute(query, (*values, list(keys)), binary=True).fetchall()
            stale = [row[0] for row in rows if row[1] < self._today]
            if stale:
                statement = "UPDATE patchshot.record SET used = %s WHERE key = ANY(%s)"
                connection.execute(statement, (self._today, sorted(stale)))
            return [(row[0], *row[2:]) for row in rows]

        return self._run(read) or []

    def put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace records in one transaction."""
        # Sorting by key prevents deadlocks between concurrent writers.
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

    def close(self) -> None:
        """Close the connection."""
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
