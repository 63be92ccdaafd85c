"""tox and nox: configuration that is read and never run."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.verify import Suite
from tests.support.runners import command_of, detected


def suite(file: str, text: str) -> Suite:
    return detected({file: text, "setup.py": ""})


def test_substitutions_that_mean_something_outside_tox_are_carried_out() -> None:
    text = """
[testenv]
changedir = sub
setenv =
    MODE = fast
    HASH = {env:HASH:0}
    py38: OLD = 1
commands =
    py3,cov: coverage run -m trial {posargs:{toxinidir}/tests} \\
      {envtmpdir}/x
"""
    assert suite("tox.ini", text) == Suite(
        "command",
        "tox.ini [testenv] runs coverage run -m trial",
        ("coverage", "run", "-m", "trial", "./tests", "/tmp/x"),
        "sub",
        {"MODE": "fast", "HASH": "0"},
    )


def test_a_command_with_an_unknown_substitution_is_passed_over() -> None:
    text = (
        "[testenv]\ncommands =\n  trial {envsitepackagesdir}/pkg\n  trial {[a]x}\n  trial tests\n"
    )
    assert suite("tox.ini", text).argv == ("trial", "tests")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tox.ini", "[testenv]\nsetenv = A=1\ncommands = trial t\n"),
        ("setup.cfg", "[testenv]\nsetenv = A=1\ncommands = trial t\n"),
        (
            "pyproject.toml",
            '[tool.tox]\nlegacy_tox_ini = """\n[testenv]\nsetenv=A=1\ncommands=trial t\n"""\n',
        ),
        (
            "noxfile.py",
            "@nox.session\ndef tests(s):\n    s.run('trial', 't', *s.posargs, env={'A': '1'})\n",
        ),
    ],
)
def test_every_place_where_a_command_may_be_configured_is_read(file: str, text: str) -> None:
    found = suite(file, text)
    assert (found.runner, found.argv, found.environment) == ("command", ("trial", "t"), {"A": "1"})


@example(":\n :")
@settings(deadline=None)
@given(st.text(alphabet="[]{}:=#\\\n \ttestenvcommands\"'-!,."))
def test_any_tox_configuration_can_be_read(text: str) -> None:
    for file in ("tox.ini", "pyproject.toml", "setup.cfg"):
        suite(file, f"[testenv]\ncommands = {text}\n{text}")
        suite(file, text)


NOX = """
import nox, os
os.system("touch /tmp/never")

@nox.session
def lint(session):
    session.run("trial", "lint")

@nox.session(python=["3.11", "3.12"])
def tests(s):
    s.install("-e", ".")
    s.run("trial", some_variable)
    s.run("python", "-m", "pytest", "-o", "x=y", *s.posargs, env={"A": "1", "B": os.environ["B"]})
"""


def test_a_noxfile_is_read_from_its_syntax_tree_sessions_of_tests_first() -> None:
    why = "noxfile.py, session tests runs python -m pytest -o"
    assert suite("noxfile.py", NOX) == Suite("pytest", why, ("-o", "x=y"), ".", {"A": "1"})


@settings(deadline=None)
@given(st.text())
def test_any_noxfile_can_be_read(text: str) -> None:
    suite("noxfile.py", text)
    call = f"session.run({text!r}, {text})"
    suite("noxfile.py", f"import nox\n@nox.session\ndef tests(session):\n    {call}\n")


@pytest.mark.parametrize(
    ("command", "runner", "argv"),
    [
        ("pytest -q --ds=app.settings -c x.ini tests", "pytest", "--ds=app.settings -c x.ini"),
        ("coverage run --source pkg -m pytest -o a=b --cov", "pytest", "-o a=b"),
        ("python -W error -m coverage run -m py.test -c x", "pytest", "-c x"),
        ("env A=1 python3.11 -m unittest discover -v", "unittest", ""),
        ("xvfb-run -a trial pkg", "command", "xvfb-run -a trial pkg"),
        ("ruff check .", "pytest", ""),
        ("pip install -e .", "pytest", ""),
    ],
)
def test_what_a_configured_command_amounts_to(command: str, runner: str, argv: str) -> None:
    found = suite("tox.ini", f"[testenv]\ncommands = {command}\n")
    assert (found.runner, " ".join(found.argv)) == (runner, argv)


@pytest.mark.parametrize("folder", ["/etc", "../x", "a/../../b"])
def test_a_command_outside_the_tree_is_none(folder: str) -> None:
    text = f"[testenv]\nchangedir = {folder}\ncommands = trial x\n"
    assert suite("tox.ini", text).runner == "pytest"


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
