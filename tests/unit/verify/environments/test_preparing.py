"""Prepares what a spec says for a validation."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from agent.repository.snapshot import take_snapshot
from agent.settings import load
from agent.verify.environments import Environments
from agent.verify.environments.building import HostPython
from agent.verify.environments.preparing import (
    choose_suite,
    make_dist_info,
    prepare_target,
    read_static_version,
    surroundings,
)
from agent.verify.environments.spec import EnvironmentSpec
from agent.verify.executor import ProjectSetup
from agent.verify.runners.base import Suite


@pytest.mark.parametrize(
    ("command", "framework", "argv"),
    [
        ("python -m pytest -q -W ignore", "pytest", ("-q", "-W", "ignore")),
        ("pytest -p no:cov", "pytest", ("-p", "no:cov")),
        ("python3.9 -m unittest -v", "unittest", ()),
        ("nosetests -v", "command", ("/bin/sh", "-c", "nosetests -v")),
        ("python -m nose", "command", ("/bin/sh", "-c", "python -m nose")),
        ("python tool.py", "command", ("/bin/sh", "-c", "python tool.py")),
    ],
)
def test_commands_are_understood(
    make_repository: Make, command: str, framework: str, argv: tuple[str, ...]
) -> None:
    suite = choose_suite(command, take_snapshot(make_repository({"x.py": ""})))

    assert suite is not None
    assert (suite.runner, suite.argv) == (framework, argv)


def test_a_runner_of_the_project_is_read_from_its_tree(make_repository: Make) -> None:
    snapshot = take_snapshot(make_repository({"tests/runtests.py": "import django\n"}))

    suite = choose_suite("./tests/runtests.py --verbosity 2 --settings=x", snapshot)

    assert suite is not None
    assert suite.runner == "django"
    assert suite.argv[-3:] == ("--verbosity", "2", "--settings=x")
    without = take_snapshot(make_repository({"x.py": ""}, "other"))
    with pytest.raises(ConfigurationError, match="no such runner"):
        choose_suite("manage.py test", without)


def test_no_command_and_a_broken_one(make_repository: Make) -> None:
    snapshot = take_snapshot(make_repository({"x.py": ""}))

    assert choose_suite("", snapshot) is None
    with pytest.raises(ConfigurationError, match="quote it"):
        choose_suite("pytest 'x", snapshot)


Make = Callable[..., Path]

FILES: Mapping[str, str] = {"pyproject.toml": '[project]\nversion = "1.4"\n', "shop.py": ""}


def table(host: HostPython, **more: Any) -> dict[str, Any]:
    return {"python": str(host.path), "packages": ["tiny"], "index": "none", **more}


def test_a_spec_becomes_an_interpreter_and_surroundings(
    scripted: HostPython, make_repository: Make, tmp_path: Path
) -> None:
    own = {"metadata": True, "paths": ["lib"], "env": {"A": "1"}, "test": "pytest -q"}
    own["files"] = {"shop/_version.py": "v = '{version}'\n"}
    spec = EnvironmentSpec({"default": table(scripted), "projects": {"o/shop": own}}, tmp_path)
    environments = Environments(spec, tmp_path)
    snapshot = take_snapshot(make_repository(FILES))

    environment = environments.environment("o/shop")
    python, words = environments.build(environment)
    around = surroundings(environment, snapshot)

    assert python.parent.parent.parent == tmp_path / "environments"
    assert ", 1 packages (" in words
    assert around.suite == Suite("pytest", "the environment's test command", ("-q",))
    assert (around.environment, around.paths) == ({"A": "1"}, ("lib",))
    assert sorted(around.files) == [
        "shop-1.4.dist-info/INSTALLER",
        "shop-1.4.dist-info/METADATA",
        "shop/_version.py",
    ]
    assert around.files["shop/_version.py"] == b"v = '1.4'\n"


def test_the_surroundings_of_a_suite() -> None:
    around = ProjectSetup(None, {"A": "new"}, ("lib", "src"))
    suite = Suite("pytest", "why", environment={"A": "old", "B": "b"})

    assert around.applied_to(suite).environment == {"A": "new", "B": "b"}
    assert around.import_roots((".", "src", "tests")) == (".", "lib", "src", "tests")


def test_a_run_takes_what_the_spec_says_of_its_target(
    scripted: HostPython, make_repository: Make, tmp_path: Path
) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(
        f'[projects."o/shop"]\npython = "{scripted.path}"\nindex = "none"\n'
        'packages = ["tiny"]\n[[projects."o/shop".ranges]]\nsince = "1.4"\nenv = { NEW = "1" }\n'
    )
    snapshot = take_snapshot(make_repository(FILES, "o__shop"))
    flags = {"environments": path, "cache_dir": tmp_path / "cache"}
    notes: list[str] = []

    python, around = prepare_target(load(flags), snapshot, notes.append)
    chosen, same = prepare_target(load({**flags, "python": Path("/x")}), snapshot, notes.append)

    assert python is not None
    assert python.is_relative_to(tmp_path / "cache" / "environments")
    assert around.environment == {"NEW": "1"}
    assert (chosen, same) == (Path("/x"), around)
    assert notes[-1].startswith("environment of o/shop: Python 3.11.9, 1 packages")


PYPROJECT = """
[project]
name = "Some.Tool"
version = "1.2.3"
[project.scripts]
tool = "tool:main"
[project.entry-points.pytest11]
tool = "tool.plugin"
"""


def test_the_metadata_is_found(
    make_repository: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = take_snapshot(make_repository({"pyproject.toml": PYPROJECT}))
    place = tmp_path / "place"
    for path, data in make_dist_info("Some.Tool", "1.2.3", snapshot).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    monkeypatch.syspath_prepend(str(place))

    assert importlib.metadata.version("some-tool") == "1.2.3"
    points = importlib.metadata.distribution("some_tool").entry_points
    assert {(p.group, p.name, p.value) for p in points} == {
        ("console_scripts", "tool", "tool:main"),
        ("pytest11", "tool", "tool.plugin"),
    }
    assert "tool" not in sys.modules


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"pyproject.toml": PYPROJECT}, "1.2.3"),
        ({"pyproject.toml": '[tool.poetry]\nversion = "2.0b1"\n'}, "2.0b1"),
        ({"pyproject.toml": "[project]\ndynamic = ['version']\n", "x.py": ""}, ""),
        ({"pyproject.toml": "[broken", "setup.cfg": "[metadata]\nversion = 3.1\n"}, "3.1"),
        ({"setup.cfg": "[metadata]\nversion = attr: tool.v\n", "x.py": ""}, ""),
        ({"src/tool/__init__.py": '__version__ = "4.5.dev0"\n'}, "4.5.dev0"),
        ({"tool/__about__.py": "__version__: str = '6'\n"}, "6"),
        ({"tool/__init__.py": "__version__ = read()\n"}, ""),
        ({"other/__init__.py": "__version__ = '1'\n"}, ""),
    ],
)
def test_versions_in_plain_words(
    make_repository: Make, files: Mapping[str, str], version: str
) -> None:
    assert read_static_version("tool", take_snapshot(make_repository(files))) == version


def test_entry_points_of_setup_cfg(make_repository: Make) -> None:
    text = "[options.entry_points]\nconsole_scripts =\n    a = b:c\n    nonsense\n"

    files = make_dist_info("tool", "1", take_snapshot(make_repository({"setup.cfg": text})))

    assert files["tool-1.dist-info/entry_points.txt"] == b"[console_scripts]\na = b:c\n"
