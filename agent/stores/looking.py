"""What a store holds, found out without making or changing anything there: for dry runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from agent.stores.opening import check_url, open_store, place_of, require, scheme_of

if TYPE_CHECKING:
    from agent.protocols import Reporter
    from agent.stores.base import CollectionInfo
    from agent.stores.postgres import Connection

    Collections = tuple[CollectionInfo, ...]


def collections_at(url: str, reporter: Reporter) -> Collections | None:
    """All of ours at `url`, by name; none where there is no store yet.

    None where looking would write: Qdrant in a folder locks it, and rewrites what is old.

    Raises what `open_store` does without a fallback.
    """
    check_url(url)
    return _LOOKERS.get(scheme_of(url), _qdrant)(url, reporter)


def _sqlite(url: str, reporter: Reporter) -> Collections:
    from agent.stores.sqlite_file import StoreFile
    from agent.stores.sqlite_rows import infos

    path = place_of(url)
    if _is_new(path) or (path.is_file() and path.stat().st_size == 0):
        return ()
    with closing(StoreFile(path, reporter, reading=True)) as file:
        return file.run(infos)


def _lancedb(url: str, reporter: Reporter) -> Collections:
    return () if _is_new(place_of(url)) else _opened(url, reporter)  # reads, where there is one


def _qdrant(url: str, reporter: Reporter) -> Collections | None:
    parts = urlsplit(url)
    if parts.scheme == "qdrant" and not parts.netloc:
        return () if _is_new(Path(unquote(parts.path))) else None
    return _opened(url, reporter)


def _postgres(url: str, reporter: Reporter) -> Collections:
    require("psycopg", "pgvector")
    from agent.stores.pgvector_rows import infos
    from agent.stores.postgres import Postgres, known_version

    def read(connection: Connection) -> Collections:
        connection.execute("SET TRANSACTION READ ONLY")
        return () if known_version(connection) is None else infos(connection)

    with closing(Postgres(url, reading=True)) as server:
        return server.run(read)


def _opened(url: str, reporter: Reporter) -> Collections:
    with open_store(url, reporter) as store:
        return store.collections()


def _is_new(path: Path) -> bool:
    """Whether nothing is there, in a folder that can be made: the store would be a new one."""
    if path.exists():
        return False
    return next(parent for parent in path.absolute().parents if parent.exists()).is_dir()


_LOOKERS: Mapping[str, Callable[[str, Reporter], Collections | None]] = {
    "sqlite": _sqlite,
    "lancedb": _lancedb,
    "postgresql": _postgres,
    "postgres": _postgres,
}
