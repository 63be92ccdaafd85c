"""The cached history of a snapshot's commit, for any kind of record per commit.

A cache file holds one record per commit, which never changes, and one table of all ancestors of a
commit. A new commit therefore costs one new record and table, and a warm query reads one record
without starting git. The file may be damaged or forged: an invalid record counts as missing and is
read again from git.
"""

from __future__ import annotations

import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from agent.errors import RepositoryError
from agent.repository import GitRepository, Location, locate, open_repository
from agent.shared.cache import RecordStore
from agent.shared.threads import Cancelled
from agent.types.events import Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter, Snapshot

DEFAULT_COMMITS = 2_500
"""Most commits that are read: years of most projects. Older code has mostly been rewritten."""

_CACHE_BYTES = 512 * 1024**2  # for one file; 2,500 commits take 2 to 8 MB
_GIT_SECONDS = 60.0  # timeout of one batch, which usually takes tenths of a second

_Commit = TypeVar("_Commit")
_Table = TypeVar("_Table")
_Key = TypeVar("_Key", int, str, bytes)


class NoHistory(Exception):
    """No commit has ancestors that can be read. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class HistoryKind(Generic[_Commit, _Table]):
    """How one kind of history is read from git, combined into a table, and stored.

    `stage` names the progress events. `key(what, commit)` names a record; it must change when older
    records become invalid. `read` yields batches of commits (no merges) in their order and raises
    RepositoryError. `name` returns a commit's id, and whether git had all of its contents (a
    partial clone lacks some). `encode` omits the id. `decode` and `decode_table` return None for
    invalid data. `build_table` takes commits newest first.
    """

    stage: str
    key: Callable[[str, str], str]
    read: Callable[[GitRepository, Sequence[str]], Iterator[Sequence[_Commit]]]
    name: Callable[[_Commit], tuple[str, bool]]
    encode: Callable[[_Commit], bytes]
    decode: Callable[[str, bytes], _Commit | None]
    build_table: Callable[[Sequence[_Commit]], _Table]
    encode_table: Callable[[_Table], bytes]
    decode_table: Callable[[bytes], _Table | None]


@dataclass(frozen=True, slots=True)
class CachedHistory(ABC, Generic[_Commit, _Table]):
    """Loads tables and commits. `path` is the cache file (None: none), `limit` the most commits.

    It reads only the snapshot's commit and its ancestors. All kinds may share one cache file.
    """

    path: Path | None
    reporter: Reporter
    limit: int = DEFAULT_COMMITS
    cancel: threading.Event | None = None

    @property
    @abstractmethod
    def kind(self) -> HistoryKind[_Commit, _Table]:
        """What is read of each commit."""

    def table(self, snapshot: Snapshot) -> _Table:
        """Return the table; an empty one if the snapshot's commit is in no repository on disk.

        If git fails, it reports one Notice and returns an empty table. Raises Cancelled soon after
        `cancel` is set.
        """
        try:
            with self._loading(snapshot) as loading:
                return loading.table(snapshot.root)
        except NoHistory:
            return self.kind.build_table(())
        except RepositoryError as error:
            self.reporter(Notice(f"going on without the commit history: {error}", "warning"))
            return self.kind.build_table(())

    def commits(self, snapshot: Snapshot) -> Sequence[_Commit]:
        """Return all ancestors, newest first. Raises NoHistory, RepositoryError, or Cancelled."""
        with self._loading(snapshot) as loading:
            return loading.commits(snapshot.root)

    def some(self, snapshot: Snapshot, names: Iterable[str]) -> Mapping[str, _Commit]:
        """Return the ancestors with these ids. Raises NoHistory, RepositoryError, or Cancelled."""
        with self._loading(snapshot) as loading:
            return loading.some(snapshot.root, tuple(names))

    def _loading(self, snapshot: Snapshot) -> _Loading[_Commit, _Table]:
        store = RecordStore(self.path, reporter=self.reporter, limit=_CACHE_BYTES)
        return _Loading(self, snapshot.commit, store)


def history_path(index: Path | None) -> Path | None:
    """Return the path of the cache file next to an index."""
    return None if index is None else index.with_name("history.sqlite")


@dataclass(frozen=True, slots=True)
class _Loading(Generic[_Commit, _Table]):
    """One load with an open cache file."""

    history: CachedHistory[_Commit, _Table]
    head: str
    store: RecordStore

    def __enter__(self) -> _Loading[_Commit, _Table]:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def table(self, root: Path) -> _Table:
        location = _location(root)
        known = self._known_table() if location.is_surely_whole else None
        return self._read_table(location) if known is None else known

    def commits(self, root: Path) -> Sequence[_Commit]:
        with open_repository(_location(root).root, seconds=_GIT_SECONDS) as git:
            return self._in_order(git, self._ancestors(git))

    def some(self, root: Path, names: Sequence[str]) -> Mapping[str, _Commit]:
        found = self._cached(names)
        missing = [name for name in names if name not in found]
        if missing:
            with open_repository(_location(root).root, seconds=_GIT_SECONDS) as git:
                found.update(self._fresh(git, missing))
        return found

    def _read_table(self, location: Location) -> _Table:
        with open_repository(location.root, seconds=_GIT_SECONDS) as git:
            whole = not git.shallow_ends()
            names = self._ancestors(git)
            known = self._known_table() if whole else None
            if known is not None:
                return known
            commits = self._in_order(git, names)
        kind = self.history.kind
        table = kind.build_table(commits)
        # An incomplete table is not stored, because a later fetch may bring the missing contents.
        if whole and all(kind.name(commit)[1] for commit in commits):
            self.store.put([(self._table_key, kind.encode_table(table))])
        return table

    def _known_table(self) -> _Table | None:
        data = self.store.get([self._table_key]).get(self._table_key)
        return None if data is None else self.history.kind.decode_table(data)

    def _ancestors(self, git: GitRepository) -> Sequence[str]:
        try:
            known = git.resolve(self.head) == self.head
        except RepositoryError:
            known = False
        if not known:
            raise NoHistory("the snapshot's commit is not in the repository")
        return git.ancestors(self.head, self.history.limit)

    def _in_order(self, git: GitRepository, names: Sequence[str]) -> Sequence[_Commit]:
        found = self._cached(names)
        found.update(self._fresh(git, [name for name in names if name not in found]))
        return [found[name] for name in names]

    def _cached(self, names: Sequence[str]) -> dict[str, _Commit]:
        keys = {self._key("commit", name): name for name in names}
        found: dict[str, _Commit] = {}
        for key, data in self.store.get(list(keys)).items():
            commit = self.history.kind.decode(keys[key], data)
            if commit is not None:
                found[keys[key]] = commit
        return found

    def _fresh(self, git: GitRepository, names: Sequence[str]) -> Mapping[str, _Commit]:
        """Read commits with git and store each batch at once."""
        kind, fresh = self.history.kind, dict[str, _Commit]()
        for batch in kind.read(git, names):
            records: list[tuple[bytes, bytes]] = []
            for commit in batch:
                name, complete = kind.name(commit)
                fresh[name] = commit
                if complete:
                    records.append((self._key("commit", name), kind.encode(commit)))
            self.store.put(records)
            self.history.reporter(StageProgress(kind.stage, len(fresh), len(names)))
            if self.history.cancel is not None and self.history.cancel.is_set():
                raise Cancelled
        return fresh

    @property
    def _table_key(self) -> bytes:
        return self._key(f"table {self.history.limit}", self.head)

    def _key(self, what: str, name: str) -> bytes:
        text = self.history.kind.key(what, name)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _location(root: Path) -> Location:
    try:
        return locate(root)
    except RepositoryError:  # a snapshot in memory
        raise NoHistory("the files are in no git repository") from None


# ------------------------------------------------------------------------------------------- layout

_HEADER = struct.Struct("<4sI")  # magic, length of the JSON
DIGEST_BYTES = 32
_MAX_UINT16 = 0xFFFF


def number_of(numbers: dict[_Key, int], key: _Key) -> int:
    """Return the number of a key; a new key has the next number."""
    return numbers.setdefault(key, len(numbers))


def columns_of(rows: Sequence[tuple[int, ...]], width: int) -> Iterator[NDArray[np.int64]]:
    """Return the columns of rows of integers as arrays."""
    return iter(np.array(rows, dtype=np.int64).reshape(-1, width).T.copy())


class StrictModel(BaseModel):
    """The texts of a record. The file may be forged, so no value is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Column(NamedTuple):
    """An array's stored type (values too large for uint16 are clipped) and type in memory."""

    stored: str
    memory: type[np.generic] = np.int64


def to_columns(value: object, columns: Mapping[str, Column]) -> list[Any]:
    """Return the attributes of `value` that `columns` name, in their stored types."""
    arrays = []
    for name, column in columns.items():
        array = getattr(value, name)
        if column.stored == "<u2":
            array = np.minimum(array, _MAX_UINT16)
        arrays.append(array.astype(column.stored))
    return arrays


def pack(magic: bytes, texts: StrictModel, arrays: Sequence[Any], digests: bytes = b"") -> bytes:
    """Return magic, length of the JSON, JSON, digests, arrays (little-endian) as bytes."""
    head = texts.model_dump_json().encode("utf-8")
    parts = (_HEADER.pack(magic, len(head)), head, digests, *(array.tobytes() for array in arrays))
    return b"".join(parts)


def unpack(magic: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Return the JSON and the bytes after it. Raises struct.error or ValueError."""
    found, length = _HEADER.unpack_from(data)
    if found != magic:
        raise ValueError("another format")
    end = _HEADER.size + length
    return data[_HEADER.size : end], data[end:]


def from_columns(
    raw: bytes, columns: Mapping[str, Column], lengths: Sequence[int]
) -> dict[str, Any]:
    """Return the arrays by name. Raises ValueError if the number of bytes is wrong."""
    arrays: dict[str, Any] = {}
    at = 0
    for (name, column), length in zip(columns.items(), lengths, strict=True):
        array = np.frombuffer(raw, column.stored, length, at)
        at += array.nbytes
        arrays[name] = array.astype(column.memory)
    if at != len(raw):
        raise ValueError("bytes left over")
    return arrays


def split_digests(raw: bytes) -> tuple[bytes, ...]:
    """Split bytes into digests of DIGEST_BYTES each."""
    return tuple(raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES))


def are_consistent(same: Sequence[set[int]], below: Sequence[tuple[int, Sequence[Any]]]) -> bool:
    """Whether the lengths in each set are equal and every index is below its limit."""
    return all(len(sizes) == 1 for sizes in same) and all(
        array.max(initial=-1) < limit for limit, arrays in below for array in arrays
    )
