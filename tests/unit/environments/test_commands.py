"""Test commands of a spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.environments.commands import suite_of
from agent.errors import ConfigurationError
from agent.repository.snapshot import take_snapshot

Make = Callable[[Mapping[str, str]], Path]


@pytest.mark.parametrize(
    ("command", "framework", "argv"),
    [
        ("python -m pytest -q -W ignore", "pytest", ("-q", "-W", "ignore")),
        ("pytest -p no:cov", "pytest", ("-p", "no:cov")),
        ("python3.9 -m unittest -v", "unittest", ()),
        ("nosetests -v", "command", ("nosetests", "-v")),
        ("python -m nose", "command", ("python", "-m", "nose")),
        ("python tool.py", "command", ("python", "tool.py")),
    ],
)
def test_commands_are_understood(
    make_repository: Make, command: str, framework: str, argv: tuple[str, ...]
) -> None:
    suite = suite_of(command, take_snapshot(make_repository({"x.py": ""})))

    assert suite is not None
    assert (suite.framework, suite.argv) == (framework, argv)


def test_a_runner_of_the_project_is_read_from_its_tree(make_repository: Make) -> None:
    snapshot = take_snapshot(make_repository({"tests/runtests.py": "import django\n"}))

    suite = suite_of("./tests/runtests.py --verbosity 2 --settings=x", snapshot)

    assert suite is not None
    assert suite.framework == "django"
    assert suite.argv[-3:] == ("--verbosity", "2", "--settings=x")
    with pytest.raises(ConfigurationError, match="no such runner"):
        suite_of("bin/test", snapshot)


def test_no_command_and_a_broken_one(make_repository: Make) -> None:
    snapshot = take_snapshot(make_repository({"x.py": ""}))

    assert suite_of("", snapshot) is None
    with pytest.raises(ConfigurationError, match="quote it"):
        suite_of("pytest 'x", snapshot)
