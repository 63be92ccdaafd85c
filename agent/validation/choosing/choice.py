"""The choice of tests for one patch: the pure selection, with the history and the time that it has.

Whatever is here only adds hints: without a history the choice is made without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.protocols import Snapshot
from agent.repository.languages import is_test_path
from agent.types import FileChange, SelectedTest
from agent.validation.choosing.catalogue import TestFiles
from agent.validation.choosing.cost import Budget
from agent.validation.choosing.selection import DEFAULT_LIMIT, select_tests
from agent.validation.choosing.together import changed_together
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.registry import framework_of


@dataclass(slots=True)
class TestChooser:
    """Chooses tests for patches of one snapshot; reads test files and history once.

    `seconds` is what one run may take, `limit` the most files. `suite` is how tests are run: files
    that its framework cannot run are not chosen. Not thread-safe.
    """

    __test__ = False  # not a test class

    snapshot: Snapshot
    problem_text: str
    limit: int = DEFAULT_LIMIT
    seconds: float | None = None
    suite: Suite | None = None
    _files: TestFiles | None = None
    _together: dict[tuple[str, ...], Mapping[str, float]] = field(default_factory=dict)

    def choose(
        self, changes: Sequence[FileChange], measured: Mapping[str, float] | None = None
    ) -> tuple[SelectedTest, ...]:
        """The tests for a change. `measured` are seconds of files that were run before."""
        if self._files is None:
            self._files = TestFiles(self.snapshot, self._accepts())
        budget = None if self.seconds is None else Budget(self.seconds, measured or {})
        return select_tests(
            self.snapshot,
            changes,
            self.problem_text,
            self.limit,
            files=self._files,
            together=self._history(changes),
            budget=budget,
        )

    def _accepts(self) -> Callable[[str], bool]:
        suite = self.suite
        if suite is None or not framework_of(suite).selects(suite):
            return lambda _: True
        framework = framework_of(suite)
        return lambda path: bool(framework.targets(suite, (path,), self.snapshot))

    def _history(self, changes: Sequence[FileChange]) -> Mapping[str, float]:
        edited = (change.path for change in changes if change.before is not None)
        paths = tuple(sorted(path for path in edited if not is_test_path(path)))
        if paths and paths not in self._together:
            root, commit = self.snapshot.root, self.snapshot.commit
            self._together[paths] = changed_together(root, commit, paths)
        return self._together.get(paths, {})
