"""Chooses the tests for a patch with the help of the repository's history.

The history only adds to the pure choice of `selection`. Where it cannot be read, the choice is made
without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import RepositoryError
from agent.repository import is_test_path, open_repository
from agent.types import FileChange, SelectedTest, TestRun
from agent.types.protocols import Snapshot
from agent.verify.choosing.catalogue import TestFiles
from agent.verify.choosing.selection import DEFAULT_LIMIT, estimate, select_tests
from agent.verify.runners.base import Suite
from agent.verify.runners.registry import runner_of
from sandbox import Ended

# The number of latest commits that are read. Older ones say little about today's files.
_COMMITS = 1_000

# A commit with more files is a release or a reformatting, in which everything changed.
_MOST_FILES = 12

# Two files that changed together only once are hardly related.
_PRIOR = 3.0

_SECONDS = 20.0

# The share of its limit from which on a run is too long: the next one may take as much more.
NEAR = 0.8


@dataclass(slots=True)
class TestChooser:
    """Chooses tests for patches of one snapshot; reads test files and history once.

    `seconds` is what one run may take, and `limit` the largest number of files. Files that the
    runner of `suite` cannot run are not chosen. `measured` are the seconds of files that have been
    run; the estimate counts for all others. Not thread-safe.
    """

    __test__ = False  # not a test class

    snapshot: Snapshot
    problem_text: str
    limit: int = DEFAULT_LIMIT
    seconds: float | None = None
    suite: Suite | None = None
    measured: dict[str, float] = field(default_factory=dict)
    _files: TestFiles | None = None
    _together: dict[tuple[str, ...], Mapping[str, float]] = field(default_factory=dict)

    def choose(self, changes: Sequence[FileChange]) -> tuple[SelectedTest, ...]:
        """Choose the tests for a change."""
        if self._files is None:
            self._files = TestFiles(self.snapshot, self._accepts())
        return select_tests(
            self.snapshot,
            changes,
            self.problem_text,
            self.limit,
            files=self._files,
            together=self._history(changes),
            seconds=self.seconds,
            measured=self.measured,
        )

    def learn(self, run: TestRun, chosen: Sequence[SelectedTest]) -> bool:
        """Note what each file of a run took. Return whether the run was too long for its limit.

        The run was cut off at its limit or came near. The files that it did not come to are taken
        to be as much slower than estimated as those that it ran.
        """
        took = {one.path: run.file_seconds.get(one.path, 0.0) for one in chosen}
        self.measured.update({path: taken for path, taken in took.items() if taken})
        if self.seconds is None or not any(took.values()) or run.seconds <= self.seconds * NEAR:
            return False
        guessed = {path: estimate(self._files.by_path[path]) for path in took if self._files}
        ran = [path for path, taken in took.items() if taken]
        pace = sum(took[path] for path in ran) / sum(guessed[path] for path in ran)
        unfinished = [path for path, taken in took.items() if not taken]
        if run.ended != Ended.EXITED:
            unfinished.append(ran[-1])
        for path in unfinished:
            self.measured[path] = max(took[path], guessed[path] * max(1.0, pace))
        return True

    def _accepts(self) -> Callable[[str], bool]:
        suite = self.suite
        if suite is None or not runner_of(suite).selects:
            return lambda _: True
        runner = runner_of(suite)
        return lambda path: bool(runner.targets(suite, (path,), self.snapshot))

    def _history(self, changes: Sequence[FileChange]) -> Mapping[str, float]:
        edited = (change.path for change in changes if change.before is not None)
        paths = tuple(sorted(path for path in edited if not is_test_path(path)))
        if paths and paths not in self._together:
            root, commit = self.snapshot.root, self.snapshot.commit
            self._together[paths] = changed_together(root, commit, paths)
        return self._together.get(paths, {})


def changed_together(root: Path, commit: str, paths: Sequence[str]) -> Mapping[str, float]:
    """Return how regularly other files changed with any of these, 0..1, sorted by path.

    The score is the share of a given file's commits that the other file was in, lowered by a prior;
    of several given files the highest counts. Empty where the history cannot be read.
    """
    try:
        with open_repository(root, seconds=_SECONDS) as git:
            commits = git.ancestors(commit, _COMMITS)
            listing = git.changes(commits, "--name-only", "--no-renames", "-z", "--format=%x01")
    except RepositoryError:
        return {}
    return _scores(_commits(listing), frozenset(paths))


def _commits(listing: bytes) -> list[list[str]]:
    """Return the paths of each commit that is small enough."""
    found = []
    for record in listing.split(b"\x01")[1:]:
        names = [name.strip(b"\n") for name in record.split(b"\0")]
        paths = [name.decode("utf-8", "surrogateescape") for name in names if name]
        if 1 < len(paths) <= _MOST_FILES:
            found.append(paths)
    return found


def _scores(commits: Sequence[Sequence[str]], seeds: frozenset[str]) -> dict[str, float]:
    best: dict[str, float] = {}
    for seed in sorted(seeds):
        holding = [paths for paths in commits if seed in paths]
        both = Counter(path for paths in holding for path in paths if path not in seeds)
        for path, count in both.items():
            best[path] = max(best.get(path, 0.0), count / (len(holding) + _PRIOR))
    return dict(sorted(best.items()))
