"""From the URL of a setting to a store: engines by scheme, and what happens where one is down."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from agent.errors import ConfigurationError, StoreError, StoreUnreachable
from agent.events import Notice
from agent.stores.border import without_password

IN_MEMORY = ":memory:"
"""SQLite's own name for a database that lies in no file."""

if TYPE_CHECKING:
    from agent.protocols import Reporter
    from agent.stores.base import VectorStore
    from agent.stores.records import PostgresRecords


def open_store(
    url: str, reporter: Reporter, fallback: Path | None = None, *, api_key: str | None = None
) -> VectorStore:
    """The store at `url`; where it cannot be reached, the embedded one in the file `fallback`.

    `sqlite:///FILE`, `lancedb:///DIR`, `qdrant://:memory:`, `qdrant:///DIR`, `qdrant://HOST:PORT`
    (also `qdrant+https://`, `http://`, `https://`), `postgresql://...`. The fallback is said by a
    Notice. `api_key` (or QDRANT_API_KEY) is Qdrant's, where the URL has no password.

    Raises StoreUnreachable (no fallback, or that cannot be used either), StoreMismatch where
    something else is at the address, ConfigurationError for a URL that names no engine or one whose
    package is not installed.
    """
    check_url(url)
    try:
        return _OPENERS[scheme_of(url)](url, reporter, api_key)
    except StoreUnreachable as error:
        if fallback is None:
            raise
        reporter(Notice(f"{error}; going on with the embedded store in {fallback}", "warning"))
        return _embedded(fallback, reporter)


def check_url(url: str) -> None:
    """Raise ConfigurationError for a URL that no engine can be asked by. Opens nothing."""
    scheme = scheme_of(url)
    if scheme not in _OPENERS:
        raise ConfigurationError(
            f"store {shown_url(url)}: no engine of that name; use sqlite:///FILE,"
            " lancedb:///DIR, qdrant://HOST:6333 or postgresql://HOST/DATABASE"
        )
    if scheme in ("sqlite", "lancedb"):
        place_of(url)
    if _OPENERS[scheme] is not _qdrant:  # a list of PostgreSQL's hosts is no host for `urlsplit`
        return
    if urlsplit(url).netloc == IN_MEMORY:
        return
    try:
        _ = urlsplit(url).port
    except ValueError:  # its words would quote the address
        raise ConfigurationError(
            f"store {shown_url(url)}: the host or the port is none; write a / @ : of the"
            " password as %2F %40 %3A"
        ) from None


def shown_url(url: str) -> str:
    """As people may see it: one line, without a password."""
    shown = without_password(url)
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def scheme_of(url: str) -> str:
    """What comes before the colon, in small letters."""
    return url.partition(":")[0].lower()


def open_temporary(why: StoreUnreachable, reporter: Reporter) -> VectorStore:
    """A store in memory that ends with the process, for a search whose own cannot be used.

    The Notice says why. Raises StoreUnreachable where SQLite cannot even do that.
    """
    reporter(Notice(f"{why}; going on in memory, nothing is kept", "warning"))
    from agent.stores.large import Scale
    from agent.stores.sqlite import SqliteStore

    return SqliteStore(Path(IN_MEMORY), reporter, scale=Scale(limit=sys.maxsize))  # no index: files


def open_records(url: str, reporter: Reporter) -> PostgresRecords | None:
    """Records of the code index at the same address, where it is a server that has room for them.

    None for another engine, and, with a Notice, where it cannot be reached: an index needs none.
    """
    if scheme_of(url) not in ("postgresql", "postgres"):
        return None
    require("psycopg", "pgvector")
    from agent.stores.records import PostgresRecords

    try:
        return PostgresRecords(url, reporter)
    except StoreError as error:
        reporter(Notice(f"{error}; going on without shared records", "warning"))
        return None


def _sqlite(url: str, reporter: Reporter, _: str | None) -> VectorStore:
    return _embedded(place_of(url), reporter)


def _embedded(path: Path, reporter: Reporter) -> VectorStore:
    from agent.stores.sqlite import SqliteStore

    return SqliteStore(path, reporter)


def _lancedb(url: str, reporter: Reporter, _: str | None) -> VectorStore:
    require("lancedb", "lancedb")
    from agent.stores.lancedb import LanceStore

    return LanceStore(place_of(url), reporter)


def _qdrant(url: str, reporter: Reporter, api_key: str | None) -> VectorStore:
    require("qdrant_client", "qdrant")
    from agent.stores.qdrant_opening import open_qdrant

    return open_qdrant(url, reporter, api_key)


def _postgres(url: str, reporter: Reporter, _: str | None) -> VectorStore:
    require("psycopg", "pgvector")
    from agent.stores.pgvector import PostgresStore

    return PostgresStore(url, reporter)


_OPENERS: Mapping[str, Callable[[str, Reporter, str | None], VectorStore]] = {
    "sqlite": _sqlite,
    "lancedb": _lancedb,
    "qdrant": _qdrant,
    "qdrant+http": _qdrant,
    "qdrant+https": _qdrant,
    "http": _qdrant,
    "https": _qdrant,
    "postgresql": _postgres,
    "postgres": _postgres,
}


def place_of(url: str) -> Path:
    """The path of `scheme:///absolute` or `scheme://relative`."""
    parts = urlsplit(url)
    path = re.sub("^//+", "/", unquote(parts.netloc + parts.path))
    if not path or parts.query or parts.fragment:
        example = f"{scheme_of(url)}:///{'FILE' if scheme_of(url) == 'sqlite' else 'DIR'}"
        raise ConfigurationError(
            f"store {shown_url(url)}: name a path after the scheme, as {example}"
        )
    return Path(path).expanduser()


def require(module: str, extra: str) -> None:
    """Raise ConfigurationError, with the extra that brings it, where a package is missing."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"a {extra} store needs a package that is not installed ({error.name or module});"
            f" pip install 'patchshot[{extra}]'"
        ) from None
