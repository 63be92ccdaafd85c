"""Qdrant: in this process (`:memory:` or a folder), or a server by URL.

Qdrant has no transactions: a batch is written point by point. Only one process at a time can open a
folder. The library stores points there as pickles, so use only folders that nobody else can write
to.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from qdrant_client import models

from agent.errors import StoreError
from agent.search.stores.base import EVERYTHING, CollectionInfo, EntryFilter, Fields, VectorMatch
from agent.search.stores.engine import (
    META_KEY,
    NARROW,
    TIE_ROOM,
    BaseCollection,
    BaseStore,
    CollectionMeta,
    best_matches,
    checked_name,
    is_ours,
    read_meta,
    refuse_other,
)
from agent.search.stores.entries import StoredEntry, escaped, fields_of, joined, restored, split
from agent.search.stores.exact import is_clear
from agent.search.stores.qdrant.client import Client, open_client
from agent.search.stores.urls import is_new

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

T = TypeVar("T")

FIELDS = ("project", "corpus", "path", "language")

INDEXES: Mapping[str, str] = {
    **dict.fromkeys((*FIELDS, "tags", "folders"), "keyword"),
    "zero": "bool",
}
"""Fields that filters use. A server in strict mode rejects fields without an index."""

AT_ONCE = 500
"""Points per request: 1 MB of vectors at d = 384."""

MAX_REQUEST = 16 * 1024 * 1024
"""Maximum bytes of points per request. Servers accept 32 MiB by default."""

_NUMBER = 25  # maximum characters of a float32 in JSON, including the comma


def number_of(name: str) -> str:
    """Return the UUID for an escaped id, because Qdrant does not accept texts as ids."""
    return str(uuid.UUID(bytes=blake2b(name.encode(), digest_size=16).digest()))


def point_of(row: StoredEntry) -> Any:
    """Return a point.

    `folders` has the path and its parents, which filters compare with `under`.
    """
    payload = {
        "id": row.id,
        "content": row.content,
        "project": row.project,
        "corpus": row.corpus,
        "path": row.path,
        "language": row.language,
        "tags": list(map(escaped, split(row.tags))),
        "folders": _folders(row.path),
        "payload": row.payload,
        "zero": not row.vector.any(),
    }
    return models.PointStruct(id=number_of(row.id), vector=row.vector.tolist(), payload=payload)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in runs of at most AT_ONCE."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def by_size(points: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the points in runs of at most MAX_REQUEST bytes of JSON.

    A larger point is alone in its run.
    """
    start = size = 0
    for number, point in enumerate(points):
        # ASCII, so each character is one byte
        own = _NUMBER * len(point.vector) + len(json.dumps(point.payload))
        if size + own > MAX_REQUEST and number > start:
            yield points[start:number]
            start, size = number, 0
        size += own
    if start < len(points):
        yield points[start:]


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def fields_in(payload: Mapping[str, Any]) -> Fields:
    """Return the fields of a point."""
    project, corpus, path, language = (payload[name] for name in FIELDS)
    return fields_of(project, corpus, path, language, joined(map(restored, payload["tags"])))


def filter_of(selection: EntryFilter, *, zero: bool | None = None) -> Any:
    """Convert an escaped filter; `zero` selects zero vectors (True) or excludes them (False)."""
    must: list[Any] = []
    for field, one in (("project", selection.project), ("folders", selection.under or None)):
        if one is not None:
            must.append(_equals(field, one))
    for field, wanted in (("corpus", selection.corpora), ("language", selection.languages)):
        if wanted:
            matching = models.MatchAny(any=sorted(wanted))
            must.append(models.FieldCondition(key=field, match=matching))
    must += [_equals("tags", tag) for tag in sorted(selection.tags)]
    if selection.ids is not None:
        must.append(models.HasIdCondition(has_id=sorted(map(number_of, selection.ids))))
    if zero is not None:
        must.append(_equals("zero", zero))
    return models.Filter(must=must)


def _equals(field: str, value: str | bool) -> Any:
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))


_EF = 200  # candidates of a graph search on the server


def open_url(url: str, reporter: Reporter, api_key: str | None) -> QdrantStore:
    """Open the server, the folder or the memory of the URL."""
    return QdrantStore(open_client(url, reporter, api_key))


def list_collections(url: str, reporter: Reporter) -> tuple[CollectionInfo, ...] | None:
    """Return the collections; None for a folder, because the library would lock and rewrite it."""
    parts = urlsplit(url)
    if parts.scheme == "qdrant" and not parts.netloc:
        return () if is_new(Path(unquote(parts.path))) else None
    with open_url(url, reporter, None) as store:
        return store.collections()


class QdrantStore(BaseStore):
    """All collections of a server, a folder, or this process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def url(self) -> str:
        """Return the URL without a password."""
        return self._client.url

    def collection(self, name: str, model: str, dimension: int) -> QdrantCollection:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        checked_name(name)
        if not self._client.call("collection_exists", name):
            self._make(name, model, dimension)
        meta = read_meta(self._mark(name), f"collection {name} in {self.url}")
        refuse_other(meta.info(name, 0), model, dimension)
        self._complete(name)
        return QdrantCollection(self._client, name, model, dimension)

    def _make(self, name: str, model: str, dimension: int) -> None:
        metadata = {META_KEY: CollectionMeta(model=model, dimension=dimension).model_dump()}
        size = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        try:
            self._client.call("create_collection", name, vectors_config=size, metadata=metadata)
        except (StoreError, ValueError):
            # Another process created it first. The caller checks that collection.
            if not self._client.call("collection_exists", name):
                raise
            return
        if self._mark(name) is None:
            self._client.call("delete_collection", name)
            raise StoreError(
                f"vector store {self.url} keeps no metadata of collections; use a Qdrant of 1.16"
                " or newer"
            )

    def _complete(self, name: str) -> None:
        """Create missing indexes. The process that created the collection may have been killed."""
        if self._client.local:
            return
        there = self._client.call("get_collection", name).payload_schema
        for field, kind in INDEXES.items():
            if field not in there:
                self._client.call("create_payload_index", name, field, kind, wait=True)

    def _mark(self, name: str) -> str | None:
        found = self._client.call("get_collection", name)
        mark = (found.config.metadata or {}).get(META_KEY)
        return None if mark is None else json.dumps(mark)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return the collections of this program by name."""
        found = self._client.call("get_collections").collections
        ours = []
        for name in sorted(one.name for one in found):
            try:
                mark = self._mark(name)
                entries = _count(self._client, name, EVERYTHING) if is_ours(mark) else 0
            except StoreError:
                # Another process has dropped it in the meantime.
                if self._client.call("collection_exists", name):
                    raise
                continue
            if is_ours(mark):
                ours.append(read_meta(mark, name).info(name, entries))
        return tuple(ours)

    def drop(self, name: str) -> None:
        """Remove a collection if it exists. Raises StoreMismatch for a foreign one."""
        checked_name(name)
        if self._client.call("collection_exists", name):
            read_meta(self._mark(name), f"collection {name} in {self.url}")
            self._client.call("delete_collection", name)

    def close(self) -> None:
        """Close the connection to the server, or the folder."""
        self._client.close()


class QdrantCollection(BaseCollection):
    """Entries of one model; made by `QdrantStore.collection`."""

    def __init__(self, client: Client, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._client = client

    def _write(self, rows: Mapping[str, StoredEntry]) -> int:
        """Write the points. A killed call may have written some of them."""
        changed = 0
        for some in parts(list(rows.values())):
            points = [point_of(row) for row in some]
            known = self._payloads([point.id for point in points])
            fresh = [point for point in points if known.get(point.id) != point.payload]
            for together in by_size(fresh):
                self._client.call("upsert", self._name, together, wait=True)
            changed += len(fresh)
        return changed

    def _payloads(self, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        found = self._client.call("retrieve", self._name, names)
        return {str(point.id): point.payload or {} for point in found}

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        for point in self._points(ids, vectors=False):
            yield point.payload["id"], point.payload["content"]

    def _vectors(self, ids: Sequence[str]) -> Iterable[tuple[str, NDArray[np.float32]]]:
        for point in self._points(ids, vectors=True):
            yield point.payload["id"], np.asarray(point.vector, dtype=np.float32)

    def _points(self, ids: Sequence[str], *, vectors: bool) -> Iterator[Any]:
        for some in parts(sorted(map(number_of, ids))):
            yield from self._client.call("retrieve", self._name, some, with_vectors=vectors)

    def _search(
        self, queries: NDArray[np.float32], top_k: int, selection: EntryFilter, at_least: float
    ) -> Sequence[tuple[VectorMatch, ...]]:
        exact = self._client.local or _count(self._client, self._name, selection) <= NARROW
        return [self._best(query, top_k, selection, at_least, exact=exact) for query in queries]

    def _best(
        self,
        query: NDArray[np.float32],
        top_k: int,
        selection: EntryFilter,
        at_least: float,
        *,
        exact: bool,
    ) -> tuple[VectorMatch, ...]:
        points = self._nearest(query, top_k, selection, exact=exact) if query.any() else []
        if len(points) < top_k and at_least <= 0:
            points += self._first(top_k, filter_of(selection, zero=True if query.any() else None))
        if not points:
            return ()

        def body(number: int) -> tuple[Fields, str]:
            payload = points[number].payload
            return fields_in(payload), restored(payload["payload"])

        vectors = np.array([point.vector for point in points], dtype=np.float32)
        names = (restored(point.payload["id"]) for point in points)
        return best_matches(query, vectors, names, body, top_k, at_least)

    def _nearest(
        self, query: NDArray[np.float32], top_k: int, selection: EntryFilter, *, exact: bool
    ) -> list[Any]:
        """Return the nearest points except zero vectors, including all ties with the last."""
        limit = top_k + TIE_ROOM
        while True:
            points = self._client.call(
                "query_points",
                self._name,
                query=query.tolist(),
                query_filter=filter_of(selection, zero=False),
                search_params=None if self._client.local else _parameters(exact=exact),
                limit=limit,
                with_payload=True,
                with_vectors=True,
            ).points
            if is_clear([point.score for point in points], top_k, limit):
                return list(points)
            limit *= 4

    def _first(self, top_k: int, chosen: Any) -> list[Any]:
        """Return the first points by id, for selections in which all scores are equal."""
        names, offset = list[tuple[str, str]](), None
        while True:
            points, offset = self._client.call(
                "scroll", self._name, chosen, limit=AT_ONCE, offset=offset, with_payload=["id"]
            )
            names += [(restored(point.payload["id"]), point.id) for point in points]
            if offset is None:
                break
        first = [number for _, number in sorted(names)[:top_k]]
        return list(self._client.call("retrieve", self._name, first, with_vectors=True))

    def _delete(self, selection: EntryFilter) -> int:
        doomed = self._count(selection)
        if doomed:
            selector = models.FilterSelector(filter=filter_of(selection))
            self._client.call("delete", self._name, selector, wait=True)
        return doomed

    def _count(self, selection: EntryFilter) -> int:
        return _count(self._client, self._name, selection)


def _parameters(*, exact: bool) -> Any:
    return models.SearchParams(exact=exact, hnsw_ef=_EF)


def _count(client: Client, name: str, selection: EntryFilter) -> int:
    chosen = filter_of(selection)
    return int(client.call("count", name, chosen, exact=True).count)
