"""pytest, unittest, Django's runners, make and any command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners.base import RunContext, Suite, Tools
from sandbox.types import Limits, SandboxError
from tests.support.fakes import MemorySnapshot
from tests.support.runners import Project, command_of, require_program
from tests.support.validation import run_of

# -------------------------------------------------------------------------- pytest, unittest

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


# --------------------- Django, played by small scripts on unittest: the hook listens to that

# What `manage.py test` does in the end: labels to suites, a result class of its own, an exit code.
MANAGE = """
# stands in for django
import sys, unittest

class Result(unittest.TextTestResult):
    pass

labels = [word for word in sys.argv[2:] if not word.startswith("-")]
suite = unittest.defaultTestLoader.loadTestsFromNames(labels)
result = unittest.TextTestRunner(resultclass=Result).run(suite)
sys.exit(bool(result.failures or result.errors))
"""

SHOP_TESTS = """
import unittest

class Plain(unittest.TestCase):
    def test_green(self): pass
    def test_red(self): self.fail("not green")
    @unittest.skip("later")
    def test_off(self): pass
    @unittest.expectedFailure
    def test_known(self): self.fail("known")
    def test_parts(self):
        for part in range(3):
            with self.subTest(part=part):
                self.assertNotEqual(part, 1)

class NotSetUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise RuntimeError("no set-up")
    def test_never(self): pass
"""

LABELLED = {
    "shop/tests.py::NotSetUp": Outcome.ERROR,
    "shop/tests.py::Plain::test_green": Outcome.PASSED,
    "shop/tests.py::Plain::test_known": Outcome.SKIPPED,
    "shop/tests.py::Plain::test_off": Outcome.SKIPPED,
    "shop/tests.py::Plain::test_parts": Outcome.FAILED,
    "shop/tests.py::Plain::test_red": Outcome.FAILED,
}


def shop(prefix: str = "", **more: str) -> dict[str, str]:
    files = {"manage.py": MANAGE, "shop/__init__.py": "", "shop/tests.py": SHOP_TESTS, **more}
    return {prefix + path: text for path, text in files.items()}


def test_a_projects_tests_are_run_by_label_and_reported_by_path(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    run = Project(shop(), tmp_path, python_without_pytest).run(["shop/tests.py"])
    assert (run.ended, dict(sorted(run.outcomes.items()))) == ("exited", LABELLED), run.output_tail
    assert "not green" in run.failures["shop/tests.py::Plain::test_red"]


def test_a_project_in_a_folder_is_started_there_and_its_ids_are_paths_of_the_tree(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    run = Project(shop("site/"), tmp_path, python_without_pytest).run(["site/shop/tests.py"])
    assert sorted(run.outcomes) == [f"site/{test}" for test in LABELLED], run.output_tail


def test_a_module_that_cannot_be_imported_is_an_error_of_its_file(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    files = {**shop(), "shop/test_broken.py": "import surely_not_there\n"}
    run = Project(files, tmp_path, python_without_pytest).run(["shop/test_broken.py"])
    assert run.outcomes == {"shop/test_broken.py": Outcome.ERROR}
    assert "surely_not_there" in run.failures["shop/test_broken.py"]


def test_a_runner_that_dies_or_leaves_early_is_told(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    leaving = SHOP_TESTS + "    def test_leaves(self):\n        import os; os._exit(0)\n"
    leaving = leaving.replace('raise RuntimeError("no set-up")', "pass")
    files = {**shop(), "shop/tests.py": leaving}
    run = Project(files, tmp_path, python_without_pytest).run(["shop/tests.py"])
    assert (run.ended, run.exit_code) == ("incomplete", 0)
    dies = {**shop(), "manage.py": "# of django\nraise ValueError('settings')\n"}
    run = Project(dies, tmp_path, python_without_pytest).run(["shop/tests.py"])
    assert (run.outcomes, run.exit_code) == ({}, 1)
    assert "settings" in run.output_tail


def test_the_librarys_own_layout_counts_labels_from_its_folder_of_tests(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    files = {
        "tests/runtests.py": MANAGE.replace("argv[2:]", "argv[1:]"),
        "tests/shop/__init__.py": "",
        "tests/shop/tests.py": SHOP_TESTS,
        "lib/__init__.py": "",
    }
    run = Project(files, tmp_path, python_without_pytest).run(["tests/shop/tests.py"])
    assert sorted(run.outcomes) == [f"tests/{test}" for test in LABELLED], run.output_tail


def test_names_as_the_runner_prints_them_are_understood() -> None:
    library = Suite("django", "", settings={"labels-from": "tests"})
    to_id = registry.runner_of(library).test_id
    expected = "tests/shop/tests.py::Plain::test_red"
    assert to_id(library, "test_red (shop.tests.Plain)") == expected
    assert to_id(library, "test_red (shop.tests.Plain.test_red)") == expected
    assert to_id(library, "something else") == "something else"


def test_labels_are_in_order_once_each_and_only_of_python_files_below() -> None:
    suite = registry.detect(MemorySnapshot(shop("site/")), None)
    paths = ["site/shop/tests.py", "site/shop/__init__.py", "site/a.js", "other/x.py"]
    found = registry.runner_of(suite).targets(suite, [*paths, *paths], MemorySnapshot({}))
    assert found == ("shop.tests", "shop")
    argv = command_of(suite, *found).argv
    assert argv[argv.index("manage.py") :] == (
        *("manage.py", "test", "--no-input", "--parallel=1", "--verbosity=1"),
        *("shop.tests", "shop"),
    )


def test_the_projects_environment_cannot_reach_what_our_runners_rest_on() -> None:
    hostile = {
        "PYTHONPATH": "/evil",
        "PATH": "/evil",
        "LD_PRELOAD": "/evil.so",
        "SANDBOX_REPORT": "/evil",
        "PYTHONHOME": "/evil",
        "bad name": "x",
        "MODE": "fast",
    }
    command = command_of(Suite("pytest", "", environment=hostile), "t.py")
    assert command.environment["MODE"] == "fast"
    assert not any("evil" in value for value in command.environment.values())
    assert "bad name" not in command.environment


# ---------------------------------------------------------------------------- make, commands


@pytest.mark.parametrize(("code", "outcome"), [(0, Outcome.PASSED), (3, Outcome.FAILED)])
def test_make_counts_as_one_test(tmp_path: Path, code: int, outcome: Outcome) -> None:
    require_program("make")
    files = {"Makefile": f"all:\n\ncheck test: all\n\techo said; exit {code}\n", "main.c": ""}
    project = Project(files, tmp_path)
    assert project.suite() == Suite("make", "Makefile has the goal test", ("make", "test"))
    run = project.run()
    assert (run.ended, run.outcomes) == ("exited", {"command": outcome}), run.output_tail
    assert "said" in run.output_tail


def test_a_command_that_starts_pytest_reports_its_tests(
    tmp_path: Path, python_with_pytest: Path
) -> None:
    files = {
        "check.sh": "exec python -m pytest -q test_a.py\n",
        "test_a.py": "def test_a(): pass\n",
    }
    suite = registry.detect(MemorySnapshot(files), "/bin/sh check.sh")
    run = Project(files, tmp_path, python_with_pytest).run(suite=suite)
    assert (run.ended, run.outcomes) == ("exited", {"test_a.py::test_a": Outcome.PASSED})


def test_a_shell_runs_the_users_command(tmp_path: Path) -> None:
    require_program("node")
    command = "cd web && node -e 'process.exit(3)' || MODE=fast env | grep MODE=f*"
    suite = registry.detect(MemorySnapshot({}), command)
    assert suite.argv == ("/bin/sh", "-c", command)
    run = Project({"web/a.txt": ""}, tmp_path).run(suite=suite)
    assert (run.outcomes, run.output_tail) == ({"command": Outcome.PASSED}, "MODE=fast")


def test_without_an_interpreter_nothing_of_pythons_is_run() -> None:
    for name in ("pytest", "unittest", "django", "make", "command"):
        suite = Suite(name, "", ("x",))
        runner = registry.runner_of(suite)
        tools = Tools(None, problem="no Python here")
        with pytest.raises(SandboxError, match="no Python here"):
            runner.command(suite, (), RunContext(tools, Path("/w"), Limits()))
