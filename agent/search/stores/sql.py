"""What the stores in SQL share: a table of collections, each with a key, and rows of entries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from agent.search.stores.base import (
    EVERYTHING,
    CollectionInfo,
    EntryFilter,
    VectorCollection,
    VectorStore,
    checked_name,
)

T = TypeVar("T")
_Store = TypeVar("_Store", bound="SqlStore")


class SqlStore(VectorStore):
    """All collections of a file or a database."""

    table: str  # the table of collections, with at least `key`, `name`, `model` and `dimension`
    kind: type[SqlCollection[Any]]

    @abstractmethod
    def run(self, action: Callable[[Any], T], *, writing: bool = False) -> T:
        """Run `action` with a connection in one transaction."""

    def execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        """Execute a statement with a `?` for each value; return the cursor."""
        return connection.execute(statement, values)

    def collection(self, name: str, model: str, dimension: int) -> SqlCollection[Any]:
        """Open or create a collection. Raises StoreMismatch for another model or dimension."""
        collection = self.kind(self, checked_name(name), model, dimension)
        self.run(collection.make, writing=True)
        return collection

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Return all collections by name."""

        def read(connection: Any) -> tuple[CollectionInfo, ...]:
            query = f"SELECT name, model, dimension FROM {self.table} ORDER BY name"
            infos = []
            for name, model, dimension in self.execute(connection, query).fetchall():
                own = self.kind(self, name, model, dimension)
                count = own.counted(connection, own.make(connection), EVERYTHING)
                infos.append(CollectionInfo(name, model, dimension, count))
            return tuple(infos)

        return self.run(read)

    def drop(self, name: str) -> None:
        """Remove a collection if it exists."""

        def remove(connection: Any) -> None:
            query = f"SELECT key FROM {self.table} WHERE name = ?"
            for (key,) in self.execute(connection, query, [name]).fetchall():
                self.execute(connection, f"DELETE FROM {self.table} WHERE key = ?", [key])
                self.drop_entries(connection, key)

        self.run(remove, writing=True)

    @abstractmethod
    def drop_entries(self, connection: Any, key: int) -> None:
        """Remove the entries of a collection."""


class SqlCollection(VectorCollection, Generic[_Store]):
    """Entries of one model; made by `SqlStore.collection`."""

    def __init__(self, store: _Store, name: str, model: str, dimension: int) -> None:
        super().__init__(name, model, dimension)
        self._store = store

    def make(self, connection: Any) -> int:
        """Return the key of the collection. Create it if it is missing. Raises StoreMismatch."""
        key = self._key(connection)
        return self.create(connection) if key is None else key

    @abstractmethod
    def create(self, connection: Any) -> int:
        """Create the collection and return its key."""

    @abstractmethod
    def rows_of(self, key: int, selection: EntryFilter) -> tuple[str, list[Any]]:
        """Return `TABLE WHERE CONDITION` for the selected entries, and the values in it."""

    def counted(self, connection: Any, key: int, selection: EntryFilter) -> int:
        """Return how many entries are selected."""
        rows, values = self.rows_of(key, selection)
        query = f"SELECT COUNT(*) FROM {rows}"
        return int(self._store.execute(connection, query, values).fetchone()[0])

    def _key(self, connection: Any) -> int | None:
        query = f"SELECT key, model, dimension FROM {self._store.table} WHERE name = ?"
        row = self._store.execute(connection, query, [self.name]).fetchone()
        if row is None:
            return None
        CollectionInfo(self.name, row[1], row[2], 0).require(self.model, self.dimension)
        return int(row[0])

    def _run(self, action: Callable[[Any, int], T], empty: T, *, writing: bool = False) -> T:
        """Run `action` with the key; return `empty` if the collection was dropped."""

        def act(connection: Any) -> T:
            key = self._key(connection)
            return empty if key is None else action(connection, key)

        return self._store.run(act, writing=writing)

    def _contents(self, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
        def read(connection: Any, key: int) -> list[tuple[str, str]]:
            rows, values = self.rows_of(key, EntryFilter(ids=frozenset(ids)))
            query = f"SELECT id, content FROM {rows}"
            pairs: list[tuple[str, str]] = self._store.execute(connection, query, values).fetchall()
            return pairs

        return self._run(read, [])

    def _delete(self, selection: EntryFilter) -> int:
        def remove(connection: Any, key: int) -> int:
            rows, values = self.rows_of(key, selection)
            return int(self._store.execute(connection, f"DELETE FROM {rows}", values).rowcount)

        return self._run(remove, 0, writing=True)

    def _count(self, selection: EntryFilter) -> int:
        return self._run(lambda connection, key: self.counted(connection, key, selection), 0)
