"""Vector stores behind one class: SQLite (embedded), LanceDB, Qdrant and PostgreSQL (extras).

    with open_store("sqlite:///vectors.db", reporter) as store:
        collection = store.collection("docs", model, dimension)
        collection.upsert(entries)
        (matches,) = collection.search(queries, 10, EntryFilter(project="host/owner/name"))

To add an engine, write a module whose classes derive from those of `base`, and add its URL scheme
to `open_store`. The tests in `tests/unit/search/stores` then run on it as soon as its URL is in
`tests/support/stores.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from agent.errors import ConfigurationError, StoreError
from agent.search.stores.base import (
    EVERYTHING,
    CollectionInfo,
    Entry,
    EntryFilter,
    Fields,
    VectorCollection,
    VectorMatch,
    VectorStore,
    checked_name,
    score_of,
)
from agent.shared.terminal import install_command

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

__all__ = [
    "EVERYTHING",
    "CollectionInfo",
    "Entry",
    "EntryFilter",
    "Fields",
    "VectorCollection",
    "VectorMatch",
    "VectorStore",
    "check_url",
    "checked_name",
    "open_store",
    "score_of",
    "shown_url",
    "unusable",
    "without_password_of",
]

_EXTRAS = {  # by scheme; "" needs none
    "sqlite": "",
    "lancedb": "lancedb",
    **dict.fromkeys(("qdrant", "qdrant+http", "qdrant+https", "http", "https"), "qdrant"),
    **dict.fromkeys(("postgresql", "postgres"), "pgvector"),
}
_PASSWORD = re.compile(r"(?<=//)([^/@:]*):.*@")  # an unquoted password may contain an @
_BARE_PASSWORD = re.compile(r"^([^/@:]*):(?!//).*@")  # `user:SECRET@host`, without a scheme
_PARAMETER = re.compile(r"(?i)\b((?:ssl)?password|api[_-]?key|token)=([^&\s]*)")


def open_store(url: str, reporter: Reporter) -> VectorStore:
    """Open the store at `url`.

    `sqlite:///FILE`, `lancedb:///DIR`, `qdrant://:memory:`, `qdrant:///DIR`, `qdrant://HOST:PORT`
    (also `qdrant+https://`, `http://`, `https://`), `postgresql://...`.

    Raises StoreUnreachable if it cannot be used, StoreMismatch if the address belongs to another
    program, and ConfigurationError for an unknown URL or a missing package.
    """
    check_url(url)
    extra = _EXTRAS[_scheme(url)]
    try:
        if extra == "lancedb":
            from agent.search.stores.lancedb import LanceStore

            return LanceStore(_path(url))
        if extra == "qdrant":
            from agent.search.stores.qdrant import open_qdrant

            return open_qdrant(url, reporter)
        if extra == "pgvector":
            from agent.search.stores.pgvector import PostgresStore

            return PostgresStore(url)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"a {extra} store needs a package that is not installed ({error.name}): "
            f"{install_command(extra)}"
        ) from None
    from agent.search.stores.embedded import EmbeddedStore

    return EmbeddedStore(_path(url), reporter)


def check_url(url: str) -> None:
    """Raise ConfigurationError for a URL that no engine can open. Opens nothing."""
    extra = _EXTRAS.get(_scheme(url))
    if extra in ("", "lancedb"):
        _path(url)
    elif extra == "qdrant":
        try:
            _ = urlsplit(url).port if urlsplit(url).netloc != ":memory:" else None
        except ValueError:  # the original message would contain the address
            raise ConfigurationError(
                f"store {shown_url(url)}: the host or the port is not valid; write a / @ : of the"
                " password as %2F %40 %3A"
            ) from None
    elif extra is None:
        raise ConfigurationError(
            f"store {shown_url(url)}: no engine of that name; use sqlite:///FILE,"
            " lancedb:///DIR, qdrant://HOST:6333 or postgresql://HOST/DATABASE"
        )


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def _path(url: str) -> Path:
    """Return the path of `scheme:///absolute` or `scheme://relative`."""
    parts = urlsplit(url)
    path = re.sub("^//+", "/", unquote(parts.netloc + parts.path))
    if not path or parts.query or parts.fragment:
        example = "sqlite:///FILE" if _scheme(url) == "sqlite" else f"{_scheme(url)}:///DIR"
        raise ConfigurationError(
            f"store {shown_url(url)}: name a path after the scheme, as {example}"
        )
    return Path(path).expanduser()


def shown_url(url: str) -> str:
    """Return the URL for messages, in one line and without passwords and keys."""
    shown = _BARE_PASSWORD.sub(r"\1@", _PASSWORD.sub(r"\1@", url))
    shown = _PARAMETER.sub(r"\1=...", shown)
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def without_password_of(url: str, text: str) -> str:
    """Return a driver's message in one line, without the URL's passwords or parts of them.

    A driver may split an unquoted password, so parts of at least three characters go too.
    """
    secrets: set[str] = set()
    for pattern in (_PASSWORD, _BARE_PASSWORD, _PARAMETER):
        for match in pattern.finditer(url):
            written = match[2] if pattern is _PARAMETER else match[0][len(match[1]) + 1 : -1]
            for whole in (written, unquote(written)):
                secrets |= {whole, *re.split("[@/:?#&]", whole)}
    line = " ".join(text.split())[:300]
    for secret in sorted(secrets, key=lambda part: (-len(part), part)):
        if len(secret) >= 3:
            line = line.replace(secret, "...")
    return line


def unusable(kind: type[StoreError], url: str, error: Exception, advice: str) -> StoreError:
    """Return the error of a store whose driver raised `error`, without the URL's passwords."""
    reason = without_password_of(url, str(error)) or type(error).__name__
    return kind(f"vector store {shown_url(url)} cannot be used ({reason}); {advice}")
