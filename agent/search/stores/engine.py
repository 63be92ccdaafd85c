"""Base classes of all engines: they check values and store the metadata of a collection.

An engine derives from `BaseStore` and `BaseCollection` and implements the methods that begin with
an underscore. These methods only receive escaped texts and unit vectors (see `entries`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Set
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import StoreError, StoreMismatch
from agent.search.stores.base import (
    EVERYTHING,
    SCHEMA_VERSION,
    CollectionInfo,
    Entry,
    EntryFilter,
    Fields,
    VectorMatch,
)
from agent.search.stores.entries import (
    StoredEntry,
    escaped,
    escaped_filter,
    restored,
    rows_of,
    unit_queries,
)
from agent.search.stores.exact import cosines, ordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

META_KEY = "patchshot"
"""Key of this program's metadata in an engine.

A collection without it belongs to another program.
"""

TIE_ROOM = 16
"""Results requested beyond the top k, to find equal scores at the cut."""

NARROW = 10_000
"""Up to this many selected entries, an engine compares all of them instead of using its index."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


class BaseStore(ABC):
    """A `VectorStore` as a context manager that closes itself."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection or the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BaseCollection(ABC):
    """A `VectorCollection` that checks, escapes and normalises all values for its engine."""

    def __init__(self, name: str, model: str, dimension: int) -> None:
        self._name = name
        self._model = model
        self._dimension = dimension

    @property
    def info(self) -> CollectionInfo:
        """Return the name, model, dimension and current number of entries."""
        return CollectionInfo(self._name, self._model, self._dimension, self.count())

    def upsert(self, entries: Iterable[Entry]) -> int:
        """See `VectorCollection.upsert`."""
        rows = rows_of(entries, self._dimension)
        return self._write(rows) if rows else 0

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """See `VectorCollection.contents`."""
        found = self._contents(sorted(map(escaped, ids)))
        return {restored(name): restored(content) for name, content in found}

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """See `VectorCollection.vectors`."""
        found = self._vectors(sorted(map(escaped, ids)))
        return {restored(name): vector for name, vector in found}

    def search(
        self,
        queries: NDArray[np.float32],
        top_k: int,
        selection: EntryFilter = EVERYTHING,
        *,
        at_least: float = 0.0,
    ) -> Sequence[tuple[VectorMatch, ...]]:
        """See `VectorCollection.search`."""
        units = unit_queries(queries, self._dimension)
        if top_k < 1:
            return [() for _ in units]
        return self._search(units, top_k, escaped_filter(selection), at_least)

    def delete(self, selection: EntryFilter) -> int:
        """See `VectorCollection.delete`."""
        return self._delete(escaped_filter(selection))

    def count(self, selection: EntryFilter = EVERYTHING) -> int:
        """See `VectorCollection.count`."""
        return self._count(escaped_filter(selection))

    def _refuse_other(self, model: str, dimension: int) -> None:
        """Raise StoreMismatch if the stored collection has another model or dimension."""
        refuse_other(CollectionInfo(self._name, model, dimension, 0), self._model, self._dimension)

    @abstractmethod
    def _write(self, rows: Mapping[str, StoredEntry]) -> int:
        """Add or replace rows by id; return how many were new or changed."""

    @abstractmethod
    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Return id and content for the ids that are stored."""

    @abstractmethod
    def _vectors(self, ids: Sequence[str]) -> Iterable[tuple[str, NDArray[np.float32]]]:
        """Return id and vector (d,) for the ids that are stored."""

    @abstractmethod
    def _search(
        self, queries: NDArray[np.float32], top_k: int, selection: EntryFilter, at_least: float
    ) -> Sequence[tuple[VectorMatch, ...]]:
        """Return the best of the selection for each of the unit or zero `queries` (m, d)."""

    @abstractmethod
    def _delete(self, selection: EntryFilter) -> int:
        """Remove the selected entries; return how many."""

    @abstractmethod
    def _count(self, selection: EntryFilter) -> int:
        """Return how many entries are selected."""


def best_matches(
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    names: Iterable[str],
    body: Callable[[int], tuple[Fields, str]],
    top_k: int,
    at_least: float,
) -> tuple[VectorMatch, ...]:
    """Score candidates by their stored `vectors` (n, d), and return the best in order.

    `names` are the unescaped ids; `body` returns fields and payload for an index below n.
    """
    scored = zip(map(float, cosines(vectors, query)), names, range(len(vectors)), strict=True)
    best = ordered(scored, top_k, at_least)
    return tuple(VectorMatch(name, score, *body(number)) for score, name, number in best)


class CollectionMeta(BaseModel):
    """The metadata of a collection, as JSON for engines that store it beside the collection."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    dimension: int
    version: int = SCHEMA_VERSION

    def info(self, name: str, entries: int) -> CollectionInfo:
        """Return the metadata together with a name and a count."""
        return CollectionInfo(name, self.model, self.dimension, entries, self.version)


def read_meta(text: str | bytes | None, location: str) -> CollectionMeta:
    """Parse metadata. Raises StoreMismatch for foreign metadata or a newer version."""
    try:
        if text is None:
            raise StoreMismatch(_foreign(location))
        meta = CollectionMeta.model_validate_json(text)
    except ValidationError:
        raise StoreMismatch(_foreign(location)) from None
    if meta.version > SCHEMA_VERSION:
        raise StoreMismatch(
            f"{location} is of version {meta.version}, this program knows {SCHEMA_VERSION};"
            " upgrade patchshot, or name another collection"
        )
    return meta


def is_ours(text: str | bytes | None) -> bool:
    """Whether the metadata belongs to this program, in any version."""
    try:
        return text is not None and CollectionMeta.model_validate_json(text) is not None
    except ValidationError:
        return False


def _foreign(location: str) -> str:
    return f"{location} is not ours; name another collection, or another store"


def checked_name(name: str) -> str:
    """Return the name if every engine accepts it. Raises StoreError otherwise."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"collection name {name!r}: use up to 48 letters, digits, dots, dashes and underscores,"
            " a letter or digit first"
        )
    return name


def refuse_other(found: CollectionInfo, model: str, dimension: int) -> None:
    """Raise StoreMismatch for a collection of another model or dimension, or of an older
    version.
    """
    if found.version < SCHEMA_VERSION:
        raise StoreMismatch(
            f"collection {found.name} is of version {found.version}, which this program no longer"
            f" reads; run agent index --drop {found.name} and index again"
        )
    if (found.model, found.dimension) != (model, dimension):
        raise StoreMismatch(
            f"collection {found.name} holds vectors of {found.model} ({found.dimension} numbers"
            f" each), not of {model} ({dimension}); use that model, or drop the collection and"
            " index again"
        )
