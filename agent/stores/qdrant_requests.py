"""Requests to Qdrant: tried again while a server is gone or busy, errors translated."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from agent.errors import StoreError, StoreMismatch, StoreUnreachable
from agent.events import Notice

if TYPE_CHECKING:
    from agent.protocols import Reporter

T = TypeVar("T")

_PAUSES = (0.1, 0.4, 1.0, 2.0, 4.0)  # a server that was killed is back within seconds
_PAUSES_AT_FIRST = (0.2,)
_PATIENCE = 10.0
"""Seconds after which nothing is tried again: all the pauses, but not six time-outs in a row."""

_TRANSIENT = frozenset({408, 429, 502, 503, 504})
_ELSEWHERE = frozenset({301, 302, 307, 308, 404, 405})  # what other servers answer to our paths


_TOO_LARGE = "Local mode is not recommended"
"""How the library's warning begins, from 20,000 points in a collection on."""


@contextmanager
def large_store_told(url: str, take_reporter: Callable[[], Reporter | None]) -> Iterator[None]:
    """Say the library's warning of a large collection as a Notice; pass on all others.

    `take_reporter` gives whom to tell, None once that is done. Not for two threads at a time.
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
    """The library's client: requests tried again while a server is gone, errors translated."""

    def __init__(
        self, client: Any, url: str, *, local: bool, reporter: Reporter | None = None
    ) -> None:
        """`reporter` is told once of a store in this process that grows too large."""
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
        """What a method of the library's client gives.

        Raises StoreUnreachable, StoreMismatch where something else than Qdrant answers, and
        StoreError where the server refuses.
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
            except ValueError:  # no JSON: the library lets that through
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
        """Seconds before the next try, None for none. Raises what no other try would change."""
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
        with self._lock:  # in this process it is plain Python, and not made for threads
            try:
                with large_store_told(self.url, self._take_reporter):
                    return request(self._client)
            except (OSError, sqlite3.Error) as error:
                raise StoreUnreachable(
                    f"vector store {self.url} cannot be used ({_line(error)}); check the folder and"
                    " the space on its disk"
                ) from None

    def _take_reporter(self) -> Reporter | None:
        """Whom to tell, the first time only."""
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
        """Let go of the server, or of the folder."""
        self._client.close()


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
