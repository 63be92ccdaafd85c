"""Real repositories, real pytest, real bubblewrap."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.types import (
    AppliedPatch,
    FileChange,
    ReproductionTest,
    ValidationReport,
    Verdict,
)
from sandbox.in_place import ProcessSandbox
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, validated

pytestmark = pytest.mark.slow

BUG, FIX = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
PROJECT_TESTS = "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n"
ISSUE = ReproductionTest(
    "tests/test_issue.py",
    "from calc import add\n\n\ndef test_issue():\n    assert add(1, 1) == 2\n",
)
FILES = {"calc.py": BUG, "tests/test_calc.py": PROJECT_TESTS}
FIXES = patch_of(edit("calc.py", BUG, FIX))

Validate = Callable[..., ValidationReport]


@pytest.fixture(scope="module", autouse=True)
def bubblewrap() -> None:
    require_bwrap()


@pytest.fixture
def validate(make_repository: Callable[..., Path], python_with_pytest: Path) -> Validate:
    """Commit files, validate a patch and the reply's test; the whole takes a second or two."""

    def one(
        files: Mapping[str, str],
        patch: AppliedPatch,
        test: ReproductionTest | None = None,
        name: str = "target",
        **options: Any,
    ) -> ValidationReport:
        options = {"python": python_with_pytest, **options}
        return validated(make_repository(files, name), patch, test, **options)

    return one


def change(path: str, text: str) -> FileChange:
    return edit(path, FILES.get(path), text)


def test_a_fix_is_verified(validate: Validate) -> None:
    report = validate(FILES, FIXES, ISSUE)
    assert report.verdict is Verdict.VERIFIED, report.reason
    assert report.reason == (
        "Fails on the base, passes with the patch: 1 test of the reproduction: "
        "tests/test_issue.py::test_issue; 1 other test of the project still passes."
    )
    assert report.newly_passing == ("tests/test_issue.py::test_issue",)
    assert (report.newly_failing, report.notes, report.backend) == ((), (), "bwrap")


def test_the_unprotected_backend_finds_the_same_and_says_its_name(validate: Validate) -> None:
    report = validate(FILES, FIXES, ISSUE, sandbox=ProcessSandbox())
    assert (report.verdict, report.backend) == (Verdict.VERIFIED, "process")


def test_a_red_project_test_that_turns_green_is_proof_without_a_reproduction(
    validate: Validate,
) -> None:
    files = {**FILES, "tests/test_calc.py": PROJECT_TESTS.replace("1, 0", "0, 1")}
    report = validate(files, FIXES)
    assert report.verdict is Verdict.VERIFIED
    assert report.newly_passing == ("tests/test_calc.py::test_zero",)


def test_a_patch_that_breaks_tests_is_refused_with_their_words(validate: Validate) -> None:
    report = validate(FILES, patch_of(change("calc.py", BUG.replace("-", "*"))))
    assert report.verdict is Verdict.REGRESSED
    assert report.newly_failing == ("tests/test_calc.py::test_zero",)
    assert report.reason.startswith(
        "1 test that passed on the base fails with the patch: tests/test_calc.py::test_zero "
        "(assert 0 == 1).\n"
    )
    assert "E   assert 0 == 1" in report.reason


def test_a_reproduction_that_passes_on_the_base_is_no_evidence(validate: Validate) -> None:
    test = replace(ISSUE, content="def test_issue():\n    assert True\n")
    report = validate(FILES, FIXES, test)
    assert report.verdict is Verdict.NOT_REGRESSED
    assert "the reproduction test passes on the base already" in report.reason
    assert report.lacks_test
    patch = patch_of(change("tests/test_more.py", "def test_x(): pass\n"))
    only_tests = validate(FILES, patch, None, name="more")
    assert not only_tests.lacks_test


def test_a_reproduction_may_import_what_the_patch_brings(validate: Validate) -> None:
    test = replace(
        ISSUE, content="from calc import sub\n\n\ndef test_issue():\n    assert sub(2, 1) == 1\n"
    )
    patch = patch_of(change("calc.py", FIX + "\n\ndef sub(a, b):\n    return a - b\n"))
    asked = validate(FILES, patch, test, problem="add() subtracts, and sub() is missing")
    assert asked.verdict is Verdict.VERIFIED
    assert "on the base only for the lack of sub, which the patch brings" in asked.reason
    unasked = validate(FILES, patch, test, name="other")
    assert unasked.verdict is Verdict.NOT_REGRESSED
    assert "the issue does not speak of" in unasked.reason


def test_what_was_red_before_is_tolerated(validate: Validate) -> None:
    files = {
        **FILES,
        "tests/test_red.py": "import calc\n\n\ndef test_red():\n    assert calc.add(0, 0) == 9\n",
        "tests/test_broken.py": "import calc\nimport surely_not_there\n",
    }
    report = validate(files, FIXES, ISSUE)
    assert report.verdict is Verdict.VERIFIED
    assert report.newly_failing == ()
    assert "2 failed before" in report.reason


def test_a_suite_that_cannot_be_collected_says_nothing(validate: Validate) -> None:
    files = {**FILES, "tests/test_calc.py": "import calc, surely_not_there\n"}
    report = validate(files, FIXES)
    assert report.verdict is Verdict.UNVERIFIED
    assert "on the base the run ended with exit code 1 (1 error" in report.reason


def test_a_hanging_test_hits_its_limit_and_is_named(validate: Validate) -> None:
    hangs = "def add(a, b):\n    while b == 0:\n        pass\n    return a + b\n"
    started = time.monotonic()
    report = validate(FILES, patch_of(change("calc.py", hangs)), timeout=4.0)
    assert time.monotonic() - started < 60
    assert report.verdict is Verdict.REGRESSED
    assert "in tests/test_calc.py::test_zero" in report.reason.splitlines()[0]
    assert "limit" in report.reason.splitlines()[0]


def test_a_project_without_pytest(validate: Validate, python_without_pytest: Path) -> None:
    files = {
        **FILES,
        "tests/test_calc.py": "import unittest\nfrom calc import add\n\n"
        "class Case(unittest.TestCase):\n"
        "    def test_zero(self):\n        self.assertEqual(add(1, 0), 1)\n"
        "    def test_one(self):\n        self.assertEqual(add(1, 1), 2)\n",
    }
    report = validate(files, FIXES, ISSUE, python=python_without_pytest)
    assert report.verdict is Verdict.VERIFIED
    assert report.newly_passing == (
        "tests/test_calc.py::Case::test_one",
        "tests/test_issue.py::test_issue",
    )
    assert "unittest is used" in report.notes[0]


def test_the_repositorys_own_environment_is_used(
    make_repository: Callable[..., Path],
) -> None:
    root = make_repository({**FILES, ".gitignore": ".venv/\n"})
    venv = [sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")]
    subprocess.run(venv, check=True, timeout=60)

    report = validated(root, FIXES, ISSUE, search_path="")
    assert report.verdict is Verdict.VERIFIED
    assert report.interpreter.startswith(f"{root}/.venv/bin/python (Python 3.")
    assert report.interpreter.endswith("the repository's .venv")


def test_a_src_layout_that_is_not_installed(validate: Validate) -> None:
    files = {
        "src/pkg/__init__.py": "",
        "src/pkg/calc.py": BUG,
        "tests/test_calc.py": PROJECT_TESTS.replace("from calc", "from pkg.calc"),
    }
    test = replace(ISSUE, content=ISSUE.content.replace("from calc", "from pkg.calc"))
    report = validate(files, patch_of(edit("src/pkg/calc.py", BUG, FIX)), test)
    assert report.verdict is Verdict.VERIFIED
    assert report.after is not None
    assert len(report.after.outcomes) == 1


def test_options_of_plugins_that_are_missing_are_left_out(validate: Validate) -> None:
    ini = "[pytest]\naddopts = --cov=calc -n 4 --strict-config\ntimeout = 3\n"
    report = validate({**FILES, "pytest.ini": ini}, FIXES, ISSUE)
    assert report.verdict is Verdict.VERIFIED


def test_the_users_own_command(validate: Validate) -> None:
    report = validate(FILES, FIXES, ISSUE, test_cmd="sh -c 'python -m pytest -q tests'")
    assert report.verdict is Verdict.VERIFIED
    assert report.before is not None
    assert list(report.before.outcomes) == ["tests/test_calc.py::test_zero"]
    script = "python -c 'import calc; assert calc.add(1, 1) == 2'"
    opaque = validate({**FILES, "other.py": ""}, FIXES, test_cmd=script, name="again")
    assert opaque.verdict is Verdict.NOT_REGRESSED
    assert opaque.newly_passing == ("command",)
