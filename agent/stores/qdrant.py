"""Qdrant: in this process (`:memory:` or a folder), or a server by URL.

Qdrant has no transactions: a batch is written point by point. A folder belongs to one process at a
time, and its library keeps points there in a form that must come from nobody else (pickle): name
folders of your own only.
"""

from __future__ import annotations

import json
from collections.abc import Collection as Set
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from qdrant_client import models

from agent.errors import StoreError
from agent.stores.base import (
    EVERYTHING,
    SCHEMA_VERSION,
    CollectionInfo,
    Entry,
    Match,
    Selection,
)
from agent.stores.border import (
    checked_name,
    escaped,
    escaped_selection,
    refuse_other,
    restored,
    rows_of,
    unit_queries,
)
from agent.stores.exact import cosines, is_clear, ordered
from agent.stores.meta import KEY, Meta, is_ours, read_meta
from agent.stores.qdrant_points import (
    AT_ONCE,
    INDEXES,
    by_size,
    fields_in,
    filter_of,
    number_of,
    parts,
    point_of,
)
from agent.stores.qdrant_requests import Client

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MORE = 16  # beside the top k, so that equal scores at the cut are seen
_NARROW = 10_000  # selected entries up to which the server is asked to compare them all
_EF = 200  # candidates that a search of the server's graph keeps


class QdrantStore:
    """All collections of a server, a folder, or this process; made by `open_qdrant`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def url(self) -> str:
        """Without a password."""
        return self._client.url

    def collection(self, name: str, model: str, dimension: int) -> QdrantCollection:
        """Open it, or make it. Raises StoreMismatch for another model or dimension."""
        checked_name(name)
        if not self._client.call("collection_exists", name):
            self._make(name, model, dimension)
        meta = read_meta(self._mark(name), f"collection {name} in {self.url}")
        refuse_other(meta.info(name, 0), model, dimension)
        self._complete(name)
        if meta.version < SCHEMA_VERSION:
            _migrate(self._client, name, meta)
        return QdrantCollection(self._client, name, model, dimension)

    def _make(self, name: str, model: str, dimension: int) -> None:
        metadata = {KEY: Meta(model=model, dimension=dimension).model_dump()}
        size = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        try:
            self._client.call("create_collection", name, vectors_config=size, metadata=metadata)
        except (StoreError, ValueError):
            # Another was quicker: what it made is looked at next.
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
        """Make the indexes that are not there: who made the collection may have been killed."""
        if self._client.local:
            return
        there = self._client.call("get_collection", name).payload_schema
        for field, kind in INDEXES.items():
            if field not in there:
                self._client.call("create_payload_index", name, field, kind, wait=True)

    def _mark(self, name: str) -> str | None:
        found = self._client.call("get_collection", name)
        mark = (found.config.metadata or {}).get(KEY)
        return None if mark is None else json.dumps(mark)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """All of ours, by name."""
        found = self._client.call("get_collections").collections
        ours = []
        for name in sorted(one.name for one in found):
            try:
                mark = self._mark(name)
                entries = _count(self._client, name, EVERYTHING) if is_ours(mark) else 0
            except StoreError:
                # Another has dropped it in the meantime.
                if self._client.call("collection_exists", name):
                    raise
                continue
            if is_ours(mark):
                ours.append(read_meta(mark, name).info(name, entries))
        return tuple(ours)

    def drop(self, name: str) -> None:
        """Remove a collection; nothing happens where there is none. Raises StoreMismatch."""
        checked_name(name)
        if self._client.call("collection_exists", name):
            read_meta(self._mark(name), f"collection {name} in {self.url}")
            self._client.call("delete_collection", name)

    def close(self) -> None:
        """Let go of the server, or of the folder."""
        self._client.close()

    def __enter__(self) -> QdrantStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class QdrantCollection:
    """Entries of one model; made by `QdrantStore.collection`."""

    def __init__(self, client: Client, name: str, model: str, dimension: int) -> None:
        self._client = client
        self._name = name
        self._model = model
        self._dimension = dimension

    @property
    def info(self) -> CollectionInfo:
        """Name, model, dimension, and how many entries there are now."""
        return CollectionInfo(self._name, self._model, self._dimension, self.count())

    def upsert(self, entries: Iterable[Entry]) -> int:
        """Add or replace by id; how many were new or had changed. Whole points, not whole calls."""
        rows = list(rows_of(entries, self._dimension).values())
        changed = 0
        for some in parts(rows):
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

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """`content` by id, of those that are stored."""
        return {
            restored(point.payload["id"]): restored(point.payload["content"])
            for point in self._points(ids, vectors=False)
        }

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """Vectors (d,) float32 by id, of those that are stored."""
        return {
            restored(point.payload["id"]): np.asarray(point.vector, dtype=np.float32)
            for point in self._points(ids, vectors=True)
        }

    def _points(self, ids: Set[str], *, vectors: bool) -> Iterator[Any]:
        names = sorted(number_of(escaped(name)) for name in ids)
        for some in parts(names):
            yield from self._client.call("retrieve", self._name, some, with_vectors=vectors)

    def search(
        self,
        queries: NDArray[np.float32],
        top_k: int,
        selection: Selection = EVERYTHING,
        *,
        at_least: float = 0.0,
    ) -> Sequence[tuple[Match, ...]]:
        """For each row of `queries` (m, d) the best of the selection; see `VectorCollection`."""
        units = unit_queries(queries, self._dimension)
        if top_k < 1:
            return [() for _ in units]
        chosen = escaped_selection(selection)
        narrow = self._client.local or _count(self._client, self._name, chosen) <= _NARROW
        return [self._best(unit, top_k, chosen, at_least, exact=narrow) for unit in units]

    def _best(
        self,
        query: NDArray[np.float32],
        top_k: int,
        selection: Selection,
        at_least: float,
        *,
        exact: bool,
    ) -> tuple[Match, ...]:
        points = self._nearest(query, top_k, selection, exact=exact) if query.any() else []
        if len(points) < top_k and at_least <= 0:
            points += self._first(top_k, filter_of(selection, zero=True if query.any() else None))
        if not points:
            return ()
        vectors = np.array([point.vector for point in points], dtype=np.float32)
        names = (restored(point.payload["id"]) for point in points)
        scores = map(float, cosines(vectors, query))
        best = ordered(zip(scores, names, range(len(points)), strict=True), top_k, at_least)
        return tuple(
            Match(name, score, fields_in(points[n].payload), restored(points[n].payload["payload"]))
            for score, name, n in best
        )

    def _nearest(
        self, query: NDArray[np.float32], top_k: int, selection: Selection, *, exact: bool
    ) -> list[Any]:
        """The nearest that are no zero vectors, with all that tie with the last."""
        limit = top_k + _MORE
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
        """The first by id: of entries that all score the same."""
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

    def delete(self, selection: Selection) -> int:
        """Remove what is selected; how many."""
        chosen = escaped_selection(selection)
        doomed = _count(self._client, self._name, chosen)
        if doomed:
            selector = models.FilterSelector(filter=filter_of(chosen))
            self._client.call("delete", self._name, selector, wait=True)
        return doomed

    def count(self, selection: Selection = EVERYTHING) -> int:
        """How many entries are selected."""
        return _count(self._client, self._name, escaped_selection(selection))


def _parameters(*, exact: bool) -> Any:
    return models.SearchParams(exact=exact, hnsw_ef=_EF)


def _count(client: Client, name: str, selection: Selection) -> int:
    chosen = filter_of(selection)
    return int(client.call("count", name, chosen, exact=True).count)


def _migrate(client: Client, name: str, meta: Meta) -> None:
    """From version 0, which was never released and had no languages."""
    missing = models.Filter(
        must=[models.IsEmptyCondition(is_empty=models.PayloadField(key="language"))]
    )
    client.call("set_payload", name, {"language": "text"}, points=missing, wait=True)
    mark = {KEY: meta.model_copy(update={"version": SCHEMA_VERSION}).model_dump()}
    client.call("update_collection", name, metadata=mark)
