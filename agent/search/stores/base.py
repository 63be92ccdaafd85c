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
from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import StoreError, StoreMismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA_VERSION = 1
"""Version of the data that engines write. A store of another version is refused."""

META_KEY = "patchshot"
"""Key of this program's metadata in an engine. A collection without it is of another program."""

_MAX_PAYLOAD = 64 * 1024  # bytes of UTF-8
_MAX_NAME = 1024  # bytes of an id and of a project: all engines can index such texts
_TIE_ROOM = 16  # results requested beyond the top k, to find equal scores at the cut
_NEAR = 1e-5  # bound of the rounding error of a float32 product
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_PASSWORD = re.compile(r"(?<=//)([^/@:]*):.*@")  # an unquoted password may contain an @


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an entry. `project` names a repository the same way on every machine."""

    project: str
    corpus: str
    path: str = ""
    language: str = "text"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One vector, float32 (d,), with its fields and payload. An entry of zeros is not stored.

    `id` is unique in a collection. `content` is the SHA-256 (hex) of the embedded text: an entry of
    the same content, fields and payload is not written again.
    """

    id: str
    content: str
    vector: NDArray[np.float32]
    fields: Fields
    payload: str = ""


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Selects the entries that match all given fields, before the top k are chosen.

    An entry must have all `tags`. `ids` None does not restrict; an empty set selects nothing.
    """

    project: str | None = None
    corpora: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    ids: frozenset[str] | None = None


EVERYTHING = EntryFilter()


@dataclass(frozen=True, slots=True)
class VectorMatch:
    """An entry that matches a query. `score` is `score_of(cosine)`, in [0, 1]."""

    id: str
    score: float
    fields: Fields
    payload: str = ""


class StoredEntry(NamedTuple):
    """An entry with escaped texts, joined tags and a `vector` (d,) of length 1."""

    id: str
    content: str
    project: str
    corpus: str
    path: str
    language: str
    tags: str
    payload: str
    vector: NDArray[np.float32]


TEXTS = StoredEntry._fields[:-1]


def score_of(cosine: float) -> float:
    """Return (1 + cosine) / 2, clipped to [0, 1]. Scores and thresholds use this conversion."""
    return min(1.0, max(0.0, (1.0 + cosine) / 2.0))


def shown_url(url: str) -> str:
    """Return the URL for messages, in one line, without its password and parameters."""
    shown = re.sub(r"\?.*", "?...", _PASSWORD.sub(r"\1@", url), flags=re.DOTALL)
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def checked_name(name: str) -> str:
    """Return the name of a collection if every engine accepts it. Raises StoreError otherwise."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"collection name {name!r}: use up to 48 letters, digits, dots, dashes and underscores,"
            " a letter or digit first"
        )
    return name


# ------------------------------------------------------------------------------------ collections


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """The name, model, dimension and size of a collection. `model` is the name of an `Embedder`."""

    name: str
    model: str
    dimension: int
    entries: int
    version: int = SCHEMA_VERSION


class CollectionMeta(BaseModel):
    """What an engine keeps of a collection beside its entries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    dimension: int
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
        self,
        queries: NDArray[np.float32],
        top_k: int,
        selection: EntryFilter = EVERYTHING,
        *,
        at_least: float = 0.0,
    ) -> Sequence[tuple[VectorMatch, ...]]:
        """Return for each row of `queries` (m, d) the best `top_k` of the selection.

        They are ordered by (-score, id) and have scores of at least `at_least`. A query of zeros
        has no results. Raises StoreMismatch for another dimension.
        """
        chosen = _escaped_filter(selection)
        return [
            self._best(unit, top_k, chosen, at_least) if top_k > 0 and unit.any() else ()
            for unit in _unit_queries(queries, self.dimension)
        ]

    def delete(self, selection: EntryFilter) -> int:
        """Remove the selected entries; return how many. `EVERYTHING` empties the collection."""
        return self._delete(_escaped_filter(selection))

    def count(self, selection: EntryFilter = EVERYTHING) -> int:
        """Return how many entries are selected."""
        return self._count(_escaped_filter(selection))

    def _best(
        self, unit: NDArray[np.float32], top_k: int, selection: EntryFilter, at_least: float
    ) -> tuple[VectorMatch, ...]:
        """Score the engine's candidates again in float64, all ties at the cut included."""
        limit = top_k + _TIE_ROOM
        while True:
            rows = self._nearest(unit, limit, selection)
            if not rows:
                return ()
            cosines = np.stack([row.vector for row in rows]).astype(np.float64)
            # Each row is summed separately: a matrix product may differ for two equal rows.
            scores = [score_of(c) for c in (cosines * unit).sum(axis=1).tolist()]
            names = [_restored(row.id) for row in rows]
            order = sorted(range(len(rows)), key=lambda at: (-scores[at], names[at]))
            if len(rows) < limit or scores[order[top_k - 1]] - scores[order[-1]] > _NEAR:
                break
            limit *= 4
        return tuple(
            VectorMatch(names[at], scores[at], _fields(rows[at]), _restored(rows[at].payload))
            for at in order[:top_k]
            if scores[at] >= at_least
        )

    @abstractmethod
    def _write(self, rows: Sequence[StoredEntry]) -> int:
        """Add or replace rows, in order of ids; return how many were new or changed."""

    @abstractmethod
    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Return id and content for the ids that are stored."""

    @abstractmethod
    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[StoredEntry]:
        """Return the `limit` nearest entries of the selection to a unit query (d,)."""

    @abstractmethod
    def _delete(self, selection: EntryFilter) -> int: ...

    @abstractmethod
    def _count(self, selection: EntryFilter) -> int: ...


class VectorStore(ABC):
    """One engine at one address. It is a context manager that closes itself."""

    url: str  # without a password

    def collection(self, name: str, model: str, dimension: int) -> VectorCollection:
        """Open or create a collection. Raises StoreMismatch for one of another model or program."""
        if checked_name(name) not in self._names():
            self._create(name, CollectionMeta(model=model, dimension=dimension))
        meta = self._own(name)
        if meta.version != SCHEMA_VERSION:
            raise StoreMismatch(
                f"collection {name} is of version {meta.version}, this program reads"
                f" {SCHEMA_VERSION}; name another one, or run agent index --drop {name}"
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
        if checked_name(name) in self._names():
            self._own(name)
            self._remove(name)

    def _own(self, name: str) -> CollectionMeta:
        meta = self._meta(name)
        if meta is None:
            raise StoreMismatch(
                f"collection {name} in {self.url} is not ours; name another collection, or another"
                " store"
            )
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


def sql_condition(selection: EntryFilter, has_tag: str) -> tuple[str, list[str]]:
    """Return an SQL condition with a `?` for each value; `has_tag` tests `tags` for its `?`."""
    parts, values = ["1 = 1"], []
    if selection.project is not None:
        parts.append("project = ?")
        values.append(selection.project)
    for column, texts in (("corpus", selection.corpora or None), ("id", selection.ids)):
        if texts is not None:
            parts.append(f"{column} IN ({', '.join('?' * len(texts))})" if texts else "1 = 0")
            values += sorted(texts)
    parts += [has_tag] * len(selection.tags)
    values += [f"\x1f{tag}\x1f" for tag in sorted(selection.tags)]
    return " AND ".join(parts), values


# Some engines reject or cut texts at NUL and at lone surrogates (undecodable file names), so these
# are escaped behind SUBSTITUTE, a control character for this purpose. UNIT SEPARATOR joins tags.
_REPLACED = re.compile("[\x00\x1a\x1f\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def _escaped(text: str) -> str:
    return _REPLACED.sub(lambda match: f"\x1a{ord(match[0]):04x}", text)


def _restored(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def split_tags(tags: str) -> list[str]:
    """Return the escaped tags that were joined."""
    return tags[1:-1].split("\x1f") if tags else []


def _fields(row: StoredEntry) -> Fields:
    texts = (row.project, row.corpus, row.path, row.language)
    project, corpus, path, language = map(_restored, texts)
    return Fields(project, corpus, path, language, tuple(map(_restored, split_tags(row.tags))))


def _stored(entry: Entry, dimension: int) -> StoredEntry | None:
    """Return the checked entry; None for a vector of zeros. Raises StoreError, StoreMismatch."""
    fields, payload = entry.fields, _escaped(entry.payload)
    if max(len(t.encode("utf-8", "surrogatepass")) for t in (entry.id, fields.project)) > _MAX_NAME:
        raise StoreError(f"entry {entry.id[:80]!r}: id or project of more than 1 KiB; shorten it")
    if len(payload.encode()) > _MAX_PAYLOAD:
        raise StoreError(f"entry {entry.id!r}: a payload of more than 64 KiB; store less of it")
    vector = np.asarray(entry.vector, dtype=np.float32)
    if vector.shape != (dimension,):
        raise StoreMismatch(
            f"entry {entry.id!r}: a vector of shape {vector.shape} in a collection of dimension"
            f" {dimension}; embed with the collection's model, or name another collection"
        )
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(length):
        raise StoreError(f"entry {entry.id!r}: a vector that is not finite; embed it again")
    if not length:
        return None
    texts = (entry.id, entry.content, fields.project, fields.corpus, fields.path, fields.language)
    tags = "\x1f".join(map(_escaped, fields.tags))
    joined = f"\x1f{tags}\x1f" if fields.tags else ""
    unit = (vector / length).astype(np.float32)
    return StoredEntry._make((*map(_escaped, texts), joined, payload, unit))


def _unit_queries(queries: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return the queries (m, d) normalised; rows of zeros and not finite ones become zeros."""
    rows = np.atleast_2d(np.asarray(queries, dtype=np.float32))
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise StoreMismatch(
            f"queries of shape {np.shape(queries)} against vectors of dimension {dimension};"
            " embed with the collection's model, or index again"
        )
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    return np.where(usable, rows / np.where(usable, lengths, 1.0), 0.0).astype(np.float32)


def _escaped_filter(selection: EntryFilter) -> EntryFilter:
    return EntryFilter(
        project=None if selection.project is None else _escaped(selection.project),
        corpora=frozenset(map(_escaped, selection.corpora)),
        tags=frozenset(map(_escaped, selection.tags)),
        ids=None if selection.ids is None else frozenset(map(_escaped, selection.ids)),
    )
