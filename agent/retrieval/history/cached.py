"""The commits before a snapshot's commit, read from git once each and cached.

A record of the cache file is one commit, which never changes. The file may be damaged or forged: an
invalid record counts as missing and is read again from git.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from agent.errors import RepositoryError
from agent.repository import GitRepository, Location, locate, open_repository
from agent.shared.cache import RecordStore
from agent.shared.threads import Cancelled
from agent.types.events import StageProgress

if TYPE_CHECKING:
    from agent.types.protocols import Reporter, Snapshot

DEFAULT_COMMITS = 2_500
"""Most commits that are read: years of most projects. Older code has mostly been rewritten."""

_CACHE_BYTES = 512 * 1024**2  # for one file; 2,500 commits take 2 to 8 MB
GIT_SECONDS = 60.0  # timeout of one batch, which usually takes tenths of a second


class NoHistory(Exception):
    """No commit has ancestors that can be read. The message gives the reason."""


class CachedCommit(Protocol):
    """A commit that can be stored. `complete`: git had all of its contents."""

    @property
    def commit(self) -> str:
        """The commit's id."""
        ...

    @property
    def complete(self) -> bool:
        """False in a partial clone, whose missing contents may be fetched later."""
        ...


_Commit = TypeVar("_Commit", bound=CachedCommit)


@dataclass(frozen=True, slots=True)
class CachedHistory(ABC, Generic[_Commit]):
    """Loads commits. `path` is the cache file (None: none), `limit` the most commits.

    It reads only the snapshot's commit and its ancestors. All kinds may share one cache file.
    """

    stage: ClassVar[str]  # names the progress events
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

    @abstractmethod
    def encode(self, commit: _Commit) -> bytes:
        """Return the commit as bytes."""

    @abstractmethod
    def decode(self, name: str, data: bytes) -> _Commit | None:
        """Return the commit with this id; None for invalid data."""

    def commits(self, snapshot: Snapshot) -> Sequence[_Commit]:
        """Return all ancestors, newest first. Raises NoHistory, RepositoryError, or Cancelled."""
        root = location_of(snapshot).root
        with closing(self.store()) as store, open_repository(root, seconds=GIT_SECONDS) as git:
            return self.in_order(git, store, self.ancestors(git, snapshot.commit))

    def store(self) -> RecordStore:
        """Open the cache file."""
        return RecordStore(self.path, reporter=self.reporter, limit=_CACHE_BYTES)

    def ancestors(self, git: GitRepository, head: str) -> Sequence[str]:
        """Return the ids of `head` and its ancestors. Raises NoHistory if git lacks it."""
        try:
            exists = git.resolve(head) == head
        except RepositoryError:
            exists = False
        if not exists:
            raise NoHistory("the snapshot's commit is not in the repository")
        return git.ancestors(head, self.limit)

    def in_order(
        self, git: GitRepository, store: RecordStore, names: Sequence[str]
    ) -> Sequence[_Commit]:
        """Return these commits, from the cache or from git."""
        keys = {self.key(name): name for name in names}
        commits: dict[str, _Commit] = {}
        for key, data in store.get(list(keys)).items():
            commit = self.decode(keys[key], data)
            if commit is not None:
                commits[keys[key]] = commit
        commits |= self._fresh(git, store, [name for name in names if name not in commits])
        return [commits[name] for name in names]

    def _fresh(
        self, git: GitRepository, store: RecordStore, names: Sequence[str]
    ) -> Mapping[str, _Commit]:
        """Read commits with git and store each batch at once."""
        fresh: dict[str, _Commit] = {}
        for batch in self.read(git, names):
            fresh |= {commit.commit: commit for commit in batch}
            store.put([(self.key(c.commit), self.encode(c)) for c in batch if c.complete])
            self.reporter(StageProgress(self.stage, len(fresh), len(names)))
            if self.cancel is not None and self.cancel.is_set():
                raise Cancelled
        return fresh

    def key(self, name: str) -> bytes:
        """Return the key of a record."""
        text = self.key_text(name).encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=16).digest()


def history_path(index: Path | None) -> Path | None:
    """Return the path of the cache file next to an index."""
    return None if index is None else index.with_name("history.sqlite")


def location_of(snapshot: Snapshot) -> Location:
    """Return the repository of a snapshot. Raises NoHistory for a snapshot in memory."""
    try:
        return locate(snapshot.root)
    except RepositoryError:
        raise NoHistory("the files are in no git repository") from None
