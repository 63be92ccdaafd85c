"""Qdrant (extra `qdrant`): in this process (`:memory:` or a folder), or a server by URL.

Qdrant writes point by point, without transactions. A folder belongs to one process at a time; the
library stores points there as pickles, so nobody else may be able to write to it.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException

from agent.errors import ConfigurationError, StoreError, StoreUnreachable
from agent.search.stores.base import (
    META_KEY,
    TEXTS,
    CollectionMeta,
    Entry,
    EntryFilter,
    VectorCollection,
    VectorStore,
    read_meta,
    shown_url,
)
from agent.settings import environment
from agent.types.events import Notice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

T = TypeVar("T")

_PORT = 6333
_KEY_NAME = "QDRANT_API_KEY"  # the variable that other tools for Qdrant use
_SECONDS = 30  # timeout of one request
_READ_AT_ONCE = 500  # points of a request: 1 MB of vectors at d = 384; servers accept 32 MiB
_WRITTEN_AT_ONCE = 100  # points of a request
_FILTERED = ("project", "corpus")
"""Fields that filters use. A server in strict mode rejects fields without an index."""


def open_qdrant(url: str, reporter: Reporter) -> QdrantStore:
    """Open the server, folder or memory of the URL. The key is its password or QDRANT_API_KEY."""
    parts = urlsplit(url)
    if parts.netloc == ":memory:":
        message = f"vector store {url} is in memory: nothing is kept when the command ends"
        reporter(Notice(message, "warning"))
        return QdrantStore(QdrantClient(":memory:"), url)
    if parts.scheme == "qdrant" and not parts.netloc:
        return _open_folder(Path(unquote(parts.path)))
    try:
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:  # the original message would contain the address
        host = None
    key = unquote(parts.password or "") or environment((_KEY_NAME,)).get(_KEY_NAME, "").strip()
    if not host or not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"store {shown_url(url)}: the host, the port or the key is not valid; write a / @ : of"
            " the key as %2F %40 %3A, or set QDRANT_API_KEY"
        )
    secure = parts.scheme.endswith("https")
    if key and not secure:
        message = "the key of the vector store goes unencrypted; use qdrant+https://"
        reporter(Notice(message, "warning"))
    name = f"[{host}]" if ":" in host else host
    address = f"{'https' if secure else 'http'}://{name}:{port}{parts.path.rstrip('/')}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the unencrypted key was reported above
        client = QdrantClient(
            url=address, api_key=key or None, timeout=_SECONDS, check_compatibility=False
        )
    return QdrantStore(client, url)


def _open_folder(folder: Path) -> QdrantStore:
    if folder == Path():
        raise ConfigurationError("store qdrant://: name a folder, qdrant:///DIR, or a host")
    url = f"qdrant://{folder}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / ".lock").open("a") as file:  # the library would leak the lock file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the size that it calls too large for local mode
            client = QdrantClient(path=str(folder), force_disable_check_same_thread=True)
    except (BlockingIOError, RuntimeError):
        raise StoreUnreachable(
            f"vector store {url} is in use by another process; end that, or share a server"
        ) from None
    except (OSError, ValueError) as error:
        raise StoreUnreachable(
            f"vector store {url} cannot be used ({error}); check the folder"
        ) from None
    return QdrantStore(client, url)


class QdrantStore(VectorStore):
    """All collections of a server, a folder, or this process."""

    def __init__(self, client: Any, url: str) -> None:
        self.url = shown_url(url)
        self._client = client
        self._lock = threading.RLock()  # the engine of the library is not thread-safe
        try:
            self._names()
        except StoreError:
            self.close()
            raise

    def call(self, method: str, *values: Any, **options: Any) -> Any:
        """Call a method of the library's client. Raises StoreUnreachable for any failure."""
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of large collections
            try:
                return getattr(self._client, method)(*values, **options)
            except (ApiException, QdrantException, OSError, ValueError, sqlite3.Error) as error:
                # the library gets the address without the key
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                raise StoreUnreachable(
                    f"vector store {self.url} cannot be used ({reason}); check that Qdrant runs"
                    " there, its address and its key, or the folder and its disk"
                ) from None

    def _names(self) -> list[str]:
        return [one.name for one in self.call("get_collections").collections]

    def _meta(self, name: str) -> CollectionMeta | None:
        mark = (self.call("get_collection", name).config.metadata or {}).get(META_KEY)
        return read_meta(None if mark is None else json.dumps(mark))

    def _create(self, name: str, meta: CollectionMeta) -> None:
        size = models.VectorParams(size=meta.dimension, distance=models.Distance.COSINE)
        metadata = {META_KEY: meta.model_dump()}
        try:
            self.call("create_collection", name, vectors_config=size, metadata=metadata)
        except StoreError:
            if name not in self._names():
                raise
            return  # another process created it first
        if self._meta(name) is None:
            self._remove(name)
            raise StoreError(f"vector store {self.url} is too old; use a Qdrant of 1.16 or newer")

    def _remove(self, name: str) -> None:
        self.call("delete_collection", name)

    def _opened(self, name: str, model: str, dimension: int) -> VectorCollection:
        # the process that created it may have been killed before the indexes
        indexed = self.call("get_collection", name).payload_schema
        for field in (field for field in _FILTERED if field not in indexed):
            self.call("create_payload_index", name, field, "keyword", wait=True)
        return QdrantCollection(self, name, model, dimension)

    def close(self) -> None:
        """Close the connection to the server, or the folder."""
        self._client.close()


class QdrantCollection(VectorCollection):
    """Entries of one model; made by `QdrantStore.collection`. All of them are compared."""

    def __init__(self, store: QdrantStore, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._store = store

    def _write(self, rows: Sequence[Entry]) -> int:
        """Write the points. A killed call may have written some of them."""
        changes = 0
        for some in _parts([_point(row) for row in rows], _WRITTEN_AT_ONCE):
            stored = self._store.call("retrieve", self.name, [point.id for point in some])
            payloads = {str(point.id): point.payload for point in stored}
            fresh = [point for point in some if payloads.get(point.id) != point.payload]
            if fresh:
                self._store.call("upsert", self.name, fresh, wait=True)
            changes += len(fresh)
        return changes

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        for some in _parts(ids, _READ_AT_ONCE):
            for point in self._store.call("retrieve", self.name, list(map(_number, some))):
                yield point.payload["id"], point.payload["content"]

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[tuple[str, NDArray[np.float32]]]:
        points = self._store.call(
            "query_points",
            self.name,
            query=query.tolist(),
            query_filter=_filter(selection),
            search_params=models.SearchParams(exact=True),
            limit=limit,
            with_payload=["id"],
            with_vectors=True,
        ).points
        return [(p.payload["id"], np.asarray(p.vector, dtype=np.float32)) for p in points]

    def _delete(self, selection: EntryFilter) -> int:
        count = self._count(selection)
        if count:
            selector = models.FilterSelector(filter=_filter(selection))
            self._store.call("delete", self.name, selector, wait=True)
        return count

    def _count(self, selection: EntryFilter) -> int:
        return int(self._store.call("count", self.name, _filter(selection), exact=True).count)


def _number(name: str) -> str:
    """Return the UUID for an escaped id, because Qdrant does not accept texts as ids."""
    return str(uuid.UUID(bytes=blake2b(name.encode(), digest_size=16).digest()))


def _point(row: Entry) -> Any:
    payload: dict[str, Any] = dict(zip(TEXTS, row[:-1], strict=True))
    return models.PointStruct(id=_number(row.id), vector=row.vector.tolist(), payload=payload)


def _filter(selection: EntryFilter) -> Any:
    must: list[Any] = [
        models.FieldCondition(key=field, match=models.MatchValue(value=value))
        for field, value in (("project", selection.project), ("corpus", selection.corpus))
        if value is not None
    ]
    return models.Filter(must=must)


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
