"""Qdrant (extra `qdrant`): in this process (`:memory:` or a folder), or a server by URL.

Qdrant has no transactions: a batch is written point by point. Only one process at a time can open a
folder. The library stores points there as pickles, so use only folders that nobody else can write
to.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from agent.errors import ConfigurationError, StoreError, StoreMismatch, StoreUnreachable
from agent.search.stores import shown_url, without_password_of
from agent.search.stores.base import (
    META_KEY,
    TEXTS,
    CollectionInfo,
    CollectionMeta,
    EntryFilter,
    StoredEntry,
    VectorCollection,
    VectorStore,
    checked_name,
    entry_of,
    own_meta,
    refuse_other,
    require_own,
    split_tags,
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
_PAUSES = (0.1, 0.4, 1.0, 2.0, 4.0)  # a server that was killed is back within seconds
_TRANSIENT = frozenset({408, 429, 502, 503, 504})
_AT_ONCE = 500  # points of a request: 1 MB of vectors at d = 384; servers accept 32 MiB
_EF = 200  # candidates of a graph search on the server
_EXACT = 10_000  # up to this many selected entries, all of them are compared
_FILTERED = ("project", "corpus", "path", "language", "tag", "folders")
"""Fields that filters use. A server in strict mode rejects fields without an index."""


def open_qdrant(url: str, reporter: Reporter) -> QdrantStore:
    """Open the server, the folder or the memory of the URL.

    The API key is the URL's password, or else QDRANT_API_KEY. Raises StoreUnreachable, and
    ConfigurationError for a URL without a host or folder.
    """
    parts = urlsplit(url)
    if parts.netloc == ":memory:":
        message = (
            "vector store qdrant://:memory: is in memory: nothing is kept when the command ends"
        )
        reporter(Notice(message, "warning"))
        return QdrantStore(QdrantClient(":memory:"), url, local=True)
    if parts.scheme == "qdrant" and not parts.netloc:
        return _open_folder(Path(unquote(parts.path)))
    shown = shown_url(url)
    if not parts.hostname:
        raise ConfigurationError(f"store {shown}: name a host, qdrant://HOST:6333")
    password = unquote(parts.password or "") or environment((_KEY_NAME,)).get(_KEY_NAME, "")
    key = password.strip()  # a key read from a file may end in a newline
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"store {shown}: the key has characters that no header can carry; check the URL's"
            f" password, or {_KEY_NAME}"
        )
    secure = parts.scheme.endswith("https")
    if key and not secure:
        message = "the key of the vector store goes unencrypted; use qdrant+https://"
        reporter(Notice(message, "warning"))
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = f"{'https' if secure else 'http'}://{host}:{parts.port or _PORT}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the unencrypted key was reported above
        client = QdrantClient(
            url=address + parts.path.rstrip("/"),
            api_key=key or None,
            timeout=_SECONDS,
            check_compatibility=False,
        )
    return QdrantStore(client, url, local=False)


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
    return QdrantStore(client, url, local=True)


class QdrantStore(VectorStore):
    """All collections of a server, a folder, or this process."""

    def __init__(self, client: Any, url: str, *, local: bool) -> None:
        self.url = shown_url(url)
        self.local = local
        self._secret_url = url
        self._client = client
        self._lock = threading.RLock()
        try:
            self._run("get_collections", _PAUSES[:1])
        except StoreError:
            self.close()
            raise

    def call(self, method: str, *values: Any, **options: Any) -> Any:
        """Call a method of the library's client; try again while a server is unreachable.

        Raises StoreUnreachable, StoreMismatch if the server is not Qdrant, and StoreError if the
        server rejects the request.
        """
        return self._run(method, _PAUSES, *values, **options)

    def _run(self, method: str, pauses: Sequence[float], *values: Any, **options: Any) -> Any:
        request = getattr(self._client, method)
        if self.local:
            return self._in_process(request, *values, **options)
        for pause in (*pauses, None):
            try:
                return request(*values, **options)
            except (ResponseHandlingException, UnexpectedResponse, QdrantException) as error:
                self._refuse(error)
                if pause is None:
                    raise self._unusable(error, "start it, or check the address") from None
            except ValueError:  # not JSON; the library does not translate this error
                raise self._no_qdrant("its answers are no JSON") from None
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _in_process(self, request: Any, *values: Any, **options: Any) -> Any:
        # The in-process engine is plain Python and not thread-safe.
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of large collections
            try:
                return request(*values, **options)
            except (OSError, sqlite3.Error) as error:
                raise self._unusable(error, "check the folder and the space on its disk") from None

    def _refuse(self, error: Exception) -> None:
        """Raise if trying again cannot help."""
        source = getattr(error, "source", None)
        if isinstance(source, ValidationError):
            raise self._no_qdrant("its answers have another form") from None
        if not isinstance(error, UnexpectedResponse) or error.status_code in _TRANSIENT:
            return
        if error.status_code in (401, 403):
            raise StoreUnreachable(
                f"vector store {self.url} refused the key; check the password in its URL"
            ) from None
        if not error.content.lstrip().startswith(b"{"):
            raise self._no_qdrant(f"status {error.status_code} without Qdrant's JSON") from None
        reason = without_password_of(self._secret_url, str(error))
        raise StoreError(f"vector store {self.url} refused ({reason}); check its log") from None

    def _unusable(self, error: Exception, advice: str) -> StoreUnreachable:
        reason = without_password_of(self._secret_url, str(error)) or type(error).__name__
        return StoreUnreachable(f"vector store {self.url} cannot be used ({reason}); {advice}")

    def _no_qdrant(self, why: str) -> StoreMismatch:
        return StoreMismatch(
            f"what answers at {self.url} is no Qdrant ({why}); check host, port and path"
        )

    def collection(self, name: str, model: str, dimension: int) -> QdrantCollection:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        if not self.call("collection_exists", checked_name(name)):
            self._make(name, model, dimension)
        meta = require_own(self._mark(name), f"collection {name} in {self.url}")
        refuse_other(meta.info(name, 0), model, dimension)
        if not self.local:  # the process that created it may have been killed before the indexes
            indexed = self.call("get_collection", name).payload_schema
            for field in (field for field in _FILTERED if field not in indexed):
                self.call("create_payload_index", name, field, "keyword", wait=True)
        return QdrantCollection(self, name, model, dimension)

    def _make(self, name: str, model: str, dimension: int) -> None:
        metadata = {META_KEY: CollectionMeta(model=model, dimension=dimension).model_dump()}
        size = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        try:
            self.call("create_collection", name, vectors_config=size, metadata=metadata)
        except (StoreError, ValueError):
            if not self.call("collection_exists", name):
                raise
            return  # another process created it first; the caller checks that collection
        if self._mark(name) is None:
            self.call("delete_collection", name)
            raise StoreError(
                f"vector store {self.url} keeps no metadata of collections; use a Qdrant of 1.16"
                " or newer"
            )

    def _mark(self, name: str) -> str | None:
        mark = (self.call("get_collection", name).config.metadata or {}).get(META_KEY)
        return None if mark is None else json.dumps(mark)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return the collections of this program by name."""
        names = sorted(one.name for one in self.call("get_collections").collections)
        metas = [(name, own_meta(self._mark(name))) for name in names]
        return tuple(
            meta.info(name, int(self.call("count", name, exact=True).count))
            for name, meta in metas
            if meta
        )

    def drop(self, name: str) -> None:
        """Remove a collection if it exists. Raises StoreMismatch for a foreign one."""
        if self.call("collection_exists", checked_name(name)):
            require_own(self._mark(name), f"collection {name} in {self.url}")
            self.call("delete_collection", name)

    def close(self) -> None:
        """Close the connection to the server, or the folder."""
        self._client.close()


class QdrantCollection(VectorCollection):
    """Entries of one model; made by `QdrantStore.collection`."""

    def __init__(self, store: QdrantStore, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._store = store

    def _write(self, rows: Sequence[StoredEntry]) -> int:
        """Write the points. A killed call may have written some of them."""
        changes = 0
        for some in _parts(rows):
            points = [_point(row) for row in some]
            stored = self._store.call("retrieve", self.name, [point.id for point in points])
            payloads = {str(point.id): point.payload for point in stored}
            fresh = [point for point in points if payloads.get(point.id) != point.payload]
            for at in range(0, len(fresh), _AT_ONCE // 5):  # payloads have up to 64 KiB
                some_fresh = fresh[at : at + _AT_ONCE // 5]
                self._store.call("upsert", self.name, some_fresh, wait=True)
            changes += len(fresh)
        return changes

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        for some in _parts(ids):
            numbers = sorted(map(_number, some))
            for point in self._store.call("retrieve", self.name, numbers):
                yield point.payload["id"], point.payload["content"]

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[StoredEntry]:
        exact = not self._store.local and self._count(selection) <= _EXACT
        points = self._store.call(
            "query_points",
            self.name,
            query=query.tolist(),
            query_filter=_filter(selection),
            search_params=models.SearchParams(exact=exact, hnsw_ef=_EF),
            limit=limit,
            with_payload=True,
            with_vectors=True,
        ).points
        return [
            entry_of(
                (point.payload[name] for name in TEXTS), np.asarray(point.vector, dtype=np.float32)
            )
            for point in points
        ]

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


def _point(row: StoredEntry) -> Any:
    """Return a point. `folders` has the path and its parents, which a filter compares."""
    folders = row.path.split("/")
    payload: dict[str, Any] = {
        **{name: getattr(row, name) for name in TEXTS},
        "tag": split_tags(row.tags),
        "folders": ["/".join(folders[:length]) for length in range(1, len(folders) + 1)],
    }
    return models.PointStruct(id=_number(row.id), vector=row.vector.tolist(), payload=payload)


def _filter(selection: EntryFilter) -> Any:
    must: list[Any] = []
    if selection.project is not None:
        must.append(_any_of("project", [selection.project]))
    if selection.under:
        must.append(_any_of("folders", [selection.under]))
    for field, values in (("corpus", selection.corpora), ("language", selection.languages)):
        if values:
            must.append(_any_of(field, sorted(values)))
    must += [_any_of("tag", [tag]) for tag in sorted(selection.tags)]
    if selection.ids is not None:
        must.append(models.HasIdCondition(has_id=sorted(map(_number, selection.ids))))
    return models.Filter(must=must)


def _any_of(field: str, values: Sequence[str]) -> Any:
    return models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
