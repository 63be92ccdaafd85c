"""What every vector store does: the values it takes and gives, and the protocol.

A store holds collections; a collection holds entries of one embedding model and one dimension, of
as many projects as its users have. All engines pass one contract suite (tests/unit/stores).
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
"""Of what all engines write. A store of another version is migrated or refused, never mixed."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What an entry can be selected by.

    `project` names a repository the same way on every machine; `corpus` is the value of an
    `agent.corpora.passages.Label`; `path` is relative to the repository, "" where there is none.
    """

    project: str
    corpus: str
    path: str = ""
    language: str = "text"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One vector and what belongs to it.

    `id` is unique within its collection and chosen by who writes. `content` is the SHA-256 (hex) of
    the text that was embedded: an entry that is stored with the same content, fields and payload is
    left as it is, and with the same content its vector stays. `vector` is float32 of shape (d,),
    L2-normalised; zeros where nothing could be embedded. `payload` is given back as it was (at most
    64 KiB of UTF-8). `id` and `project` are at most 1 KiB.
    """

    id: str
    content: str
    vector: NDArray[np.float32]
    fields: Fields
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries: those that fit all that is given. It is applied before the top k are taken.

    `under` is a folder or a file; `tags` must all be there; `ids` None does not restrict, an empty
    set selects nothing.
    """

    project: str | None = None
    corpora: frozenset[str] = frozenset()
    languages: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    under: str = ""
    ids: frozenset[str] | None = None


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that was found. `score` is `score_of(cosine)`, in [0, 1]."""

    id: str
    score: float
    fields: Fields
    payload: str = ""


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """What a collection was made for. `model` is the name of an `Embedder`."""

    name: str
    model: str
    dimension: int
    entries: int
    version: int = SCHEMA_VERSION


def score_of(cosine: float) -> float:
    """1 - d/2 of the cosine distance d = 1 - cosine: in [0, 1], also against rounding errors.

    The one conversion: scores and thresholds both use it.
    """
    return min(1.0, max(0.0, (1.0 + cosine) / 2.0))


class VectorCollection(Protocol):
    """Entries of one model. Safe for threads and for several processes at a time.

    Every method raises StoreUnreachable when the engine is gone and connecting again did not help.
    """

    @property
    def info(self) -> CollectionInfo: ...

    def upsert(self, entries: Iterable[Entry]) -> int:
        """Add or replace by id; how many were new or had changed.

        Raises StoreMismatch for a vector of another dimension; then nothing of the call is written.
        """
        ...

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """`content` by id, of those that are stored."""
        ...

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """Vectors by id, of those that are stored; within half precision of what was written."""
        ...

    def search(
        self,
        queries: NDArray[np.float32],
        top_k: int,
        selection: Selection = EVERYTHING,
        *,
        at_least: float = 0.0,
    ) -> Sequence[tuple[Match, ...]]:
        """For each row of `queries` (m, d) the best `top_k` of the selection, by (-score, id).

        Only scores of `at_least` and more. A zero vector scores 0, whatever it is compared with.
        Raises StoreMismatch for another dimension.
        """
        ...

    def delete(self, selection: Selection) -> int:
        """Remove what is selected; how many. `EVERYTHING` empties the collection."""
        ...

    def count(self, selection: Selection = EVERYTHING) -> int: ...


class VectorStore(Protocol):
    """One engine at one address. Close it; it is a context manager too."""

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        ...

    def collection(self, name: str, model: str, dimension: int) -> VectorCollection:
        """Open it, or make it.

        Raises StoreMismatch where it holds vectors of another model or dimension, or where
        something that is not ours stands in its place.
        """
        ...

    def collections(self) -> tuple[CollectionInfo, ...]:
        """All of ours, by name."""
        ...

    def drop(self, name: str) -> None:
        """Remove a collection; nothing happens where there is none."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> VectorStore: ...

    def __exit__(self, *_: object) -> None: ...
