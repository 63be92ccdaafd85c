"""LanceDB in a folder (extra `lancedb`): one table for each collection, searched exactly.

Readers need no lock: a table is a list of versions, and an interrupted write does not create one. A
file lock serialises the writers of a collection across processes.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lancedb
import numpy as np
import pyarrow as pa

from agent.errors import StoreUnreachable
from agent.search.stores.base import (
    META_KEY,
    TEXTS,
    CollectionMeta,
    Entry,
    EntryFilter,
    VectorCollection,
    VectorStore,
    read_meta,
    sql_condition,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FRAGMENTS = 32  # a table with more fragments is compacted, because each one is a file to read
_RETENTION = timedelta(hours=1)  # of old versions, for readers that use them
_ALL = 2**31 - 1  # "no limit": LanceDB requires a number of rows


class LanceStore(VectorStore):
    """All collections of a folder. Raises StoreUnreachable if the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.url = f"lancedb://{self.folder}"
        with self.using():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # With an interval of zero, each read checks for writes of other processes.
            self._database = lancedb.connect(
                str(self.folder), read_consistency_interval=timedelta(0)
            )
        self._names()

    @contextmanager
    def using(self, *, writing: str = "") -> Iterator[None]:
        """Translate errors to StoreUnreachable; hold the lock of the collection `writing`."""
        try:
            if not writing:
                yield
                return
            with (self.folder / f"{writing}.lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # released when the process ends, also if killed
                yield
        except (OSError, RuntimeError, ValueError) as error:
            message = " ".join(str(error).split())[:300]
            raise StoreUnreachable(
                f"vector store {self.url} cannot be used ({message}); check the folder, its"
                " permissions and the space on its disk"
            ) from None

    def _names(self) -> list[str]:
        with self.using():
            return list(self._database.list_tables(limit=10_000).tables)

    def _meta(self, name: str) -> CollectionMeta | None:
        with self.using():
            metadata = self._database.open_table(name).schema.metadata or {}
        return read_meta(metadata.get(META_KEY.encode()))

    def _create(self, name: str, meta: CollectionMeta) -> None:
        with self.using(writing=name):
            self._database.create_table(name, schema=_schema(meta), exist_ok=True)

    def _remove(self, name: str) -> None:
        with self.using(writing=name):
            self._database.drop_table(name)

    def _opened(self, name: str, model: str, dimension: int) -> VectorCollection:
        with self.using():
            return LanceCollection(self, self._database.open_table(name), model, dimension)


class LanceCollection(VectorCollection):
    """Entries of one model in a table; made by `LanceStore.collection`."""

    def __init__(self, store: LanceStore, table: Any, model: str, dimension: int) -> None:
        super().__init__(table.name, model, dimension)
        self._store = store
        self._table = table

    def _write(self, rows: Sequence[Entry]) -> int:
        """Write all rows in one new version of the table."""
        *texts, vectors = zip(*rows, strict=True)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(vectors)), self.dimension)
        columns = [*map(list, texts), flat]
        incoming = pa.table(columns, schema=self._table.schema)
        differs = " OR ".join(f"target.{name} != source.{name}" for name in TEXTS[1:])
        with self._store.using(writing=self.name):
            merge = self._table.merge_insert("id")
            merge.when_matched_update_all(where=differs).when_not_matched_insert_all()
            done = merge.execute(incoming)
            if self._table.stats()["fragment_stats"]["num_fragments"] > _FRAGMENTS:
                self._table.optimize(cleanup_older_than=_RETENTION)
            return int(done.num_inserted_rows + done.num_updated_rows)

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        with self._store.using():
            query = self._table.search().where(f"id IN ({', '.join(map(_literal, ids))})")
            rows = query.limit(_ALL).select(["id", "content"]).to_arrow().to_pylist()
        return [(row["id"], row["content"]) for row in rows]

    def _nearest(
        self, query: NDArray[np.float32], limit: int, selection: EntryFilter
    ) -> Sequence[tuple[str, NDArray[np.float32]]]:
        with self._store.using():
            search = self._table.search(query).distance_type("cosine")
            search = search.where(_condition(selection), prefilter=True).limit(limit)
            rows = search.select(["id", "vector", "_distance"]).to_arrow().to_pylist()
        return [(row["id"], np.array(row["vector"], dtype=np.float32)) for row in rows]

    def _delete(self, selection: EntryFilter) -> int:
        with self._store.using(writing=self.name):
            return int(self._table.delete(_condition(selection)).num_deleted_rows)

    def _count(self, selection: EntryFilter) -> int:
        with self._store.using():
            return int(self._table.count_rows(_condition(selection)))


def _schema(meta: CollectionMeta) -> Any:
    texts = [pa.field(name, pa.string(), nullable=False) for name in TEXTS]
    vector = pa.field("vector", pa.list_(pa.float32(), meta.dimension), nullable=False)
    return pa.schema([*texts, vector], metadata={META_KEY: meta.model_dump_json()})


def _condition(selection: EntryFilter) -> str:
    condition, values = sql_condition(selection)
    first, *rest = condition.split("?")
    return first + "".join(f"{_literal(v)}{part}" for v, part in zip(values, rest, strict=True))


def _literal(text: str) -> str:
    """Return a literal for DataFusion, which only doubles quotes."""
    return "'" + text.replace("'", "''") + "'"
