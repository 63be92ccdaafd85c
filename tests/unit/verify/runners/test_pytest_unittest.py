"""pytest and unittest behind the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners.base import Suite
from tests.support.fakes import MemorySnapshot
from tests.support.runners import Project, command_of
from tests.support.validation import run_of

FILES = {
    "pkg/__init__.py": "",
    "tests/test_a.py": "import unittest\n\nclass Case(unittest.TestCase):\n"
    "    def test_green(self): pass\n    def test_red(self): self.fail('red')\n",
    "tests/test_b.py": "def test_plain(): pass\n",
}

OUTCOMES = {
    "tests/test_a.py::Case::test_green": Outcome.PASSED,
    "tests/test_a.py::Case::test_red": Outcome.FAILED,
}


@pytest.mark.slow
def test_both_give_the_same_outcomes(
    tmp_path: Path, python_with_pytest: Path, python_without_pytest: Path
) -> None:
    for name, python in (("pytest", python_with_pytest), ("unittest", python_without_pytest)):
        project = Project(FILES, tmp_path, python)
        run = project.run(["tests/test_a.py", "README"], suite=Suite(name, ""))
        assert (run.ended, run.outcomes) == ("exited", OUTCOMES), run.output_tail
        assert "red" in run.failures["tests/test_a.py::Case::test_red"]


def test_unittest_without_files_runs_what_it_discovers(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    files = {path.replace("tests/", ""): text for path, text in FILES.items()}
    run = Project(files, tmp_path, python_without_pytest).run(suite=Suite("unittest", ""))
    assert run.outcomes == {test.replace("tests/", ""): what for test, what in OUTCOMES.items()}


def test_pytest_is_asked_again_without_options_that_it_refused() -> None:
    suite = Suite("pytest", "", ("--ds=x",), environment={"A": "1"})
    runner = registry.runner_of(suite)
    refused = run_of({}, exit_code=4)
    second = runner.again(suite, refused)
    assert second is not None
    assert "addopts=" in command_of(second, "t.py").argv
    assert "--ds=x" in command_of(second, "t.py").argv
    assert second.environment == {"A": "1"}
    assert runner.again(second, refused) is None
    assert runner.again(suite, run_of({}, exit_code=1)) is None
    assert runner.again(suite, run_of({"t::a": "passed"}, exit_code=4)) is None


def test_targets_are_the_python_files_once_each_and_no_options() -> None:
    for name in ("pytest", "unittest"):
        suite = Suite(name, "")
        runner = registry.runner_of(suite)
        found = runner.targets(suite, ["b.py", "-x.py", "b.py", "c.js"], MemorySnapshot({}))
        assert found == ("b.py", "-x.py")
        assert command_of(suite, *found).argv[-2:] == ("b.py", "./-x.py")
