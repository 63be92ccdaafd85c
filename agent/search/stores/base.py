"""The protocols of vector stores, and the values that they take and return.

A store has collections. A collection has entries of one embedding model and dimension, from any
number of projects. All engines pass the same tests (tests/unit/search/stores).
"""

from __future__ import annotations

from collections.abc import Collection as Set
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA_VERSION = 1
"""Version of the data that engines write. A store of another version is migrated or rejected."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an entry that a filter can use.

    `project` names a repository the same way on every machine. `corpus` is the value of an
    `agent.search.passages.Label`. `path` is relative to the repository, or "".
    """

    project: str
    corpus: str
    path: str = ""
    language: str = "text"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One vector with its fields and payload.

    `id` is chosen by the caller and unique within a collection. `content` is the SHA-256 (hex) of
    the embedded text: an entry with the same content keeps its stored vector, and an entry with the
    same content, fields and payload is not written again. `vector` is float32 of shape (d,),
    L2-normalised, or zeros if nothing could be embedded. `payload` is returned unchanged (at most
    64 KiB of UTF-8). `id` and `project` are at most 1 KiB.
    """

    id: str
    content: str
    vector: NDArray[np.float32]
    fields: Fields
    payload: str = ""


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Selects the entries that match all given fields.

    It is applied before the top k are chosen.

    `under` is a folder or a file. An entry must have all `tags`. `ids` None does not restrict; an
    empty set selects nothing.
    """

    project: str | None = None
    corpora: frozenset[str] = frozenset()
    languages: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    under: str = ""
    ids: frozenset[str] | None = None


EVERYTHING = EntryFilter()


@dataclass(frozen=True, slots=True)
class VectorMatch:
    """An entry that was found. `score` is `score_of(cosine)`, in [0, 1]."""

    id: str
    score: float
    fields: Fields
    payload: str = ""


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """The name, model, dimension and size of a collection. `model` is the name of an `Embedder`."""

    name: str
    model: str
    dimension: int
    entries: int
    version: int = SCHEMA_VERSION


def score_of(cosine: float) -> float:
    """Return 1 - d/2 for the cosine distance d = 1 - cosine, clipped to [0, 1].

    Scores and thresholds both use this conversion.
    """
    return min(1.0, max(0.0, (1.0 + cosine) / 2.0))


class VectorCollection(Protocol):
    """Entries of one model. Safe for use by several threads and processes at a time.

    Every method raises StoreUnreachable if the engine stays unreachable after reconnecting.
    """

    @property
    def info(self) -> CollectionInfo: ...

    def upsert(self, entries: Iterable[Entry]) -> int:
        """Add or replace entries by id; return how many were new or changed.

        Raises StoreMismatch for a vector of another dimension. Then the call writes nothing.
        """
        ...

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """Return `content` by id, for the ids that are stored."""
        ...

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """Return vectors by id, for the ids that are stored.

        Vectors may be rounded to half precision.
        """
        ...

    def search(
        self,
        queries: NDArray[np.float32],
        top_k: int,
        selection: EntryFilter = EVERYTHING,
        *,
        at_least: float = 0.0,
    ) -> Sequence[tuple[VectorMatch, ...]]:
        """Return for each row of `queries` (m, d) the best `top_k` of the selection, by (-score,
        id).

        Only scores of at least `at_least` are returned. A zero vector scores 0 against everything.
        Raises StoreMismatch for another dimension.
        """
        ...

    def delete(self, selection: EntryFilter) -> int:
        """Remove the selected entries; return how many. `EVERYTHING` empties the collection."""
        ...

    def count(self, selection: EntryFilter = EVERYTHING) -> int: ...


class VectorStore(Protocol):
    """One engine at one address. It is a context manager that closes itself."""

    @property
    def url(self) -> str:
        """Return the URL without a password."""
        ...

    def collection(self, name: str, model: str, dimension: int) -> VectorCollection:
        """Open or create a collection.

        Raises StoreMismatch if the collection has vectors of another model or dimension, or if
        another program created something of that name.
        """
        ...

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return the collections of this program by name."""
        ...

    def drop(self, name: str) -> None:
        """Remove a collection if it exists."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> VectorStore: ...

    def __exit__(self, *_: object) -> None: ...
