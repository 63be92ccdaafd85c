"""Clients of Qdrant. They are opened by URL, retry while a server is busy, and translate errors."""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError
from qdrant_client import QdrantClient
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from agent.errors import ConfigurationError, StoreError, StoreMismatch, StoreUnreachable
from agent.search.stores.urls import without_password
from agent.settings import environment
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

_PORT = 6333
_KEY_NAME = "QDRANT_API_KEY"  # the variable that other tools for Qdrant use
_SECONDS = 30  # timeout of one request


def open_client(url: str, reporter: Reporter, api_key: str | None = None) -> Client:
    """Open the client of a URL (see `registry.open_store`).

    The API key is the URL's password, or else `api_key`, or else QDRANT_API_KEY.

    Raises StoreUnreachable, and ConfigurationError for a URL without a host or folder.
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
        return Client(client, "qdrant://:memory:", local=True, reporter=reporter)
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
        warnings.simplefilter("ignore")  # already reported above
        client = QdrantClient(
            url=address + parts.path.rstrip("/"),
            api_key=key,
            timeout=_SECONDS,
            check_compatibility=False,
        )
    return Client(client, without_password(url), local=False)


def _checked(key: str | None, url: str) -> str | None:
    """Return the key.

    Raises ConfigurationError, without showing the key, if it is not valid in a header.
    """
    key = (key or "").strip()  # a key read from a file may end in a newline
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"store {url}: the key has characters that no header can carry; check the URL's"
            f" password, or {_KEY_NAME}"
        )
    return key or None


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _open_folder(folder: Path, reporter: Reporter) -> Client:
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
    return Client(client, url, local=True, reporter=told)


def _refuse_taken(folder: Path) -> None:
    """Raise RuntimeError if the folder is locked, because the library would leak the lock file."""
    try:
        with (folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError("its lock is held") from None


T = TypeVar("T")

_PAUSES = (0.1, 0.4, 1.0, 2.0, 4.0)  # a server that was killed is back within seconds
_PAUSES_AT_FIRST = (0.2,)
_PATIENCE = 10.0
"""Seconds after which no further attempt starts: more than all pauses together, and less than six
timeouts.
"""

_TRANSIENT = frozenset({408, 429, 502, 503, 504})
_ELSEWHERE = frozenset({301, 302, 307, 308, 404, 405})  # answers of servers that are not Qdrant


_TOO_LARGE = "Local mode is not recommended"
"""Beginning of the library's warning about collections with 20,000 points or more."""


@contextmanager
def large_store_told(url: str, take_reporter: Callable[[], Reporter | None]) -> Iterator[None]:
    """Report the library's warning about a large collection as a Notice; pass on all others.

    `take_reporter` returns None once the warning has been reported. Not thread-safe.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=_TOO_LARGE)
        yield
    large = [one for one in caught if str(one.message).startswith(_TOO_LARGE)]
    for one in caught:
        if one not in large:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if large and (reporter := take_reporter()) is not None:
        reporter(
            Notice(
                f"vector store {url} holds more than 20,000 vectors, for which Qdrant in the"
                " process is slow: use sqlite:///FILE, or a Qdrant server",
                "warning",
            )
        )


class Client:
    """Wraps the library's client: retries requests while a server is unreachable and translates
    errors.
    """

    def __init__(
        self, client: Any, url: str, *, local: bool, reporter: Reporter | None = None
    ) -> None:
        """`reporter` receives one Notice when a store in this process grows too large."""
        self._report = reporter
        self.url = url
        self.local = local
        self._client = client
        self._lock = threading.RLock()
        try:
            self._run(lambda client: client.get_collections(), _PAUSES_AT_FIRST)
        except StoreError:
            self.close()
            raise

    def call(self, method: str, *values: Any, **options: Any) -> Any:
        """Call a method of the library's client and return its result.

        Raises StoreUnreachable, StoreMismatch if the server is not Qdrant, and StoreError if the
        server rejects the request.
        """
        return self._run(lambda client: getattr(client, method)(*values, **options), _PAUSES)

    def _run(self, request: Callable[[Any], T], pauses: Sequence[float]) -> T:
        if self.local:
            return self._in_process(request)
        started = time.monotonic()
        for pause in (*pauses, None):
            try:
                return request(self._client)
            except (ResponseHandlingException, UnexpectedResponse, QdrantException) as error:
                wait = self._wait(error, pause)
                told: Exception = error
            except ValueError:  # not JSON; the library does not translate this error
                raise self._no_qdrant("its answers are no JSON") from None
            if wait is None or time.monotonic() - started + wait > _PATIENCE:
                break
            time.sleep(wait)
        if isinstance(told, ResponseHandlingException):
            state, advice = "cannot be reached", "start it, or check the address"
        else:
            state, advice = "is too busy", "try again later, or look at its log"
        raise StoreUnreachable(f"vector store {self.url} {state} ({_line(told)}); {advice}")

    def _wait(self, error: Exception, pause: float | None) -> float | None:
        """Return the seconds before the next attempt; None for no pause.

        Raises if a retry cannot help.
        """
        if isinstance(error, ResponseHandlingException) and isinstance(
            error.source, ValidationError
        ):
            raise self._no_qdrant("its answers have another form") from None
        if isinstance(error, UnexpectedResponse) and error.status_code not in _TRANSIENT:
            raise self._refused(error) from None
        if pause is not None and isinstance(error, ResourceExhaustedResponse):
            return max(pause, float(error.retry_after_s))
        return pause

    def _in_process(self, request: Callable[[Any], T]) -> T:
        with self._lock:  # the in-process engine is plain Python and not thread-safe
            try:
                with large_store_told(self.url, self._take_reporter):
                    return request(self._client)
            except (OSError, sqlite3.Error) as error:
                raise StoreUnreachable(
                    f"vector store {self.url} cannot be used ({_line(error)}); check the folder and"
                    " the space on its disk"
                ) from None

    def _take_reporter(self) -> Reporter | None:
        """Return the reporter on the first call, and None afterwards."""
        reporter, self._report = self._report, None
        return reporter

    def _refused(self, error: UnexpectedResponse) -> StoreError:
        if error.status_code in (401, 403):
            return StoreUnreachable(
                f"vector store {self.url} refused the key; check the password in its URL"
            )
        if error.status_code in _ELSEWHERE and not _is_json(error.content):
            return self._no_qdrant(f"status {error.status_code} without Qdrant's JSON")
        return StoreError(f"vector store {self.url} refused ({_line(error)}); check its log")

    def _no_qdrant(self, why: str) -> StoreMismatch:
        return StoreMismatch(
            f"what answers at {self.url} is no Qdrant ({why}); check host, port and path"
        )

    def close(self) -> None:
        """Close the connection to the server, or the folder."""
        self._client.close()


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
