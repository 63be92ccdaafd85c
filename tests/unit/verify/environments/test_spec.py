"""Reads what a spec says about a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.verify.environments.spec import Environment, EnvironmentSpec, read_spec

SPEC = """
[default]
python = "3.11"
packages = ["pytest==8.3.5"]
index = "none"
find_links = ["wheels", "https://example.invalid/w"]

[projects."Pallets/Click"]
packages = ["pytest<8"]
paths = ["src", "./lib/"]
env = { CI = "1" }
metadata = true

[[projects."Pallets/Click".ranges]]
until = "7.0"
python = "3.8"

[[projects."Pallets/Click".ranges]]
since = "8.1"
until = "8.10"
packages = ["pytest==8.0"]
version = "8.1.9"

[[projects."Pallets/Click".ranges]]
since_commit = "1234567"
until_commit = "89abcde"
test = "python -m unittest"
"""


@pytest.fixture
def spec(tmp_path: Path) -> EnvironmentSpec:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return read_spec(path)


def links(folder: Path) -> tuple[str, ...]:
    return (str(folder / "wheels"), "https://example.invalid/w")


def test_the_default_holds_for_every_project(spec: EnvironmentSpec, tmp_path: Path) -> None:
    assert spec.environment("o/unknown") == Environment(
        python="3.11", packages=("pytest==8.3.5",), index="none", find_links=links(tmp_path)
    )


def test_the_nearest_field_wins(spec: EnvironmentSpec, tmp_path: Path) -> None:
    own = Environment(
        python="3.11",
        packages=("pytest<8",),
        env={"CI": "1"},
        paths=("src", "lib"),
        metadata="click",
        index="none",
        find_links=links(tmp_path),
    )

    assert spec.environment("pallets/click") == own


@pytest.mark.parametrize(
    ("version", "python", "packages"),
    [
        ("6.7", "3.8", ("pytest<8",)),
        ("7.0", "3.11", ("pytest<8",)),  # `until` is not in it
        ("7.0.0", "3.11", ("pytest<8",)),
        ("v8.1.0", "3.11", ("pytest==8.0",)),  # `since` is
        ("8.9", "3.11", ("pytest==8.0",)),
        ("8.10", "3.11", ("pytest<8",)),
        ("", "3.11", ("pytest<8",)),
    ],
)
def test_ranges_by_version(
    spec: EnvironmentSpec, version: str, python: str, packages: tuple[str, ...]
) -> None:
    found = spec.environment("pallets/click", version)

    assert (found.python, found.packages) == (python, packages)


@pytest.mark.parametrize(
    ("history", "test"),
    [({"1234567"}, "python -m unittest"), ({"1234567", "89abcde"}, ""), (set[str](), "")],
)
def test_ranges_by_commit(spec: EnvironmentSpec, history: set[str], test: str) -> None:
    found = spec.environment("pallets/click", "7.5", holds=history.__contains__)

    assert found.test == test


def test_projects_are_known_by_name(spec: EnvironmentSpec) -> None:
    assert spec.names("pallets/click")
    assert not spec.names("o/click")
    assert spec.find_by_name("click") == "Pallets/Click"
    assert spec.find_by_name("flask") == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default\n", "not valid TOML"),
        ("[defaults]\n", r"defaults: no such field; did you mean 'default'\? \(known: default, p"),
        (
            "[default]\npackges = []\n",
            r"\[default\] packges: no such field; .*'packages'\?.*sdist",
        ),
        ('[projects."a/b"]\nrange = []\n', r'\[projects."a/b"\] range: no such field; .*ranges'),
        ('[default]\npackages = ["-r x.txt"]\n', r"\[default\] packages, entry 1: .*option of pip"),
        ('[default]\npackages = ["a", "b=1"]\n', r"packages, entry 2: 'b=1' is no requirement"),
        (
            '[default]\npackages = "pytest"\n',
            r"\[default\] packages: a list of requirements .* is n",
        ),
        ('[default]\npaths = ["../x"]\n', r"\[default\] paths, entry 1: .*inside the repository"),
        ('[default]\nfiles = { "/x" = "" }\n', r"\[default\] files"),
        ('[default]\nenv = { "A B" = "" }\n', r"\[default\] env"),
        (
            "[default]\nmetadata = 3\n",
            r"\[default\] metadata: true, false or the name .* is needed",
        ),
        ("[default]\npython = 3.11\n", r'\[default\] python: a text such as "3.11" is needed'),
        ("default = 3\n", r"default: a table \[default\] is needed"),
        ('[projects.click]\npython = "3"\n', r'\[projects.click\]: a project is named as "owner/n'),
        (
            '[[projects."a/b".ranges]]\nsince_commit = "main"\n',
            "ranges, entry 1, since_commit: a c",
        ),
        ('[[projects."a/b".ranges]]\nuntil = 8.0\n', r"entry 1, until: a version as a text such"),
        ('[[projects."a/b".ranges]]\nsince = "new"\n', "entry 1, since: 'new' is no version"),
        (
            '[[projects."a/b".ranges]]\nsince = "8.1"\nuntil = "8.0"\n',
            "ranges, entry 1: since 8.1 is not before until 8.0",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=words):
        read_spec(path)


@pytest.mark.parametrize(
    "requirement",
    [
        "pytest",
        "pytest==8.3.5",
        "pytest >=7, <9",
        "a.b-c_d[x,y]~=1.0; python_version < '3.8'",
        "importlib-metadata; python_version < '3.8'",
        "a (>=1.0)",
        "a==1.*",
        "a===1!2.0+local",
        "a @ https://example.invalid/a.whl",
        "https://example.invalid/a.whl",
        "git+https://example.invalid/a.git@v1",
        "/wheels/a-1.0-py3-none-any.whl",
    ],
)
def test_what_pip_takes_is_a_requirement(tmp_path: Path, requirement: str) -> None:
    spec = EnvironmentSpec({"default": {"packages": [requirement]}}, tmp_path)

    assert spec.environment("a/b").packages == (requirement,)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml: No such file"):
        read_spec(tmp_path / "none.toml")
