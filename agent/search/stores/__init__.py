"""Vector stores behind one class: SQLite (embedded), LanceDB and Qdrant (extras).

A new engine is a module whose classes derive from those of `base`, and a URL scheme in
`open_store`; with its URL in `tests/support/stores.py` the contract tests run on it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from agent.errors import ConfigurationError
from agent.search.stores.base import EVERYTHING as EVERYTHING
from agent.search.stores.base import CollectionInfo as CollectionInfo
from agent.search.stores.base import Entry as Entry
from agent.search.stores.base import EntryFilter as EntryFilter
from agent.search.stores.base import VectorCollection as VectorCollection
from agent.search.stores.base import VectorMatch as VectorMatch
from agent.search.stores.base import VectorStore as VectorStore
from agent.search.stores.base import shown_url as shown_url
from agent.shared.terminal import install_command

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

_QDRANT = ("qdrant", "qdrant+http", "qdrant+https", "http", "https")


def open_store(url: str, reporter: Reporter) -> VectorStore:
    """Open the store at `url`.

    `sqlite:///FILE`, `lancedb:///DIR`, `qdrant://:memory:`, `qdrant:///DIR`, `qdrant://HOST:PORT`
    (also `qdrant+https://`, `http://`, `https://`). Raises StoreUnreachable, StoreMismatch if it is
    of another program, and ConfigurationError for an unknown URL or a missing package.
    """
    scheme = url.partition(":")[0].lower()
    try:
        if scheme == "lancedb":
            from agent.search.stores.lancedb import LanceStore

            return LanceStore(_path(url, "DIR"))
        if scheme in _QDRANT:
            from agent.search.stores.qdrant import open_qdrant

            return open_qdrant(url, reporter)
    except ModuleNotFoundError as error:
        extra = "lancedb" if scheme == "lancedb" else "qdrant"
        raise ConfigurationError(
            f"a {extra} store needs a package that is not installed ({error.name}): "
            f"{install_command(extra)}"
        ) from None
    if scheme != "sqlite":  # the rest may hold a password
        raise ConfigurationError(
            f"store {scheme[:40]!a}: no engine of that name; use sqlite:///FILE, lancedb:///DIR or"
            " qdrant://HOST:6333"
        )
    from agent.search.stores.embedded import EmbeddedStore

    return EmbeddedStore(_path(url, "FILE"), reporter)


def _path(url: str, what: str) -> Path:
    """Return the path of `scheme:///absolute` or `scheme://relative`."""
    parts = urlsplit(url)
    path = re.sub("^//+", "/", unquote(parts.netloc + parts.path))
    if not path or parts.query or parts.fragment:
        raise ConfigurationError(
            f"store {shown_url(url)}: name a path after the scheme, as {parts.scheme}:///{what}"
        )
    return Path(path).expanduser()
