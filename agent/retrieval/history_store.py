"""From a snapshot to its history table: cached where known, read with git where not.

Two kinds of records: what one commit did, which never changes, and the finished table of a commit's
ancestors. A warm query reads one record and starts no git. Records may come from a damaged or
foreign cache; what is not exactly as it should be counts as unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import RepositoryError
from agent.events import Notice, StageProgress
from agent.repository.git import GitRepository, open_repository
from agent.repository.history import CommitFacts, read_commits
from agent.repository.location import Location, locate
from agent.retrieval.history_records import (
    FORMAT,
    decode_facts,
    decode_table,
    encode_facts,
    encode_table,
)
from agent.retrieval.history_table import HistoryTable, build_table
from agent.retrieval.pool import Cancelled
from agent.retrieval.store import RecordStore

if TYPE_CHECKING:
    from agent.protocols import Reporter, Snapshot

STAGE = "history"

DEFAULT_COMMITS = 2_500
"""Commits looked at: years of most projects. What is older has mostly been rewritten since."""

_CACHE_BYTES = 256 * 1024**2  # 2,500 commits take about 2 MB
_GIT_SECONDS = 60.0  # a batch takes tenths of a second


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """Loads history tables. `path` is the cache file (None: none), `limit` the most commits read.

    Nothing is looked at but ancestors of the snapshot's commit, and that commit itself.
    """

    path: Path | None
    reporter: Reporter
    limit: int = DEFAULT_COMMITS
    cancel: threading.Event | None = None

    def load(self, snapshot: Snapshot) -> HistoryTable:
        """The table; an empty one where the snapshot's commit is in no repository on disk.

        A failure of git is one Notice and an empty table. Raises `pool.Cancelled` soon after
        `cancel` is set.
        """
        location = _location(snapshot)
        if location is None:
            return build_table(())
        with RecordStore(self.path, reporter=self.reporter, limit=_CACHE_BYTES) as store:
            loading = _Loading(self, snapshot.commit, store)
            known = loading.known_table() if location.is_surely_whole else None
            try:
                return known or loading.read(location)
            except RepositoryError as error:
                self.reporter(Notice(f"going on without the commit history: {error}", "warning"))
                return build_table(())


def history_path(index: Path | None) -> Path | None:
    """The cache file that belongs beside an index."""
    return None if index is None else index.with_name("history.sqlite")


def _location(snapshot: Snapshot) -> Location | None:
    try:
        return locate(snapshot.root)
    except RepositoryError:
        return None  # a snapshot in memory


@dataclass(frozen=True, slots=True)
class _Loading:
    history: CommitHistory
    commit: str
    store: RecordStore

    def known_table(self) -> HistoryTable | None:
        """The finished table, where one is kept."""
        data = self.store.get([self._table_key]).get(self._table_key)
        return None if data is None else decode_table(data)

    def read(self, location: Location) -> HistoryTable:
        """The table from what is known of each commit, and git. Raises RepositoryError."""
        with open_repository(location.root, seconds=_GIT_SECONDS) as git:
            if not _has_commit(git, self.commit):
                return build_table(())
            whole = not git.shallow_ends()
            known = self.known_table() if whole else None
            if known is not None:
                return known
            commits = git.ancestors(self.commit, self.history.limit)
            facts = self._facts(git, commits)
        table = build_table([facts[commit] for commit in commits])
        # Where something was missing, a later fetch may bring it.
        if whole and all(fact.complete for fact in facts.values()):
            self.store.put([(self._table_key, encode_table(table))])
        return table

    def _facts(self, git: GitRepository, commits: Sequence[str]) -> Mapping[str, CommitFacts]:
        keys = [_key("commit", commit) for commit in commits]
        records = self.store.get(keys)
        facts: dict[str, CommitFacts] = {}
        for commit, key in zip(commits, keys, strict=True):
            fact = decode_facts(commit, records[key]) if key in records else None
            if fact is not None:
                facts[commit] = fact
        missing = [commit for commit in commits if commit not in facts]
        facts.update(self._fresh(git, missing))
        return facts

    def _fresh(self, git: GitRepository, missing: Sequence[str]) -> Mapping[str, CommitFacts]:
        """Facts read with git, kept as they come."""
        fresh: dict[str, CommitFacts] = {}
        for batch in read_commits(git, missing):
            fresh.update((fact.commit, fact) for fact in batch)
            self.store.put(
                [(_key("commit", f.commit), encode_facts(f)) for f in batch if f.complete]
            )
            self.history.reporter(StageProgress(STAGE, len(fresh), len(missing)))
            if self.history.cancel is not None and self.history.cancel.is_set():
                raise Cancelled
        return fresh

    @property
    def _table_key(self) -> bytes:
        return _key(f"table {self.history.limit}", self.commit)


def _has_commit(git: GitRepository, commit: str) -> bool:
    try:
        return git.resolve(commit) == commit
    except RepositoryError:
        return False


def _key(kind: str, commit: str) -> bytes:
    return blake2b(f"history {FORMAT}|{kind}|{commit}".encode(), digest_size=16).digest()
