"""The history of a snapshot's commit, cached commit by commit and as a table of arrays. An invalid
record counts as missing. Older paths are mapped to those of the snapshot.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from pydantic import TypeAdapter

from agent.errors import RepositoryError
from agent.repository import GitRepository, locate_repository, open_repository
from agent.retrieval.history.commits import CommitFacts, read_commits
from agent.retrieval.index import Terms
from agent.shared.cache import RecordStore, compress, expand
from agent.shared.terminal import inert
from agent.shared.workers import Cancelled
from agent.types.events import Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter, Snapshot

DEFAULT_COMMITS = 2_500
"""Most commits that are read: years of most projects. Older code has mostly been rewritten."""

_CACHE_BYTES = 512 * 1024**2  # for one file; 2,500 commits take 2 to 8 MB
_MOST_BYTES = 256 * 1024**2  # of one record or table once expanded
_GIT_SECONDS = 60.0  # timeout of one batch, which usually takes tenths of a second


class NoHistory(Exception):
    """No commit has ancestors that can be read. The message gives the reason."""


class _CachedCommit(Protocol):
    @property
    def commit(self) -> str: ...


_Commit = TypeVar("_Commit", bound=_CachedCommit)


@dataclass(frozen=True, slots=True)
class CachedHistory(ABC, Generic[_Commit]):
    """Loads commits. `path` is the cache file (None: none), `limit` the most commits."""

    stage: ClassVar[str]  # names the progress events
    record: ClassVar[type]  # the commits of this kind
    path: Path | None
    reporter: Reporter
    limit: int = DEFAULT_COMMITS
    cancel: threading.Event | None = None

    @abstractmethod
    def key_text(self, commit: str) -> str:
        """Return the name of a commit's record; it changes when older records become invalid."""

    @abstractmethod
    def read(self, git: GitRepository, names: Sequence[str]) -> Iterator[Sequence[_Commit]]:
        """Yield batches of these commits in their order. Raises RepositoryError."""

    def encode(self, commit: _Commit) -> bytes:
        """Return the commit as compressed JSON."""
        return compress(_adapter(self.record).dump_json(commit))

    def decode(self, name: str, data: bytes) -> _Commit | None:
        """Return the commit with this id; None for invalid data."""
        try:
            commit: _Commit = _adapter(self.record).validate_json(expand(data, _MOST_BYTES))
        except ValueError:  # raised by `expand` or by pydantic
            return None
        return commit if commit.commit == name else None

    def commits(self, snapshot: Snapshot) -> Sequence[_Commit]:
        """Return all ancestors, newest first. Raises NoHistory, RepositoryError, or Cancelled."""
        with self.open(snapshot) as (store, git):
            return self.in_order(git, store, self.ancestors(git, snapshot.commit))

    @contextmanager
    def open(self, snapshot: Snapshot) -> Iterator[tuple[RecordStore, GitRepository]]:
        """Open the cache file and the repository. Raises NoHistory for a snapshot in memory."""
        try:
            root = locate_repository(snapshot.root).root
        except RepositoryError:
            raise NoHistory("the files are in no git repository") from None
        with (
            RecordStore(self.path, reporter=self.reporter, limit=_CACHE_BYTES) as store,
            open_repository(root, seconds=_GIT_SECONDS) as git,
        ):
            yield store, git

    def ancestors(self, git: GitRepository, head: str) -> Sequence[str]:
        """Return the ids of `head` and its ancestors. Raises NoHistory if git lacks it."""
        try:
            git.resolve(head)
        except RepositoryError:
            raise NoHistory("the snapshot's commit is not in the repository") from None
        return git.ancestors(head, self.limit)

    def in_order(
        self, git: GitRepository, store: RecordStore, names: Sequence[str]
    ) -> Sequence[_Commit]:
        """Return these commits, from the cache or from git; each batch from git is stored."""
        keys = {self.key(name): name for name in names}
        commits: dict[str, _Commit] = {}
        for key, data in store.get(list(keys)).items():
            commit = self.decode(keys[key], data)
            if commit is not None:
                commits[commit.commit] = commit
        missing = [name for name in names if name not in commits]
        done = 0
        for batch in self.read(git, missing):
            commits |= {commit.commit: commit for commit in batch}
            store.put([(self.key(c.commit), self.encode(c)) for c in batch])
            done += len(batch)
            self.reporter(StageProgress(self.stage, done, len(missing)))
            if self.cancel is not None and self.cancel.is_set():
                raise Cancelled
        return [commits[name] for name in names]

    def key(self, name: str) -> bytes:
        """Return the key of a record."""
        text = self.key_text(name).encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=16).digest()


def history_path(index: Path | None) -> Path | None:
    """Return the path of the cache file next to an index."""
    return None if index is None else index.with_name("history.sqlite")


_SUBJECT_WEIGHT = 2  # relative to the body: the subject names the change, the body gives reasons
_MAX_SUBJECT = 100  # characters shown in notes


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """`c` commits, newest first. int64: `sizes` (c,) in files; words (w,) of messages:
    `vocabulary[word]` (uint64 term hashes, ascending) is `word_count` times in `word_commit`;
    changed files `touch_*` (t,) and functions `function_*` (u,), by rising commit. `lengths`
    float64 (c,) in words.
    """

    commits: tuple[str, ...]
    subjects: tuple[str, ...]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    lengths: NDArray[np.float64]
    vocabulary: NDArray[np.uint64]
    word_commit: NDArray[np.int64]
    word: NDArray[np.int64]
    word_count: NDArray[np.float64]
    touch_commit: NDArray[np.int64]
    touch_path: NDArray[np.int64]
    function_commit: NDArray[np.int64]
    function_path: NDArray[np.int64]
    function_name: NDArray[np.int64]


class CommitHistory(CachedHistory[CommitFacts]):
    """Loads messages, changed files and changed functions."""

    __slots__ = ()
    stage = "history"
    record = CommitFacts

    def key_text(self, commit: str) -> str:
        """Return the name of a commit's record."""
        return f"history {_FORMAT}|commit|{commit}"

    def read(self, git: GitRepository, names: Sequence[str]) -> Iterator[Sequence[CommitFacts]]:
        """Read commits with git."""
        return read_commits(git, names)

    def table(self, snapshot: Snapshot) -> HistoryTable:
        """Return the table; an empty one without a repository on disk or if git fails."""
        try:
            return self._table(snapshot)
        except NoHistory:
            return build_table(())
        except RepositoryError as error:
            self.reporter(Notice(f"going on without the commit history: {error}", "warning"))
            return build_table(())

    def _table(self, snapshot: Snapshot) -> HistoryTable:
        with self.open(snapshot) as (store, git):
            ends = ",".join(sorted(git.shallow_ends()))  # a later fetch brings more commits
            key = self.key(f"{snapshot.commit}|table {self.limit}|{ends}")
            stored = store.get([key]).get(key)
            table = None if stored is None else decode_table(stored)
            if table is None:
                names = self.ancestors(git, snapshot.commit)
                table = build_table(self.in_order(git, store, names))
                store.put([(key, encode_table(table))])
            return table


def build_table(commits: Sequence[CommitFacts]) -> HistoryTable:
    """Build the table of these commits, which are newest first."""
    terms = Terms()
    today = dict[str, str]()  # names before the commits so far -> today's names
    paths, names = dict[str, int](), dict[str, int]()
    lengths: list[int] = []
    hashes: list[int] = []
    words: list[tuple[int, ...]] = []
    touches: list[tuple[int, ...]] = []
    functions: list[tuple[int, ...]] = []
    for number, commit in enumerate(commits):
        counts = terms.count_hashes(f"{commit.subject}\n" * _SUBJECT_WEIGHT + commit.body)
        hashes += counts
        words += [(number, count) for count in counts.values()]
        lengths.append(sum(counts.values()))
        for touch in commit.touches:
            path = paths.setdefault(today.get(touch.path, touch.path), len(paths))
            touches.append((number, path))
            for name in touch.functions:
                functions.append((number, path, names.setdefault(name, len(names))))
        # One update for all renames: two files may have swapped their names.
        today.update([(old, today.get(new, new)) for old, new in commit.renames])
    vocabulary, word = np.unique(np.array(hashes, dtype=np.uint64), return_inverse=True)
    word_commit, word_count = _columns(words, 2)
    return HistoryTable(
        tuple(commit.commit for commit in commits),
        tuple(printable(commit.subject) for commit in commits),
        tuple(paths),
        tuple(names),
        np.array([commit.size for commit in commits], dtype=np.int64),
        np.array(lengths, dtype=np.float64),
        vocabulary,
        word_commit,
        word,
        word_count.astype(np.float64),
        *_columns(touches, 2),
        *_columns(functions, 3),
    )


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> Iterator[NDArray[np.int64]]:
    return iter(np.array(rows, dtype=np.int64).reshape(-1, width).T.copy())


def printable(subject: str) -> str:
    """Return the subject as one line without control characters: it may hold escape sequences."""
    clean = inert(subject, " ", kept="")
    return clean if len(clean) <= _MAX_SUBJECT else clean[: _MAX_SUBJECT - 1] + "…"


_FORMAT = 3
"""Increase when the facts, terms or the layout change; older records are then ignored."""

_DTYPES: Mapping[str, type[np.generic]] = {
    "sizes": np.int64, "lengths": np.float64, "vocabulary": np.uint64, "word_commit": np.int64,
    "word": np.int64, "word_count": np.float64, "touch_commit": np.int64, "touch_path": np.int64,
    "function_commit": np.int64, "function_path": np.int64, "function_name": np.int64,
}  # fmt: skip
_Texts = tuple[str, ...]
_Head = tuple[_Texts, _Texts, _Texts, _Texts, tuple[int, ...]]
"""Commits, subjects, paths, names, and the size of each array."""


@cache
def _adapter(record: Any) -> TypeAdapter[Any]:
    return TypeAdapter(record)


def _stored_type(column: str) -> str:
    return "<u8" if column == "vocabulary" else "<u4"


def encode_table(table: HistoryTable) -> bytes:
    """Return the table compressed: length of the JSON, JSON of the texts and sizes, arrays."""
    arrays = [getattr(table, name).astype(_stored_type(name)) for name in _DTYPES]
    texts = (table.commits, table.subjects, table.paths, table.names)
    head = _adapter(_Head).dump_json((*texts, tuple(array.size for array in arrays)))
    columns = (array.tobytes() for array in arrays)
    return compress(b"".join((len(head).to_bytes(4, "little"), head, *columns)))


def decode_table(data: bytes) -> HistoryTable | None:
    """Return the table; None if `data` is not a valid one."""
    try:
        data = expand(data, _MOST_BYTES)
        at = 4 + int.from_bytes(data[:4], "little")
        *texts, sizes = _adapter(_Head).validate_json(data[4:at], strict=True)
        arrays: dict[str, Any] = {}
        for (name, dtype), size in zip(_DTYPES.items(), sizes, strict=True):
            stored = np.frombuffer(data, _stored_type(name), size, at)
            at += stored.nbytes
            arrays[name] = stored.astype(dtype)
    except ValueError:
        return None
    table = HistoryTable(*texts, **arrays)
    return table if at == len(data) and _is_sound(table) else None


def _is_sound(table: HistoryTable) -> bool:
    """Whether related arrays have equal lengths and every index is in range."""
    commits = len(table.commits)
    same = (
        {commits, len(table.subjects), table.sizes.size, table.lengths.size},
        {table.word_commit.size, table.word.size, table.word_count.size},
        {table.touch_commit.size, table.touch_path.size},
        {table.function_commit.size, table.function_path.size, table.function_name.size},
    )
    below = (
        (commits, (table.word_commit, table.touch_commit, table.function_commit)),
        (table.vocabulary.size, (table.word,)),
        (len(table.paths), (table.touch_path, table.function_path)),
        (len(table.names), (table.function_name,)),
    )
    return all(len(sizes) == 1 for sizes in same) and all(
        array.max(initial=-1) < limit for limit, arrays in below for array in arrays
    )
