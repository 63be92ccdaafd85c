"""How long test files are thought to take, and how many of them fit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.types import SelectedTest, TestRun

if TYPE_CHECKING:
    from agent.validation.choosing.catalogue import TestFile, TestFiles

# Importing what a file needs, then twenty tests a second: four times what click's suite takes (34
# files, 2,016 tests with their parameters, 9 s), since tests that start servers or programs take
# longer. A file of which more is known is not guessed at.
_A_FILE = 0.2
_A_TEST = 0.05

# Files whose tests are not recognised: scripts, suites that are made in a loop.
_LEAST_TESTS = 3

# A share of the time for one run: what is guessed can be wrong by a factor of some three.
_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Budget:
    """What one run may take, in seconds. `measured` are seconds of files that were run before.

    A suite that is thought to take no longer than `whole` seconds is run as it is, also what
    nothing ties to the change.
    """

    seconds: float
    measured: Mapping[str, float] = field(default_factory=dict)
    whole: float = 0.0

    @property
    def why_all(self) -> str:
        """The reason of a file that nothing ties to the change."""
        return "the whole suite is small"

    def holds_all(self, tests: Sequence[TestFile]) -> bool:
        """Whether the whole suite is so small that it is run as it is."""
        pace = self._pace(tests)
        total = sum(self._seconds(test, pace) for test in tests)
        return total <= min(self.whole, self.seconds * _SHARE)

    def affordable(
        self, chosen: Sequence[SelectedTest], tests: TestFiles
    ) -> tuple[SelectedTest, ...]:
        """The first of them and all that fit in what is left; smaller ones may follow a large."""
        pace = self._pace(tests.files)
        left = self.seconds * _SHARE
        kept: list[SelectedTest] = []
        for one in chosen:
            seconds = self._seconds(tests.by_path[one.path], pace)
            if seconds <= left or not kept:
                kept.append(one)
                left -= seconds
        return tuple(kept)

    def _pace(self, tests: Iterable[TestFile]) -> float:
        """How much slower than guessed the measured files were."""
        known = [test for test in tests if test.path in self.measured]
        guessed = sum(map(estimate, known))
        return sum(self.measured[test.path] for test in known) / guessed if guessed else 1.0

    def _seconds(self, test: TestFile, pace: float) -> float:
        return self.measured.get(test.path, estimate(test) * pace)


def estimate(test: TestFile) -> float:
    """Seconds that a file is thought to take, by the number of its tests."""
    return _A_FILE + _A_TEST * max(test.tests, _LEAST_TESTS)


def measured_seconds(run: TestRun) -> dict[str, float]:
    """Seconds of each file of a run, shared out by the number of tests that it had."""
    counts: dict[str, int] = {}
    for test in run.outcomes:
        path = test.partition("::")[0]
        counts[path] = counts.get(path, 0) + 1
    total = sum(counts.values())
    return {path: run.seconds * count / total for path, count in sorted(counts.items())}
