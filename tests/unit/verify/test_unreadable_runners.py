"""Projects whose own runner tells nothing that can be read, or runs into the time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.types import AppliedPatch, Problem, ReproductionTest, ValidationReport, Verdict
from agent.verify.judging.compare import suspicion
from agent.verify.judging.reproduction import NameChecks, Standing, judge
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap import BwrapSandbox
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, run_of

BUG, FIX = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
TESTS = "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n"
ISSUE = ReproductionTest(
    "tests/test_issue.py",
    "from calc import add\n\n\ndef test_issue():\n    assert add(1, 1) == 2\n",
)
FIXES = patch_of(edit("calc.py", BUG, FIX))

Validate = Callable[..., ValidationReport]


@pytest.fixture
def validate(make_repository: Callable[..., Path], python_with_pytest: Path) -> Validate:
    require_bwrap()

    def one(
        files: Mapping[str, str], patch: AppliedPatch = FIXES, timeout: float = 60.0
    ) -> ValidationReport:
        options = ValidationOptions(python=python_with_pytest, timeout=timeout)
        snapshot = take_snapshot(make_repository(files, "target"))

        async def run() -> ValidationReport:
            problem = Problem("add() subtracts", "")
            async with SandboxValidator(snapshot, problem, BwrapSandbox(), options) as validator:
                return await validator.validate(patch, ISSUE)

        return asyncio.run(run())

    return one


@pytest.mark.slow
def test_files_that_do_not_fit_the_time_limit_are_left_out(validate: Validate) -> None:
    slow = "import time\nimport calc\n\n\ndef test_calc():\n    time.sleep(60)\n"
    files = {"calc.py": BUG, "tests/test_calc.py": TESTS, "tests/test_zz_calc.py": slow}
    report = validate(files, timeout=6.0)
    assert report.verdict is Verdict.VERIFIED, report.reason
    assert [test.path for test in report.selected] == ["tests/test_calc.py"]
    assert report.before is not None
    assert report.before.ended == "exited"


def test_a_run_that_cannot_be_believed_is_held_against_no_patch_whose_base_shows_nothing() -> None:
    ended_early = run_of({}, ended="incomplete", exit_code=0)
    cut = run_of({}, ended="wall-limit", exit_code=None)
    assert suspicion(cut, ended_early) == ""
    assert suspicion(run_of({"t.py::a": "passed"}), ended_early) != ""
    found = judge(ended_early, ended_early, NameChecks(lambda _: False))
    assert found.standing is Standing.SAYS_NOTHING
    refuted = judge(run_of({"t.py::a": "failed"}), cut, NameChecks(lambda _: False))
    assert refuted.standing is Standing.STILL_FAILS
