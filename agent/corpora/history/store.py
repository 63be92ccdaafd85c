"""From a snapshot to the hunks of its ancestors: cached where known, read with git where not.

As in `agent.retrieval.history_store` there are two kinds of records: the hunks of one commit, which
never change, so that a new commit costs only itself, and the finished table of a commit's
ancestors, so that a warm query reads one record and starts no git. SQLite keeps the file whole when
several processes write it or one is killed; what is not exactly as it should be counts as unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from agent.corpora.history.records import (
    FORMAT,
    decode_commit,
    decode_table,
    encode_commit,
    encode_table,
)
from agent.corpora.history.table import (
    CountedHunks,
    HunkTable,
    build_table,
    count_hunks,
    without_secrets,
)
from agent.errors import RepositoryError
from agent.events import Notice, StageProgress
from agent.repository.git import GitRepository, open_repository
from agent.repository.hunks import HunkFilter, read_hunks
from agent.repository.location import Location, locate
from agent.retrieval.identifiers import Terms
from agent.retrieval.pool import Cancelled
from agent.retrieval.store import RecordStore

if TYPE_CHECKING:
    from agent.protocols import Reporter, Snapshot

STAGE = "hunks"

DEFAULT_COMMITS = 2_500
"""Commits looked at, as in the history of messages; their hunks are read in ten seconds."""

_CACHE_BYTES = 512 * 1024**2  # 2,500 commits take about 5 MB, and a table 3 MB
_GIT_SECONDS = 60.0  # a batch takes tenths of a second


@dataclass(frozen=True, slots=True)
class HunkHistory:
    """Loads hunks. `path` is the cache file (None: none), `limit` the most commits read.

    Nothing is looked at but ancestors of the snapshot's commit, and that commit itself, which the
    snapshot holds already. Secrets are masked before anything is kept.
    """

    path: Path | None
    reporter: Reporter
    limit: int = DEFAULT_COMMITS
    chosen: HunkFilter = field(default_factory=HunkFilter)
    cancel: threading.Event | None = None

    def table(self, snapshot: Snapshot) -> HunkTable:
        """The table; an empty one where the snapshot's commit is in no repository on disk.

        A failure of git is one Notice and an empty table. Raises `pool.Cancelled` soon after
        `cancel` is set.
        """
        try:
            with self._store() as store:
                return _Loading(self, snapshot.commit, store).table(snapshot.root)
        except NoHistory:
            return build_table(())
        except RepositoryError as error:
            self.reporter(Notice(f"going on without the commit history: {error}", "warning"))
            return build_table(())

    def commits(self, snapshot: Snapshot) -> Sequence[CountedHunks]:
        """The hunks of all ancestors with their texts, newest first.

        Raises NoHistory or RepositoryError with the reason where there are none, and
        `pool.Cancelled`.
        """
        with self._store() as store:
            return _Loading(self, snapshot.commit, store).commits(snapshot.root)

    def some(self, snapshot: Snapshot, commits: Iterable[str]) -> Mapping[str, CountedHunks]:
        """The hunks of these ancestors, which a table has named; what is gone is left out.

        Raises RepositoryError, `pool.Cancelled`.
        """
        with self._store() as store:
            return _Loading(self, snapshot.commit, store).some(snapshot.root, tuple(commits))

    def _store(self) -> RecordStore:
        return RecordStore(self.path, reporter=self.reporter, limit=_CACHE_BYTES)


class NoHistory(Exception):
    """There is no commit to look behind; the message says why."""


def hunks_path(index: Path | None) -> Path | None:
    """The cache file that belongs beside an index."""
    return None if index is None else index.with_name("hunks.sqlite")


def _location(root: Path) -> Location:
    try:
        return locate(root)
    except RepositoryError:  # a snapshot in memory
        raise NoHistory("the files are in no git repository") from None


@dataclass(frozen=True, slots=True)
class _Loading:
    history: HunkHistory
    commit: str
    store: RecordStore

    def table(self, root: Path) -> HunkTable:
        location = _location(root)
        known = self._known_table() if location.is_surely_whole else None
        if known is not None:
            return known
        with open_repository(location.root, seconds=_GIT_SECONDS) as git:
            whole = not git.shallow_ends()
            commits = self._ancestors(git)
            known = self._known_table() if whole else None
            if known is not None:
                return known
            counted = self._counted(git, commits)
        table = build_table(counted)
        # Where something was missing, a later fetch may bring it.
        if whole and all(one.commit.complete for one in counted):
            self.store.put([(self._table_key, encode_table(table))])
        return table

    def commits(self, root: Path) -> Sequence[CountedHunks]:
        with open_repository(_location(root).root, seconds=_GIT_SECONDS) as git:
            return self._counted(git, self._ancestors(git))

    def some(self, root: Path, commits: Sequence[str]) -> Mapping[str, CountedHunks]:
        found = self._kept(commits)
        missing = [commit for commit in commits if commit not in found]
        if missing:
            with open_repository(_location(root).root, seconds=_GIT_SECONDS) as git:
                found.update(self._fresh(git, missing))
        return found

    def _ancestors(self, git: GitRepository) -> Sequence[str]:
        try:
            known = git.resolve(self.commit) == self.commit
        except RepositoryError:
            known = False
        if not known:
            raise NoHistory("the snapshot's commit is not in the repository")
        return git.ancestors(self.commit, self.history.limit)

    def _counted(self, git: GitRepository, commits: Sequence[str]) -> Sequence[CountedHunks]:
        found = self._kept(commits)
        found.update(self._fresh(git, [commit for commit in commits if commit not in found]))
        return [found[commit] for commit in commits]

    def _kept(self, commits: Sequence[str]) -> dict[str, CountedHunks]:
        keys = {self._key("commit", commit): commit for commit in commits}
        found: dict[str, CountedHunks] = {}
        for key, data in self.store.get(list(keys)).items():
            counted = decode_commit(keys[key], data)
            if counted is not None:
                found[keys[key]] = counted
        return found

    def _fresh(self, git: GitRepository, missing: Sequence[str]) -> Mapping[str, CountedHunks]:
        """Hunks read with git, kept as they come."""
        fresh: dict[str, CountedHunks] = {}
        terms = Terms()
        for batch in read_hunks(git, missing, self.history.chosen):
            counted = [count_hunks(without_secrets(one), terms) for one in batch]
            fresh.update((one.commit.commit, one) for one in counted)
            self.store.put(
                [
                    (self._key("commit", one.commit.commit), encode_commit(one))
                    for one in counted
                    if one.commit.complete
                ]
            )
            self.history.reporter(StageProgress(STAGE, len(fresh), len(missing)))
            if self.history.cancel is not None and self.history.cancel.is_set():
                raise Cancelled
        return fresh

    def _known_table(self) -> HunkTable | None:
        data = self.store.get([self._table_key]).get(self._table_key)
        return None if data is None else decode_table(data)

    @property
    def _table_key(self) -> bytes:
        return self._key(f"table {self.history.limit}", self.commit)

    def _key(self, kind: str, commit: str) -> bytes:
        patterns = "\0".join(self.history.chosen.patterns)
        text = f"hunks {FORMAT}|{kind}|{commit}|{patterns}"
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
