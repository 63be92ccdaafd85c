from __future__ import annotations

from pathlib import Path

import pytest

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners import base
from agent.verify.runners.base import RunContext, Suite, Tools
from sandbox.types import Limits, SandboxError
from tests.support.fakes import MemorySnapshot
from tests.support.runners import Project, command_of, require_program


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
        suite = registry.detect(MemorySnapshot({"Makefile": text}), None)
        assert suite.runner == "pytest", text[:20]


def test_it_runs_as_it_stands_and_selects_nothing() -> None:
    suite = Suite("command", "", ("trial", "pkg"), "sub", {"MODE": "fast"})
    runner = registry.runner_of(suite)
    assert not runner.selects
    assert runner.targets(suite, ["test_a.py"], MemorySnapshot({})) == ()
    command = command_of(suite, "test_a.py")
    assert (command.argv, command.cwd) == (("trial", "pkg"), "sub")
    assert command.environment["MODE"] == "fast"
    assert command.environment["PATH"].startswith("/venv/bin:")


@pytest.mark.parametrize(
    "command",
    [
        "cd x && pytest",
        "a || b",
        "a; b",
        "a | tee log",
        "a > log",
        "pytest tests/test_*.py",
        "MODE=fast pytest",
        "pytest $OPTIONS",
        'pytest "$OPTIONS"',
        "echo `pwd`",
        "pytest ~/tests",
    ],
)
def test_shell_syntax_is_left_to_a_shell(command: str) -> None:
    assert base.split_command(command) == ("/bin/sh", "-c", command)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("pytest -k 'a and (b || c)'", ("pytest", "-k", "a and (b || c)")),
        ("pytest tests/test_a.py::test_b[1]", ("pytest", "tests/test_a.py::test_b[1]")),
        (r"echo a\;b", ("echo", "a;b")),
        ('pytest -k "a;b"', ("pytest", "-k", "a;b")),
        ("make -j2 MODE=fast", ("make", "-j2", "MODE=fast")),
    ],
)
def test_quoted_operators_are_words(command: str, argv: tuple[str, ...]) -> None:
    assert base.split_command(command) == argv


def test_what_each_word_of_a_shell_command_needs_is_looked_for() -> None:
    suite = Suite("command", "", base.split_command("cd web&&npm test"))
    assert registry.RUNNERS["command"].programs(suite) == ("python", "npm", "node")


def test_what_the_first_word_needs_is_looked_for() -> None:
    runner = registry.RUNNERS["command"]
    assert runner.programs(Suite("command", "", ("./x",))) == ("python",)
    assert runner.programs(Suite("command", "", ("/opt/bin/npm", "t"))) == (
        "python",
        "npm",
        "node",
    )


def test_without_an_interpreter_nothing_of_pythons_is_run() -> None:
    for name in ("pytest", "unittest", "django", "make", "command"):
        suite = Suite(name, "", ("x",))
        runner = registry.runner_of(suite)
        tools = Tools(None, problem="no Python here")
        with pytest.raises(SandboxError, match="no Python here"):
            runner.command(suite, (), RunContext(tools, Path("/w"), Limits()))
