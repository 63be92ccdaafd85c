"""What all vector stores share: their values, the checks of entries, and the order of results.

A store has collections; a collection has entries of one model and dimension, of any projects. An
engine implements the methods that begin with an underscore, for escaped texts and unit vectors.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection as Set
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ValidationError

from agent.errors import StoreError, StoreMismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA_VERSION = 2
"""Version of the data that engines write. A store of another version is refused."""

META_KEY = "patchshot"
"""Key of this program's metadata in an engine. A collection without it is of another program."""

_MAX_NAME = 1024  # bytes of an id and of a project: all engines can index such texts
_TIE_ROOM = 16  # results requested beyond the top k, to find equal scores at the cut
_NEAR = 1e-5  # bound of the rounding error of a float32 product
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_PASSWORD = re.compile(r"(?<=//)([^/@:]*):.*@")  # an unquoted password may contain an @


class Entry(NamedTuple):
    """One vector, float32 (d,). An entry of zeros is not stored.

    `id` is unique in a collection. `content` is the SHA-256 (hex) of the embedded text: an entry
    whose texts are unchanged is not written again. `project` is the same on every machine.
    """

    id: str
    content: str
    project: str
    corpus: str
    vector: NDArray[np.float32]


TEXTS = Entry._fields[:-1]


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Selects the entries that match all given fields, before the top k are chosen."""

    project: str | None = None
    corpus: str | None = None


EVERYTHING = EntryFilter()


class VectorMatch(NamedTuple):
    """An entry that matches a query. `score` is the cosine, in [-1, 1]."""

    id: str
    score: float


def shown_url(url: str) -> str:
    """Return the URL for messages, in one line, without its password and parameters."""
    shown = re.sub(r"\?.*", "?...", _PASSWORD.sub(r"\1@", url), flags=re.DOTALL)
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def _checked_name(name: str) -> str:
    """Return the name of a collection if every engine accepts it. Raises StoreError otherwise."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"collection name {name!r}: use up to 48 letters, digits, dots, dashes and underscores,"
            " a letter or digit first"
        )
    return name


# ------------------------------------------------------------------------------------ collections


class CollectionMeta(BaseModel, frozen=True, extra="forbid"):
    """What an engine keeps of a collection beside its entries. `model` names an `Embedder`."""

    model: str
    dimension: int
    version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection and the number of its entries."""

    name: str
    model: str
    dimension: int
    entries: int
    version: int = SCHEMA_VERSION


def read_meta(mark: str | bytes | None) -> CollectionMeta | None:
    """Parse metadata; None if it is not of this program."""
    try:
        return None if mark is None else CollectionMeta.model_validate_json(mark)
    except ValidationError:
        return None


class VectorCollection(ABC):
    """Entries of one model, for several threads and processes."""

    def __init__(self, name: str, model: str, dimension: int) -> None:
        self.name = name
        self.model = model
        self.dimension = dimension

    def upsert(self, entries: Iterable[Entry]) -> int:
        """Add or replace entries by id; return how many were new or changed.

        Raises StoreMismatch for a vector of another dimension, and StoreError for one that is not
        finite or a text that is too long. Then the call writes nothing.
        """
        rows = {row.id: row for entry in entries if (row := _stored(entry, self.dimension))}
        return self._write([rows[name] for name in sorted(rows)]) if rows else 0

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """Return `content` by id, for the ids that are stored."""
        pairs = self._contents(sorted(map(_escaped, ids))) if ids else ()
        return {_restored(name): _restored(content) for name, content in pairs}

    def search(
        self, query: NDArray[np.float32], top_k: int, selection: EntryFilter = EVERYTHING
    ) -> tuple[VectorMatch, ...]:
        """Return the best `top_k` of the selection for a query (d,), ordered by (-score, id).

        A query of zeros has no results. Raises StoreMismatch for another dimension.
        """
        unit = _unit_query(query, self.dimension)
        if unit is None or top_k <= 0:
            return ()
        limit, chosen = top_k + _TIE_ROOM, _escaped_filter(selection)
        while True:  # score the engine's candidates again in float64, all ties at the cut included
            rows = self._nearest(unit, limit, chosen)
            if not rows:
                return ()
            cosines = np.stack([vector for _, vector in rows]).astype(np.float64)
            # Each row is summed separately: a matrix product may differ for two equal rows.
            scores = (cosines * unit).sum(axis=1).clip(-1.0, 1.0).tolist()
            matches = [VectorMatch(_restored(r[0]), s) for r, s in zip(rows, scores, strict=True)]
            matches.sort(key=lambda match: (-match.score, match.id))
            if len(rows) < limit or matches[top_k - 1].score - matches[-1].score > _NEAR:
                return tuple(matches[:top_k])
            limit *= 4

    def delete(self, selection: EntryFilter) -> int:
        """Remove the selected entries; return how many. `EVERYTHING` empties the collection."""
        return self._delete(_escaped_filter(selection))

    def count(self, selection: EntryFilter = EVERYTHING) -> int:
        """Return how many entries are selected."""
        return self._count(_escaped_filter(selection))

    @abstractmethod
    def _write(self, rows: Sequence[Entry]) -> int:
        """Add or replace rows, in order of ids; return how many were new or changed."""

    @abstractmethod
    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Return id and content for the ids that are stored."""

    @abstractmethod
    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[tuple[str, NDArray[np.float32]]]:
        """Return id and vector of the `limit` nearest selected entries to a unit query (d,)."""

    @abstractmethod
    def _delete(self, selection: EntryFilter) -> int: ...

    @abstractmethod
    def _count(self, selection: EntryFilter) -> int: ...


class VectorStore(ABC):
    """One engine at one address. It is a context manager that closes itself."""

    url: str  # without a password

    def collection(self, name: str, model: str, dimension: int) -> VectorCollection:
        """Open or create a collection. Raises StoreMismatch for one of another model or program."""
        if _checked_name(name) not in self._names():
            self._create(name, CollectionMeta(model=model, dimension=dimension))
        meta = self._own(name)
        if meta.version != SCHEMA_VERSION:
            raise StoreMismatch(
                f"collection {name} is of version {meta.version}, this program reads"
                f" {SCHEMA_VERSION}; run agent index --drop {name}"
            )
        if (meta.model, meta.dimension) != (model, dimension):
            raise StoreMismatch(
                f"collection {name} holds vectors of {meta.model} ({meta.dimension} numbers each),"
                f" not of {model} ({dimension}); use that model, or drop the collection and index"
                " again"
            )
        return self._opened(name, model, dimension)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return the collections of this program by name."""
        infos = []
        for name in sorted(self._names()):
            if (meta := self._meta(name)) is not None:
                count = self._opened(name, meta.model, meta.dimension).count()
                infos.append(CollectionInfo(name, meta.model, meta.dimension, count, meta.version))
        return tuple(infos)

    def drop(self, name: str) -> None:
        """Remove a collection if it exists. Raises StoreMismatch for one of another program."""
        if _checked_name(name) in self._names():
            self._own(name)
            self._remove(name)

    def _own(self, name: str) -> CollectionMeta:
        meta = self._meta(name)
        if meta is None:
            raise StoreMismatch(f"collection {name} in {self.url} is not ours; name another store")
        return meta

    @abstractmethod
    def _names(self) -> Iterable[str]:
        """Return the names of all collections, those of other programs too."""

    @abstractmethod
    def _meta(self, name: str) -> CollectionMeta | None:
        """Return the metadata of a collection; None if it is of another program."""

    @abstractmethod
    def _create(self, name: str, meta: CollectionMeta) -> None:
        """Create a collection, unless another process has just created it."""

    @abstractmethod
    def _remove(self, name: str) -> None: ...

    @abstractmethod
    def _opened(self, name: str, model: str, dimension: int) -> VectorCollection: ...

    def close(self) -> None:  # noqa: B027  (not every engine keeps something open)
        """Close the connection or the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -------------------------------------------------------------------- conditions and stored texts


def sql_condition(selection: EntryFilter) -> tuple[str, list[str]]:
    """Return an SQL condition with a `?` for each value."""
    parts, values = ["1 = 1"], []
    for column, text in (("project", selection.project), ("corpus", selection.corpus)):
        if text is not None:
            parts.append(f"{column} = ?")
            values.append(text)
    return " AND ".join(parts), values


# Some engines reject or cut texts at NUL and at lone surrogates (undecodable file names), so these
# are escaped behind SUBSTITUTE, a control character for this purpose.
_REPLACED = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def _escaped(text: str) -> str:
    return _REPLACED.sub(lambda match: f"\x1a{ord(match[0]):04x}", text)


def _restored(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _stored(entry: Entry, dimension: int) -> Entry | None:
    """Return the entry with escaped texts and a vector of length 1; None for a vector of zeros."""
    *texts, vector = entry
    if max(len(t.encode("utf-8", "surrogatepass")) for t in (entry.id, entry.project)) > _MAX_NAME:
        raise StoreError(f"entry {entry.id[:80]!r}: id or project of more than 1 KiB; shorten it")
    vector = np.asarray(vector, dtype=np.float32)
    if vector.shape != (dimension,):
        raise StoreMismatch(
            f"entry {entry.id!r}: a vector of shape {vector.shape} in a collection of dimension"
            f" {dimension}; embed with the collection's model, or name another store"
        )
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(length):
        raise StoreError(f"entry {entry.id!r}: a vector that is not finite; embed it again")
    unit = (vector / length).astype(np.float32) if length else None
    return None if unit is None else Entry._make((*map(_escaped, texts), unit))


def _unit_query(query: NDArray[np.float32], dimension: int) -> NDArray[np.float32] | None:
    """Return the query (d,) normalised; None if it is zero or not finite."""
    row = np.asarray(query, dtype=np.float32)
    if row.shape != (dimension,):
        raise StoreMismatch(
            f"a query of shape {row.shape} against vectors of dimension {dimension};"
            " embed with the collection's model, or index again"
        )
    length = np.linalg.norm(row.astype(np.float64))
    return (row / length).astype(np.float32) if np.isfinite(length) and length > 0 else None


def _escaped_filter(selection: EntryFilter) -> EntryFilter:
    return EntryFilter(
        None if selection.project is None else _escaped(selection.project),
        None if selection.corpus is None else _escaped(selection.corpus),
    )
