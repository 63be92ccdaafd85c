"""tox: configuration that is read and never run."""

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
setenv =
    MODE = fast
    HASH = {env:HASH:0}
    py38: OLD = 1
commands =
    py3,cov: coverage run -m pytest {posargs:-c {toxinidir}/x.ini} \\
      -o {envtmpdir}/x
    py3,cov: {envpython} -m pytest {posargs:-c {toxinidir}/x.ini} \\
      -o a=b
"""
    why = "tox.ini [testenv] runs python -m pytest -c"
    argv = ("-c", "./x.ini", "-o", "a=b")
    assert suite("tox.ini", text) == Suite("pytest", why, argv, ".", {"MODE": "fast", "HASH": "0"})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tox.ini", "[testenv]\nsetenv = A=1\ncommands = pytest -c x\n"),
        ("setup.cfg", "[testenv]\nsetenv = A=1\ncommands = pytest -c x\n"),
        (
            "pyproject.toml",
            '[tool.tox]\nlegacy_tox_ini = """\n[testenv]\nsetenv=A=1\ncommands=pytest -c x\n"""\n',
        ),
    ],
)
def test_every_place_where_a_command_may_be_configured_is_read(file: str, text: str) -> None:
    found = suite(file, text)
    assert (found.runner, found.argv, found.environment) == ("pytest", ("-c", "x"), {"A": "1"})


@example(":\n :")
@settings(deadline=None)
@given(st.text(alphabet="[]{}:=#\\\n \ttestenvcommands\"'-!,."))
def test_any_tox_configuration_can_be_read(text: str) -> None:
    for file in ("tox.ini", "pyproject.toml", "setup.cfg"):
        suite(file, f"[testenv]\ncommands = {text}\n{text}")
        suite(file, text)


@pytest.mark.parametrize(
    ("command", "runner", "argv"),
    [
        ("pytest -q --ds=app.settings -c x.ini tests", "pytest", "--ds=app.settings -c x.ini"),
        ("coverage run --source pkg -m pytest -o a=b --cov", "pytest", "-o a=b"),
        ("python -W error -m coverage run -m py.test -c x", "pytest", "-c x"),
        ("env A=1 python3.11 -m unittest discover -v", "unittest", ""),
        ("xvfb-run -a trial pkg", "pytest", ""),
        ("ruff check .", "pytest", ""),
        ("pip install -e unittest", "pytest", ""),
    ],
)
def test_what_a_configured_command_amounts_to(command: str, runner: str, argv: str) -> None:
    found = suite("tox.ini", f"[testenv]\ncommands = {command}\n")
    assert (found.runner, " ".join(found.argv)) == (runner, argv)


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
