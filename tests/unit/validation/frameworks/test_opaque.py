from __future__ import annotations

from pathlib import Path

import pytest

from agent.types import Outcome
from agent.validation.frameworks import registry
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.runners import Place
from sandbox.types import Limits, SandboxError
from tests.support.fakes import MemorySnapshot
from tests.support.frameworks import Project, command_of, require_program


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


def test_a_makefile_without_a_goal_for_tests_is_none() -> None:
    for text in ("test = x\n", "test := x\n", "testing:\n", "\ttest:\n", "a " * 50_000):
        suites = registry.detect_all(MemorySnapshot({"Makefile": text}))
        assert suites == (), text[:20]


def test_it_runs_as_it_stands_and_selects_nothing() -> None:
    suite = Suite("command", "", ("trial", "pkg"), "sub", {"MODE": "fast"})
    framework = registry.framework_of(suite)
    assert not framework.selects(suite)
    assert framework.targets(suite, ["test_a.py"], MemorySnapshot({})) == ()
    command = command_of(suite, "test_a.py")
    assert (command.argv, command.cwd) == (("trial", "pkg"), "sub")
    assert command.environment["MODE"] == "fast"
    assert command.environment["PATH"].startswith("/venv/bin:")


def test_what_the_first_word_needs_is_looked_for() -> None:
    framework = registry.FRAMEWORKS["command"]
    assert framework.programs(Suite("command", "", ("./x",))) == ("python",)
    assert framework.programs(Suite("command", "", ("/opt/bin/npm", "t"))) == (
        "python",
        "npm",
        "node",
    )


def test_without_an_interpreter_nothing_of_pythons_is_run() -> None:
    for name in ("pytest", "unittest", "django", "bin-test", "make", "command"):
        suite = Suite(name, "", ("x",))
        framework = registry.framework_of(suite)
        with pytest.raises(SandboxError, match="no Python here"):
            framework.command(
                suite, (), Tools(None, problem="no Python here"), Place(Path("/w")), Limits()
            )
