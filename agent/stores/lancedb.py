"""LanceDB in a folder: one table a collection, searched exactly.

Reading is free of locks: a table is a list of versions, and a write that was killed is not one of
them. Writers of a collection, in whatever process, take turns by a lock on a file of their own.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Set
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import lancedb
import numpy as np
import pyarrow as pa

from agent.errors import StoreUnreachable
from agent.stores.base import EVERYTHING, SCHEMA_VERSION, CollectionInfo, Entry, Match, Selection
from agent.stores.border import (
    Row,
    checked_name,
    escaped,
    escaped_selection,
    fields_of,
    inside,
    refuse_other,
    restored,
    rows_of,
    tag_mark,
    unit_queries,
)
from agent.stores.exact import cosines, is_clear, ordered
from agent.stores.meta import KEY, Meta, is_ours, read_meta

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter

T = TypeVar("T")

_TEXTS = ("id", "content", "project", "corpus", "path", "language", "tags", "payload")
_COMPARED = _TEXTS[1:]
_MORE = 16  # beside the top k, so that equal scores at the cut are seen
_FRAGMENTS = 32  # pieces of a table from which it is put together again: each costs a file to read
_KEPT = timedelta(hours=1)  # old versions, for readers that are at it
_ALL = 2**31 - 1  # rows: a limit has to be given


class LanceStore:
    """All collections of a folder. Raises StoreUnreachable where it cannot be used."""

    def __init__(self, folder: Path, reporter: Reporter) -> None:
        self._folder = folder.absolute()
        self._report = reporter
        with _translated(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Zero: each read looks for what other processes have written since.
            self._database = lancedb.connect(
                str(self._folder), read_consistency_interval=timedelta(0)
            )
            self._names()

    @property
    def url(self) -> str:
        """`lancedb://` and the folder's absolute path."""
        return f"lancedb://{self._folder}"

    def _names(self) -> list[str]:
        found = self._database.list_tables(limit=10_000)
        return sorted(found.tables)

    def collection(self, name: str, model: str, dimension: int) -> LanceCollection:
        """Open it, or make it. Raises StoreMismatch for another model or dimension."""
        checked_name(name)
        with _translated(self._folder), _turn(self._folder, name):
            if name in self._names():
                table = self._database.open_table(name)
            else:
                table = self._database.create_table(name, schema=_schema(model, dimension))
            meta = _meta(table, self._folder)
            refuse_other(meta.info(name, 0), model, dimension)
            if meta.version < SCHEMA_VERSION:
                table = _migrate(self._database, table, meta)
        return LanceCollection(table, self._folder, model, dimension)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """All of ours, by name."""
        with _translated(self._folder):
            tables = [self._database.open_table(name) for name in self._names()]
            return tuple(
                _meta(table, self._folder).info(table.name, table.count_rows())
                for table in tables
                if is_ours(_mark(table))
            )

    def drop(self, name: str) -> None:
        """Remove a collection; nothing happens where there is none. Raises StoreMismatch."""
        with _translated(self._folder), _turn(self._folder, checked_name(name)):
            if name in self._names():
                _meta(self._database.open_table(name), self._folder)
                self._database.drop_table(name)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def __enter__(self) -> LanceStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LanceCollection:
    """Entries of one model in a table; made by `LanceStore.collection`."""

    def __init__(self, table: Any, folder: Path, model: str, dimension: int) -> None:
        self._table = table
        self._folder = folder
        self._model = model
        self._dimension = dimension

    @property
    def info(self) -> CollectionInfo:
        """Name, model, dimension, and how many entries there are now."""
        return CollectionInfo(self._table.name, self._model, self._dimension, self.count())

    def upsert(self, entries: Iterable[Entry]) -> int:
        """Add or replace by id; how many were new or had changed. All of them, or none."""
        rows = rows_of(entries, self._dimension)
        if not rows:
            return 0
        differs = " OR ".join(f"target.{name} != source.{name}" for name in _COMPARED)

        def write() -> int:
            merge = self._table.merge_insert("id")
            merge.when_matched_update_all(where=differs).when_not_matched_insert_all()
            done = merge.execute(_table_of(rows.values(), self._model, self._dimension))
            if self._table.stats()["fragment_stats"]["num_fragments"] > _FRAGMENTS:
                self._table.optimize(cleanup_older_than=_KEPT)
            return int(done.num_inserted_rows + done.num_updated_rows)

        return self._writing(write)

    def _writing(self, action: Callable[[], T]) -> T:
        with _translated(self._folder), _turn(self._folder, self._table.name):
            return action()

    def contents(self, ids: Set[str]) -> Mapping[str, str]:
        """`content` by id, of those that are stored."""
        found = self._scan(Selection(ids=frozenset(map(escaped, ids))), ["id", "content"])
        return {restored(row["id"]): restored(row["content"]) for row in found.to_pylist()}

    def vectors(self, ids: Set[str]) -> Mapping[str, NDArray[np.float32]]:
        """Vectors (d,) float32 by id, of those that are stored."""
        found = self._scan(Selection(ids=frozenset(map(escaped, ids))), ["id", "vector"])
        names = found.column("id").to_pylist()
        return dict(zip(map(restored, names), _vectors(found, self._dimension), strict=True))

    def _scan(self, selection: Selection, columns: list[str]) -> Any:
        with _translated(self._folder):
            query = self._table.search().where(_condition(selection)).limit(_ALL)
            return query.select(columns).to_arrow().sort_by("id")

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
        where = _condition(escaped_selection(selection))
        if top_k < 1:
            return [() for _ in units]
        with _translated(self._folder):
            return [self._best(unit, top_k, where, at_least) for unit in units]

    def _best(
        self, query: NDArray[np.float32], top_k: int, where: str, at_least: float
    ) -> tuple[Match, ...]:
        found = [self._nearest(query, top_k, where)] if query.any() else []
        if sum(part.num_rows for part in found) < top_k and at_least <= 0:
            zero = f"({where}) AND zero" if found else where
            found.append(self._first(zero, top_k))
        if not found:
            return ()
        rows = pa.concat_tables(found)
        scores = cosines(_vectors(rows, self._dimension), query)
        names = map(restored, rows.column("id").to_pylist())
        scored = zip(map(float, scores), names, range(rows.num_rows), strict=True)
        best = ordered(scored, top_k, at_least)
        bodies = rows.take(pa.array([n for _, _, n in best], pa.int64())).to_pylist()
        return tuple(
            Match(name, score, _fields(body), restored(body["payload"]))
            for (score, name, _), body in zip(best, bodies, strict=True)
        )

    def _nearest(self, query: NDArray[np.float32], top_k: int, where: str) -> Any:
        """The nearest that are no zero vectors, with all that tie with the last."""
        limit = top_k + _MORE
        while True:
            search = self._table.search(query).distance_type("cosine")
            search = search.where(f"({where}) AND NOT zero", prefilter=True).limit(limit)
            found = search.select([*_TEXTS, "vector", "_distance"]).to_arrow()
            if is_clear([-d for d in found.column("_distance").to_pylist()], top_k, limit):
                return found.drop_columns(["_distance"])
            limit *= 4

    def _first(self, where: str, top_k: int) -> Any:
        """The first by id: of entries that all score the same."""
        query = self._table.search().where(where).limit(_ALL).select(["id"])
        names = sorted(query.to_arrow().column("id").to_pylist())[:top_k]
        chosen = _condition(Selection(ids=frozenset(names)))
        found = self._table.search().where(chosen).limit(_ALL).select([*_TEXTS, "vector"])
        return found.to_arrow()

    def delete(self, selection: Selection) -> int:
        """Remove what is selected; how many."""
        where = _condition(escaped_selection(selection))
        return self._writing(lambda: int(self._table.delete(where).num_deleted_rows))

    def count(self, selection: Selection = EVERYTHING) -> int:
        """How many entries are selected."""
        with _translated(self._folder):
            return int(self._table.count_rows(_condition(escaped_selection(selection))))


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """LanceDB raises what its parts raise: full disks, missing files and bad tables alike."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        told = " ".join(str(error).split())[:300]
        raise StoreUnreachable(
            f"vector store lancedb://{folder} cannot be used ({told}); check the folder, its"
            " permissions and the space on its disk"
        ) from None


@contextmanager
def _turn(folder: Path, name: str) -> Iterator[None]:
    """Wait for our turn to write. The lock goes with its process, however that ends."""
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _schema(model: str, dimension: int) -> Any:
    texts = [pa.field(name, pa.string(), nullable=False) for name in _TEXTS]
    vector = pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False)
    zero = pa.field("zero", pa.bool_(), nullable=False)
    mark = Meta(model=model, dimension=dimension).model_dump_json()
    return pa.schema([*texts, vector, zero], metadata={KEY: mark})


def _table_of(rows: Iterable[Row], model: str, dimension: int) -> Any:
    listed = list(rows)
    texts = [[getattr(row, name) for row in listed] for name in _TEXTS]
    flat = pa.array(np.concatenate([row.vector for row in listed]))
    vectors = pa.FixedSizeListArray.from_arrays(flat, dimension)
    zero = [not row.vector.any() for row in listed]
    return pa.table([*texts, vectors, zero], schema=_schema(model, dimension))


def _mark(table: Any) -> bytes | None:
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    return metadata.get(KEY.encode())


def _meta(table: Any, folder: Path) -> Meta:
    return read_meta(_mark(table), f"table {table.name} in {folder}")


def _migrate(database: Any, table: Any, meta: Meta) -> Any:
    """From version 0, which was never released and had no languages: the table is written anew.

    The new one takes the old one's place as its next version, or not at all.
    """
    old = table.to_arrow()
    languages = pa.array(["text"] * old.num_rows, pa.string())
    schema = _schema(meta.model, meta.dimension)
    new = old.append_column("language", languages).select(schema.names).cast(schema)
    return database.create_table(table.name, new, mode="overwrite")


def _vectors(table: Any, dimension: int) -> NDArray[np.float32]:
    chunks = [c.flatten().to_numpy(zero_copy_only=False) for c in table.column("vector").chunks]
    flat = np.concatenate(chunks) if chunks else np.empty(0)
    return flat.astype(np.float32).reshape(table.num_rows, dimension)


def _fields(row: Mapping[str, str]) -> Any:
    return fields_of(row["project"], row["corpus"], row["path"], row["language"], row["tags"])


def _condition(selection: Selection) -> str:
    """A condition in the SQL of DataFusion. The selection is escaped."""
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
    """A literal: a quote in it is doubled, nothing else means anything."""
    return "'" + text.replace("'", "''") + "'"
