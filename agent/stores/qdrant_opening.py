"""From a URL to Qdrant: in this process (`:memory:` or a folder), or a server with its key."""

from __future__ import annotations

import fcntl
import warnings
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qdrant_client import QdrantClient

from agent.errors import ConfigurationError, StoreUnreachable
from agent.events import Notice
from agent.settings import environment
from agent.stores.border import without_password
from agent.stores.qdrant import QdrantStore
from agent.stores.qdrant_requests import Client, large_store_told

if TYPE_CHECKING:
    from agent.protocols import Reporter

_PORT = 6333
_KEY_NAME = "QDRANT_API_KEY"  # what other tools for Qdrant read
_SECONDS = 30  # for one request


def open_qdrant(url: str, reporter: Reporter, api_key: str | None = None) -> QdrantStore:
    """The store at a URL (see `opening`).

    The key of a server is the URL's password, `api_key`, or QDRANT_API_KEY, in this order.

    Raises StoreUnreachable, and ConfigurationError for a URL without a place.
    """
    parts = urlsplit(url)
    if parts.netloc == ":memory:":
        reporter(
            Notice(
                "vector store qdrant://:memory: is in memory: nothing is kept when "
                "the command ends",
                "warning",
            )
        )
        client = QdrantClient(":memory:")
        return QdrantStore(Client(client, "qdrant://:memory:", local=True, reporter=reporter))
    if parts.scheme == "qdrant" and not parts.netloc:
        return _open_folder(Path(unquote(parts.path)), reporter)
    given = environment((_KEY_NAME,))
    key = unquote(parts.password or "") or api_key or given.get(_KEY_NAME)
    secure = parts.scheme.endswith("https")
    key = _checked(key, without_password(url))
    if not parts.hostname:
        raise ConfigurationError(f"store {without_password(url)}: name a host, qdrant://HOST:6333")
    if key and not secure:
        reporter(
            Notice("the key of the vector store goes unencrypted; use qdrant+https://", "warning")
        )
    address = f"{'https' if secure else 'http'}://{_host(parts.hostname)}:{parts.port or _PORT}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said above
        client = QdrantClient(
            url=address + parts.path.rstrip("/"),
            api_key=key,
            timeout=_SECONDS,
            check_compatibility=False,
        )
    return QdrantStore(Client(client, without_password(url), local=False))


def _checked(key: str | None, url: str) -> str | None:
    """The key as a header can carry it. Raises ConfigurationError, without it."""
    key = (key or "").strip()  # a file that it was read from ends in a newline
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"store {url}: the key has characters that no header can carry; check the URL's"
            f" password, or {_KEY_NAME}"
        )
    return key or None


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _open_folder(folder: Path, reporter: Reporter) -> QdrantStore:
    if folder == Path():
        raise ConfigurationError("store qdrant://: name a folder, qdrant:///DIR, or a host")
    url = f"qdrant://{folder}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_taken(folder)
        whom: list[Reporter] = [reporter]
        with large_store_told(url, lambda: whom.pop() if whom else None):
            client = QdrantClient(path=str(folder), force_disable_check_same_thread=True)
    except RuntimeError as error:
        raise StoreUnreachable(
            f"vector store {url} is in use by another process ({error}); end that, or"
            " share a server"
        ) from None
    except (OSError, ValueError) as error:
        raise StoreUnreachable(
            f"vector store {url} cannot be used ({error}); check the folder"
        ) from None
    told = whom[0] if whom else None
    return QdrantStore(Client(client, url, local=True, reporter=told))


def _refuse_taken(folder: Path) -> None:
    """Raise RuntimeError, as the library does: but that leaves the file open when it does."""
    try:
        with (folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError("its lock is held") from None
