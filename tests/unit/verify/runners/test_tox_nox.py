"""tox and nox: configuration that is read and never run."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.verify.runners.base import Suite
from agent.verify.runners.configured import ConfiguredCommand, read_nox, read_tox, suites_of
from tests.support.fakes import MemorySnapshot
from tests.support.runners import command_of


def tox(text: str, file: str = "tox.ini") -> list[ConfiguredCommand]:
    return list(read_tox(MemorySnapshot({file: text})))


def nox(text: str) -> list[ConfiguredCommand]:
    return list(read_nox(MemorySnapshot({"noxfile.py": text})))


def test_substitutions_that_mean_something_outside_tox_are_carried_out() -> None:
    text = """
[base]
opts = -o xfail_strict=true
[testenv]
changedir = sub
setenv =
    MODE = fast
    HASH = {env:HASH:0}
    py38: OLD = 1
commands =
    {envpython} -m pytest {[base]opts} {posargs:{toxinidir}/tests}
    py3,cov: coverage run -m unittest discover
    - rm -rf {envtmpdir}/x \\
      more
"""
    environment = {"MODE": "fast", "HASH": "0"}
    assert tox(text) == [
        ConfiguredCommand(
            ("python", "-m", "pytest", "-o", "xfail_strict=true", "./tests"),
            "tox.ini [testenv]",
            environment,
            "sub",
        ),
        ConfiguredCommand(
            ("coverage", "run", "-m", "unittest", "discover"),
            "tox.ini [testenv]",
            environment,
            "sub",
        ),
        ConfiguredCommand(("rm", "-rf", "/tmp/x", "more"), "tox.ini [testenv]", environment, "sub"),
    ]


def test_a_command_with_an_unknown_substitution_is_passed_over() -> None:
    text = "[testenv]\ncommands =\n  pytest {envsitepackagesdir}/pkg\n  pytest tests\n"
    assert [command.argv for command in tox(text)] == [("pytest", "tests")]


def test_references_in_a_circle_end() -> None:
    assert tox("[a]\nx = {[a]x}{[a]x}\n[testenv]\ncommands = pytest {[a]x}\n") == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tox.toml", '[env_run_base]\nset_env = {A = "1"}\ncommands = [["pytest", "t"]]\n'),
        (
            "pyproject.toml",
            '[tool.tox.env_run_base]\nset_env = {A = "1"}\ncommands = [["pytest", '
            '{replace = "posargs", default = ["t"], extend = true}]]\n',
        ),
        (
            "pyproject.toml",
            '[tool.tox]\nlegacy_tox_ini = """\n[testenv]\nsetenv = A=1\ncommands = pytest t\n"""\n',
        ),
        ("setup.cfg", "[testenv]\nsetenv = A=1\ncommands = pytest t\n"),
    ],
)
def test_every_place_where_tox_may_be_configured_is_read(file: str, text: str) -> None:
    (found,) = tox(text, file)
    assert (found.argv, dict(found.environment)) == (("pytest", "t"), {"A": "1"})


@example(":\n :")
@settings(deadline=None)
@given(st.text(alphabet="[]{}:=#\\\n \ttestenvcommands\"'-!,."))
def test_any_tox_configuration_can_be_read(text: str) -> None:
    for file in ("tox.ini", "tox.toml", "pyproject.toml", "setup.cfg"):
        tox(f"[testenv]\ncommands = {text}\n{text}", file)
        tox(text, file)


NOX = """
import nox, os
os.system("touch /tmp/never")

@nox.session
def lint(session):
    session.run("ruff", "check")

@nox.session(python=["3.11", "3.12"])
def tests(s):
    s.install("-e", ".")
    s.chdir("sub")
    s.run("python", "-m", "pytest", "-o", "x=y", *s.posargs, env={"A": "1", "B": os.environ["B"]})
    s.run("pytest", some_variable)
    s.run("coverage", "run", "-m", "unittest", *(s.posargs or ["a", "b"]))
"""


def test_a_noxfile_is_read_from_its_syntax_tree_sessions_of_tests_first() -> None:
    tests = "noxfile.py, session tests"
    assert nox(NOX) == [
        ConfiguredCommand(("python", "-m", "pytest", "-o", "x=y"), tests, {"A": "1"}, "sub"),
        ConfiguredCommand(("coverage", "run", "-m", "unittest", "a", "b"), tests, {}, "sub"),
        ConfiguredCommand(("ruff", "check"), "noxfile.py, session lint", {}, "."),
    ]


@settings(deadline=None)
@given(st.text())
def test_any_noxfile_can_be_read(text: str) -> None:
    nox(text)
    nox(f"import nox\n@nox.session\ndef tests(session):\n    session.run({text!r}, {text})\n")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            "pytest -q --ds=app.settings -c x.ini tests",
            ("pytest", "--ds=app.settings", "-c", "x.ini"),
        ),
        ("coverage run --source pkg -m pytest --cov", ("pytest",)),
        ("python -W error -m coverage run -m py.test -x", ("pytest",)),
        ("env A=1 python3.11 -m unittest discover -v", ("unittest",)),
        ("xvfb-run -a trial pkg", ("command", "xvfb-run", "-a", "trial", "pkg")),
        ("ruff check .", None),
        ("pip install -e .", None),
        ("", None),
    ],
)
def test_what_a_configured_command_amounts_to(argv: str, expected: tuple[str, ...] | None) -> None:
    found = suites_of([ConfiguredCommand(tuple(argv.split()), "tox.ini [testenv]")])
    assert [(suite.runner, *suite.argv) for suite in found] == ([expected] if expected else [])


def test_a_command_outside_the_tree_is_none() -> None:
    for cwd in ("/etc", "../x", "a/../../b"):
        assert suites_of([ConfiguredCommand(("trial", "x"), "tox.ini", {}, cwd)]) == ()


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
