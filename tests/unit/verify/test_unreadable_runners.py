"""Projects whose own runner tells nothing that can be read, or runs into the time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.types import AppliedPatch, Outcome, Problem, ReproductionTest, ValidationReport, Verdict
from agent.verify.judging.compare import suspicion
from agent.verify.judging.reproduction import NameChecks, Standing, judge
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap.backend import BwrapSandbox
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, run_of

BUG, FIX = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
TESTS = "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n"
ISSUE = ReproductionTest(
    "tests/test_issue.py",
    "from calc import add\n\n\ndef test_issue():\n    assert add(1, 1) == 2\n",
)
FIXES = patch_of(edit("calc.py", BUG, FIX))

WRAPS_PYTEST = """#!/usr/bin/env python
import subprocess, sys
files = [word for word in sys.argv[1:] if not word.startswith("-")]
code = subprocess.call([sys.executable, "-m", "pytest", "-v", *files])
print("SomeWarning: a plugin says good-bye")
sys.exit(code)
"""

# It starts pytest without the variables that load our plugin.
HIDES_PYTEST = WRAPS_PYTEST.replace("*files])", "*files], env={})")

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
def test_pytest_inside_the_projects_own_runner_reports_each_test(validate: Validate) -> None:
    files = {"bin/test": WRAPS_PYTEST, "calc.py": BUG, "tests/test_calc.py": TESTS}
    report = validate(files)
    assert report.verdict is Verdict.VERIFIED, report.reason
    assert report.runner.startswith("bin-test")
    assert report.before is not None
    assert report.before.outcomes == {"tests/test_calc.py::test_zero": Outcome.PASSED}


@pytest.mark.slow
def test_a_runner_that_cannot_be_read_on_the_base_gives_way_to_pytest(validate: Validate) -> None:
    files = {"bin/test": HIDES_PYTEST, "calc.py": BUG, "tests/test_calc.py": TESTS}
    report = validate(files)
    assert report.verdict is Verdict.VERIFIED, report.reason
    why = "bin-test gives no outcomes on the base that can be read, so pytest is used"
    assert (report.runner, why in report.notes) == (f"pytest: {why}", True)


@pytest.mark.slow
def test_where_no_other_runner_works_nothing_is_held_against_the_patch(
    make_repository: Callable[..., Path], python_without_pytest: Path
) -> None:
    require_bwrap()
    files = {"bin/test": HIDES_PYTEST, "calc.py": BUG, "tests/test_calc.py": TESTS}
    options = ValidationOptions(python=python_without_pytest, timeout=60.0)
    snapshot = take_snapshot(make_repository(files, "target"))

    async def run() -> ValidationReport:
        problem = Problem("add() subtracts", "")
        async with SandboxValidator(snapshot, problem, BwrapSandbox(), options) as validator:
            return await validator.validate(FIXES, ISSUE)

    report = asyncio.run(run())
    assert report.verdict is Verdict.UNVERIFIED, report.reason


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
