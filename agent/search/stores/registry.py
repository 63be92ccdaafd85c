"""The engines by URL scheme, and the ways to open them.

To add an engine, write a module with the functions of `EngineModule` (the classes derive from
those in `engine`), and add one line to `ENGINES`. The tests in `tests/unit/search/stores` then run
on it as soon as its URL is in `tests/support/stores.py`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from agent.errors import ConfigurationError, StoreError, StoreUnreachable
from agent.search.stores.urls import IN_MEMORY, check_address, path_of, scheme_of, shown_url
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.search.stores.base import CollectionInfo, VectorStore
    from agent.search.stores.postgres.records import PostgresRecords
    from agent.types.protocols import Reporter


class EngineModule(Protocol):
    """The functions that an engine's module must define."""

    def open_url(self, url: str, reporter: Reporter, api_key: str | None) -> VectorStore:
        """Open the store. Raises StoreUnreachable, StoreMismatch, ConfigurationError."""
        ...

    def list_collections(self, url: str, reporter: Reporter) -> tuple[CollectionInfo, ...] | None:
        """Return the collections without changing the store; None if that is not possible."""
        ...


@dataclass(frozen=True, slots=True)
class StoreEngine:
    """The module of an engine. `package` must be importable; the `extra` installs it.

    `check` raises ConfigurationError for a URL that the engine cannot use. It opens nothing.
    """

    module: str
    package: str
    extra: str
    check: Callable[[str], object]

    def load(self) -> EngineModule:
        """Import the module. Raises ConfigurationError if its package is not installed."""
        try:
            importlib.import_module(self.package)
        except ImportError as error:
            raise ConfigurationError(
                f"a {self.extra} store needs a package that is not installed"
                f" ({error.name or self.package}); pip install 'patchshot[{self.extra}]'"
            ) from None
        return cast("EngineModule", importlib.import_module(self.module))


_SQLITE = StoreEngine("agent.search.stores.sqlite.store", "sqlite3", "", path_of)
_LANCEDB = StoreEngine("agent.search.stores.lancedb", "lancedb", "lancedb", path_of)
_QDRANT = StoreEngine("agent.search.stores.qdrant.store", "qdrant_client", "qdrant", check_address)
# The driver accepts lists of hosts, which `urlsplit` cannot parse, so the host is not checked.
_POSTGRES = StoreEngine("agent.search.stores.postgres.store", "psycopg", "pgvector", scheme_of)

ENGINES: Mapping[str, StoreEngine] = {
    "sqlite": _SQLITE,
    "lancedb": _LANCEDB,
    **dict.fromkeys(("qdrant", "qdrant+http", "qdrant+https", "http", "https"), _QDRANT),
    **dict.fromkeys(("postgresql", "postgres"), _POSTGRES),
}


def check_url(url: str) -> None:
    """Raise ConfigurationError for a URL that no engine can open. Opens nothing."""
    _engine(url).check(url)


def _engine(url: str) -> StoreEngine:
    engine = ENGINES.get(scheme_of(url))
    if engine is None:
        raise ConfigurationError(
            f"store {shown_url(url)}: no engine of that name; use sqlite:///FILE,"
            " lancedb:///DIR, qdrant://HOST:6333 or postgresql://HOST/DATABASE"
        )
    return engine


def open_store(
    url: str, reporter: Reporter, fallback: Path | None = None, *, api_key: str | None = None
) -> VectorStore:
    """Open the store at `url`.

    If it cannot be reached, open the embedded one in the file `fallback`.

    `sqlite:///FILE`, `lancedb:///DIR`, `qdrant://:memory:`, `qdrant:///DIR`, `qdrant://HOST:PORT`
    (also `qdrant+https://`, `http://`, `https://`), `postgresql://...`. A Notice reports the
    fallback. `api_key` (or QDRANT_API_KEY) is used for Qdrant if the URL has no password.

    Raises StoreUnreachable if neither store can be used, StoreMismatch if the address belongs to
    another program, and ConfigurationError for an unknown URL or a missing package.
    """
    check_url(url)
    try:
        return _engine(url).load().open_url(url, reporter, api_key)
    except StoreUnreachable as error:
        if fallback is None:
            raise
        reporter(Notice(f"{error}; going on with the embedded store in {fallback}", "warning"))
        from agent.search.stores.sqlite import SqliteStore

        return SqliteStore(fallback, reporter)


def collections_at(url: str, reporter: Reporter) -> tuple[CollectionInfo, ...] | None:
    """Return the collections at `url` by name, for dry runs. Nothing is created or changed.

    Returns None if listing would write: Qdrant locks its folder and rewrites old files. Raises the
    errors of `open_store` without a fallback.
    """
    check_url(url)
    return _engine(url).load().list_collections(url, reporter)


def open_temporary(why: StoreUnreachable, reporter: Reporter) -> VectorStore:
    """Open a store in memory, for a search whose own store is unreachable.

    A Notice reports `why`. Raises StoreUnreachable if SQLite cannot create it.
    """
    reporter(Notice(f"{why}; going on in memory, nothing is kept", "warning"))
    from agent.search.stores.sqlite import Scale, SqliteStore

    # never creates index files
    return SqliteStore(Path(IN_MEMORY), reporter, scale=Scale(limit=sys.maxsize))


def open_records(url: str, reporter: Reporter) -> PostgresRecords | None:
    """Open the shared records of the code index at `url`, if it is a PostgreSQL server.

    Returns None for another engine. If the server cannot be used, a Notice reports it and the
    result is also None, because an index works without shared records.
    """
    if ENGINES.get(scheme_of(url)) is not _POSTGRES:
        return None
    _POSTGRES.load()
    from agent.search.stores.postgres.records import PostgresRecords

    try:
        return PostgresRecords(url, reporter)
    except StoreError as error:
        reporter(Notice(f"{error}; going on without shared records", "warning"))
        return None
