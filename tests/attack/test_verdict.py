"""Patches that leave the bug in place, or take tests away: none is VERIFIED, and none hangs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.types import ReproductionTest, ValidationReport, Verdict
from tests.attack.verdict_cases import BUG, FILES, FIX, VERDICT_CASES, VerdictCase
from tests.support.pythons import python_with
from tests.support.validation import edit, patch_of, validated

_ISSUE = ReproductionTest(
    "tests/test_issue.py",
    "from calc import add\n\n\ndef test_issue():\n    assert add(1, 1) == 2\n",
)
_BY_CASE = [
    pytest.param(case, id=case.name, marks=pytest.mark.attack_case(case.name))
    for case in VERDICT_CASES
]


@pytest.fixture(scope="module")
def python_with_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("python"))


def _validated(
    root: Path, python: Path, patch: dict[str, str | None], test: ReproductionTest = _ISSUE
) -> ValidationReport:
    changes = [edit(path, FILES.get(path), text) for path, text in patch.items()]
    return validated(root, patch_of(*changes), test, python=python)


@pytest.mark.usefixtures("bwrap_works")
@pytest.mark.parametrize("case", _BY_CASE)
def test_it_is_not_believed(
    case: VerdictCase, make_repository: Callable[..., Path], python_with_pytest: Path
) -> None:
    # With pytest: three cases are about the JUnit file, which unittest does not write.
    test = replace(_ISSUE, content=case.test) if case.test else _ISSUE
    report = _validated(make_repository(FILES), python_with_pytest, case.patch, test)
    assert report.verdict in case.allowed, report.reason


@pytest.mark.usefixtures("bwrap_works")
def test_an_honest_fix_is(make_repository: Callable[..., Path], python_with_pytest: Path) -> None:
    """The control: the same call verifies what deserves it."""
    assert FIX != BUG
    report = _validated(make_repository(FILES), python_with_pytest, {"calc.py": FIX})
    assert report.verdict is Verdict.VERIFIED, report.reason
