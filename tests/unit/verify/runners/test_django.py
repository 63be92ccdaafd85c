"""Django's runners, played by small scripts on unittest: the hook listens to that."""

from __future__ import annotations

from pathlib import Path

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners.base import Suite
from tests.support.fakes import MemorySnapshot
from tests.support.runners import Project, command_of

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

TESTS = """
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

OUTCOMES = {
    "shop/tests.py::NotSetUp": Outcome.ERROR,
    "shop/tests.py::Plain::test_green": Outcome.PASSED,
    "shop/tests.py::Plain::test_known": Outcome.SKIPPED,
    "shop/tests.py::Plain::test_off": Outcome.SKIPPED,
    "shop/tests.py::Plain::test_parts": Outcome.FAILED,
    "shop/tests.py::Plain::test_red": Outcome.FAILED,
}


def project(prefix: str = "", **more: str) -> dict[str, str]:
    files = {"manage.py": MANAGE, "shop/__init__.py": "", "shop/tests.py": TESTS, **more}
    return {prefix + path: text for path, text in files.items()}


def test_a_projects_tests_are_run_by_label_and_reported_by_path(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    run = Project(project(), tmp_path, python_without_pytest).run(["shop/tests.py"])
    assert (run.ended, dict(sorted(run.outcomes.items()))) == ("exited", OUTCOMES), run.output_tail
    assert "not green" in run.failures["shop/tests.py::Plain::test_red"]


def test_a_project_in_a_folder_is_started_there_and_its_ids_are_paths_of_the_tree(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    run = Project(project("site/"), tmp_path, python_without_pytest).run(["site/shop/tests.py"])
    assert sorted(run.outcomes) == [f"site/{test}" for test in OUTCOMES], run.output_tail


def test_a_module_that_cannot_be_imported_is_an_error_of_its_file(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    files = {**project(), "shop/test_broken.py": "import surely_not_there\n"}
    run = Project(files, tmp_path, python_without_pytest).run(["shop/test_broken.py"])
    assert run.outcomes == {"shop/test_broken.py": Outcome.ERROR}
    assert "surely_not_there" in run.failures["shop/test_broken.py"]


def test_a_runner_that_dies_or_leaves_early_is_told(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    leaving = TESTS + "    def test_leaves(self):\n        import os; os._exit(0)\n"
    leaving = leaving.replace('raise RuntimeError("no set-up")', "pass")
    files = {**project(), "shop/tests.py": leaving}
    run = Project(files, tmp_path, python_without_pytest).run(["shop/tests.py"])
    assert (run.ended, run.exit_code) == ("incomplete", 0)
    dies = {**project(), "manage.py": "# of django\nraise ValueError('settings')\n"}
    run = Project(dies, tmp_path, python_without_pytest).run(["shop/tests.py"])
    assert (run.outcomes, run.exit_code) == ({}, 1)
    assert "settings" in run.output_tail


def test_the_librarys_own_layout_counts_labels_from_its_folder_of_tests(
    tmp_path: Path, python_without_pytest: Path
) -> None:
    files = {
        "tests/runtests.py": MANAGE.replace("argv[2:]", "argv[1:]"),
        "tests/shop/__init__.py": "",
        "tests/shop/tests.py": TESTS,
        "lib/__init__.py": "",
    }
    run = Project(files, tmp_path, python_without_pytest).run(["tests/shop/tests.py"])
    assert sorted(run.outcomes) == [f"tests/{test}" for test in OUTCOMES], run.output_tail


def test_names_as_the_runner_prints_them_are_understood() -> None:
    library = Suite("django", "", settings={"labels-from": "tests"})
    to_id = registry.runner_of(library).test_id
    expected = "tests/shop/tests.py::Plain::test_red"
    assert to_id(library, "test_red (shop.tests.Plain)") == expected
    assert to_id(library, "test_red (shop.tests.Plain.test_red)") == expected
    assert to_id(library, "something else") == "something else"


def test_labels_are_in_order_once_each_and_only_of_python_files_below() -> None:
    suite = registry.detect(MemorySnapshot(project("site/")), None)
    paths = ["site/shop/tests.py", "site/shop/__init__.py", "site/a.js", "other/x.py"]
    found = registry.runner_of(suite).targets(suite, [*paths, *paths], MemorySnapshot({}))
    assert found == ("shop.tests", "shop")
    argv = command_of(suite, *found).argv
    assert argv[argv.index("manage.py") :] == (
        *("manage.py", "test", "--no-input", "--parallel=1", "--verbosity=1"),
        *("shop.tests", "shop"),
    )
