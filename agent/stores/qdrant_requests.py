"""Requests to Qdrant: tried again while a server is gone, errors translated."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from agent.errors import StoreError, StoreUnreachable

T = TypeVar("T")

_PAUSES = (0.1, 0.4, 1.0, 2.0, 4.0)  # a server that was killed is back within seconds
_PAUSES_AT_FIRST = (0.2,)
_TRANSIENT = frozenset({429, 502, 503, 504})


class Client:
    """The library's client: requests tried again while a server is gone, errors translated."""

    def __init__(self, client: Any, url: str, *, local: bool) -> None:
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

        Raises StoreUnreachable, and StoreError where the server refuses.
        """
        return self._run(lambda client: getattr(client, method)(*values, **options), _PAUSES)

    def _run(self, request: Callable[[Any], T], pauses: Sequence[float]) -> T:
        for pause in (*pauses, None):
            try:
                return self._attempt(request)
            except ResponseHandlingException as error:
                told: Exception = error
            except UnexpectedResponse as error:
                if error.status_code not in _TRANSIENT:
                    raise self._refused(error) from None
                told = error
            if pause is None:
                break
            time.sleep(pause)
        raise StoreUnreachable(
            f"vector store {self.url} cannot be reached ({_line(told)}); start it, or check the"
            " address"
        )

    def _attempt(self, request: Callable[[Any], T]) -> T:
        if not self.local:
            return request(self._client)
        with self._lock:  # in this process it is plain Python, and not made for threads
            try:
                return request(self._client)
            except (OSError, sqlite3.Error) as error:
                raise StoreUnreachable(
                    f"vector store {self.url} cannot be used ({_line(error)}); check the folder and"
                    " the space on its disk"
                ) from None

    def _refused(self, error: UnexpectedResponse) -> StoreError:
        if error.status_code in (401, 403):
            return StoreUnreachable(
                f"vector store {self.url} refused the key; check the password in its URL"
            )
        return StoreError(f"vector store {self.url} refused ({_line(error)}); check its log")

    def close(self) -> None:
        """Let go of the server, or of the folder."""
        self._client.close()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
