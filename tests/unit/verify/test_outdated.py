"""Existing tests that a reply calls outdated: real pytest, real bubblewrap."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from agent.types import OutdatedTest, ReproductionTest, ValidationReport, Verdict
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, validated

pytestmark = pytest.mark.slow

BUG = "def turn(way, by):\n    return (way - by) % 360\n"
FIX = BUG.replace("-", "+")
TESTS = """from compass import turn


def test_right():
    assert turn(0, 90) == 270


def test_none():
    assert turn(45, 0) == 45


def test_round():
    assert turn(10, 360) == 10


def test_half():
    assert turn(0, 180) == 180


def test_elsewhere():
    assert 1 + 1 == 2
"""
RIGHT = "tests/test_compass.py::test_right"
WHY = "90 degrees to the right are 90, as the issue says"
ISSUE = ReproductionTest(
    "tests/test_issue.py",
    "from compass import turn\n\n\ndef test_issue():\n    assert turn(10, 20) == 30\n",
)

Validate = Callable[..., ValidationReport]


@pytest.fixture
def validate(make_repository: Callable[..., Path], python_with_pytest: Path) -> Validate:
    require_bwrap()
    names = count()

    def one(
        *outdated: OutdatedTest,
        source: str = FIX,
        tests: str = TESTS,
        test: ReproductionTest | None = ISSUE,
    ) -> ValidationReport:
        files = {"compass.py": BUG, "tests/test_compass.py": tests}
        return validated(
            make_repository(files, f"target{next(names)}"),
            patch_of(edit("compass.py", BUG, source)),
            test,
            problem="turn() turns to the left",
            outdated=outdated,
            python=python_with_pytest,
        )

    return one


def test_a_test_that_asserts_the_old_behaviour_is_shown_apart(validate: Validate) -> None:
    refused = validate()
    assert refused.verdict is Verdict.REGRESSED
    report = validate(OutdatedTest(RIGHT, WHY))
    assert report.verdict is Verdict.VERIFIED, report.reason
    first = "Outdated are 1 of 5 existing tests of their files."
    assert report.reason.startswith(f"{first} Fails on the base, passes with the patch: ")
    assert report.reason.endswith(f"- {RIGHT}: {WHY} (assert 90 == 270)")
    (finding,) = report.outdated
    assert (finding.id, finding.why, finding.refusal) == (RIGHT, WHY, "")
    assert report.newly_failing == ()


WORSE = "def turn(way, by):\n    return (way + by) % 360 if by != 180 else 0\n"
RAISES = FIX.replace("    return", '    if by == 90:\n        raise ValueError("by")\n    return')
IN_SOURCE = FIX.replace("    return", "    assert by != 90\n    return")


@pytest.mark.parametrize(
    ("source", "test", "reason"),
    [
        (FIX, None, "counts only beside a reproduction test that holds"),
        (WORSE, ISSUE, "1 other test that the reply does not name"),
        (RAISES, ISSUE, "not fail by an assertion of its own but by an error"),
        (IN_SOURCE, ISSUE, "not fail by an assertion of its own"),
    ],
)
def test_a_failing_test_is_not_excused(
    validate: Validate, source: str, test: ReproductionTest | None, reason: str
) -> None:
    report = validate(OutdatedTest(RIGHT, WHY), source=source, test=test)
    assert report.verdict is Verdict.REGRESSED
    assert reason in report.reason
    assert RIGHT in report.newly_failing


def test_many_outdated_tests_are_refused(validate: Validate) -> None:
    more = TESTS.replace("turn(10, 360) == 10", "turn(10, 350) == 20")
    names = ("test_right", "test_round")
    declared = [OutdatedTest(f"tests/test_compass.py::{name}", WHY) for name in names]
    report = validate(*declared, tests=more)
    assert report.verdict is Verdict.REGRESSED
    assert "their files have only 5 tests" in report.reason
