"""LanceDB in a folder (extra `lancedb`): one table for each collection, searched exactly.

Readers need no lock: a table is a list of versions, and an interrupted write does not create one. A
file lock serialises the writers of a collection across processes.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import lancedb
import numpy as np
import pyarrow as pa

from agent.errors import StoreUnreachable
from agent.search.stores.base import (
    CollectionInfo,
    EntryFilter,
    Fields,
    VectorMatch,
)
from agent.search.stores.engine import (
    META_KEY,
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
from agent.search.stores.entries import StoredEntry, fields_of, inside, restored, tag_mark
from agent.search.stores.exact import is_clear
from agent.search.stores.urls import is_new, path_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

T = TypeVar("T")

_TEXTS = ("id", "content", "project", "corpus", "path", "language", "tags", "payload")
_FIELDS = ("project", "corpus", "path", "language", "tags")
_COMPARED = _TEXTS[1:]
_FRAGMENTS = 32  # a table with more fragments is compacted, because each one is a file to read
_KEPT = timedelta(hours=1)  # old versions are kept this long for readers that use them
_ALL = 2**31 - 1  # "no limit": LanceDB requires a number of rows


def open_url(url: str, _reporter: Reporter, _api_key: str | None) -> LanceStore:
    """Open the folder of the URL."""
    return LanceStore(path_of(url))


def list_collections(url: str, _reporter: Reporter) -> tuple[CollectionInfo, ...] | None:
    """Return the collections of this program; none if the folder does not exist."""
    folder = path_of(url)
    return () if is_new(folder) else LanceStore(folder).collections()


class LanceStore(BaseStore):
    """All collections of a folder. Raises StoreUnreachable if the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        with _translated(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # With an interval of zero, each read checks for writes of other processes.
            self._database = lancedb.connect(
                str(self._folder), read_consistency_interval=timedelta(0)
            )
            self._names()

    @property
    def url(self) -> str:
        """Return `lancedb://` and the folder's absolute path."""
        return f"lancedb://{self._folder}"

    def _names(self) -> list[str]:
        found = self._database.list_tables(limit=10_000)
        return sorted(found.tables)

    def collection(self, name: str, model: str, dimension: int) -> LanceCollection:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        checked_name(name)
        with _translated(self._folder), _write_lock(self._folder, name):
            if name in self._names():
                table = self._database.open_table(name)
            else:
                table = self._database.create_table(name, schema=_schema(model, dimension))
            meta = _meta(table, self._folder)
            refuse_other(meta.info(name, 0), model, dimension)
        return LanceCollection(table, self._folder, model, dimension)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return the collections of this program by name."""
        with _translated(self._folder):
            tables = [self._database.open_table(name) for name in self._names()]
            return tuple(
                _meta(table, self._folder).info(table.name, table.count_rows())
                for table in tables
                if is_ours(_mark(table))
            )

    def drop(self, name: str) -> None:
        """Remove a collection if it exists. Raises StoreMismatch for a foreign table."""
        with _translated(self._folder), _write_lock(self._folder, checked_name(name)):
            if name in self._names():
                _meta(self._database.open_table(name), self._folder)
                self._database.drop_table(name)

    def close(self) -> None:
        """Do nothing, because nothing stays open between calls."""


class LanceCollection(BaseCollection):
    """Entries of one model in a table; made by `LanceStore.collection`."""

    def __init__(self, table: Any, folder: Path, model: str, dimension: int) -> None:
        super().__init__(table.name, model, dimension)
        self._table = table
        self._folder = folder

    def _write(self, rows: Mapping[str, StoredEntry]) -> int:
        """Write all rows in one new version of the table."""
        differs = " OR ".join(f"target.{name} != source.{name}" for name in _COMPARED)

        def write() -> int:
            merge = self._table.merge_insert("id")
            merge.when_matched_update_all(where=differs).when_not_matched_insert_all()
            done = merge.execute(_table_of(rows.values(), self._model, self._dimension))
            if self._table.stats()["fragment_stats"]["num_fragments"] > _FRAGMENTS:
                self._table.optimize(cleanup_older_than=_KEPT)
            return int(done.num_inserted_rows + done.num_updated_rows)

        return self._locked(write)

    def _locked(self, action: Callable[[], T]) -> T:
        with _translated(self._folder), _write_lock(self._folder, self._name):
            return action()

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        found = self._scan(ids, ["id", "content"])
        return [(row["id"], row["content"]) for row in found.to_pylist()]

    def _vectors(self, ids: Sequence[str]) -> Iterable[tuple[str, NDArray[np.float32]]]:
        found = self._scan(ids, ["id", "vector"])
        names = found.column("id").to_pylist()
        return zip(names, _vectors(found, self._dimension), strict=True)

    def _scan(self, ids: Sequence[str], columns: list[str]) -> Any:
        with _translated(self._folder):
            where = _condition(EntryFilter(ids=frozenset(ids)))
            query = self._table.search().where(where).limit(_ALL)
            return query.select(columns).to_arrow().sort_by("id")

    def _search(
        self, queries: NDArray[np.float32], top_k: int, selection: EntryFilter, at_least: float
    ) -> Sequence[tuple[VectorMatch, ...]]:
        where = _condition(selection)
        with _translated(self._folder):
            return [self._best(query, top_k, where, at_least) for query in queries]

    def _best(
        self, query: NDArray[np.float32], top_k: int, where: str, at_least: float
    ) -> tuple[VectorMatch, ...]:
        found = [self._nearest(query, top_k, where)] if query.any() else []
        if sum(part.num_rows for part in found) < top_k and at_least <= 0:
            zero = f"({where}) AND zero" if found else where
            found.append(self._first(zero, top_k))
        if not found:
            return ()
        rows = pa.concat_tables(found)

        def body(number: int) -> tuple[Fields, str]:
            (row,) = rows.slice(number, 1).to_pylist()
            return fields_of(*(row[name] for name in _FIELDS)), restored(row["payload"])

        names = map(restored, rows.column("id").to_pylist())
        vectors = _vectors(rows, self._dimension)
        return best_matches(query, vectors, names, body, top_k, at_least)

    def _nearest(self, query: NDArray[np.float32], top_k: int, where: str) -> Any:
        """Return the nearest entries except zero vectors, including all ties with the last."""
        limit = top_k + TIE_ROOM
        while True:
            search = self._table.search(query).distance_type("cosine")
            search = search.where(f"({where}) AND NOT zero", prefilter=True).limit(limit)
            found = search.select([*_TEXTS, "vector", "_distance"]).to_arrow()
            if is_clear([-d for d in found.column("_distance").to_pylist()], top_k, limit):
                return found.drop_columns(["_distance"])
            limit *= 4

    def _first(self, where: str, top_k: int) -> Any:
        """Return the first entries by id, for selections in which all scores are equal."""
        query = self._table.search().where(where).limit(_ALL).select(["id"])
        names = sorted(query.to_arrow().column("id").to_pylist())[:top_k]
        chosen = _condition(EntryFilter(ids=frozenset(names)))
        found = self._table.search().where(chosen).limit(_ALL).select([*_TEXTS, "vector"])
        return found.to_arrow()

    def _delete(self, selection: EntryFilter) -> int:
        where = _condition(selection)
        return self._locked(lambda: int(self._table.delete(where).num_deleted_rows))

    def _count(self, selection: EntryFilter) -> int:
        with _translated(self._folder):
            return int(self._table.count_rows(_condition(selection)))


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Translate the errors of LanceDB and its dependencies to StoreUnreachable."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        told = " ".join(str(error).split())[:300]
        raise StoreUnreachable(
            f"vector store lancedb://{folder} cannot be used ({told}); check the folder, its"
            " permissions and the space on its disk"
        ) from None


@contextmanager
def _write_lock(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock for writing.

    The lock is released when the process ends, even if it is killed.
    """
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _schema(model: str, dimension: int) -> Any:
    texts = [pa.field(name, pa.string(), nullable=False) for name in _TEXTS]
    vector = pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False)
    zero = pa.field("zero", pa.bool_(), nullable=False)
    mark = CollectionMeta(model=model, dimension=dimension).model_dump_json()
    return pa.schema([*texts, vector, zero], metadata={META_KEY: mark})


def _table_of(rows: Iterable[StoredEntry], model: str, dimension: int) -> Any:
    listed = list(rows)
    texts = [[getattr(row, name) for row in listed] for name in _TEXTS]
    flat = pa.array(np.concatenate([row.vector for row in listed]))
    vectors = pa.FixedSizeListArray.from_arrays(flat, dimension)
    zero = [not row.vector.any() for row in listed]
    return pa.table([*texts, vectors, zero], schema=_schema(model, dimension))


def _mark(table: Any) -> bytes | None:
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    return metadata.get(META_KEY.encode())


def _meta(table: Any, folder: Path) -> CollectionMeta:
    return read_meta(_mark(table), f"table {table.name} in {folder}")


def _vectors(table: Any, dimension: int) -> NDArray[np.float32]:
    chunks = [c.flatten().to_numpy(zero_copy_only=False) for c in table.column("vector").chunks]
    flat = np.concatenate(chunks) if chunks else np.empty(0)
    return flat.astype(np.float32).reshape(table.num_rows, dimension)


def _condition(selection: EntryFilter) -> str:
    """Return an SQL condition for DataFusion from an escaped filter."""
    parts = ["true"]
    if selection.project is not None:
        parts.append(f"project = {_quoted(selection.project)}")
    for column, wanted in (
        ("corpus", selection.corpora or None),
        ("language", selection.languages or None),
        ("id", selection.ids),
    ):
        if wanted is not None:
            listed = ", ".join(map(_quoted, sorted(wanted)))
            parts.append(f"{column} IN ({listed})" if wanted else "false")
    parts += [f"contains(tags, {_quoted(tag_mark(tag))})" for tag in sorted(selection.tags)]
    if selection.under:
        here = _quoted(selection.under)
        first, end = map(_quoted, inside(selection.under))
        parts.append(f"(path = {here} OR path >= {first} AND path < {end})")
    return " AND ".join(parts)


def _quoted(text: str) -> str:
    """Return an SQL literal. Quotes are doubled; no other character needs escaping."""
    return "'" + text.replace("'", "''") + "'"
