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
    ("folder", "project"),
    [
        ("o__shop", "o/shop"),
        ("o+shop.git", "o/shop"),
        ("o/shop", "o/shop"),
        ("shop", "o/shop"),
        ("twice", ""),
        ("other__shop", ""),
        ("none", ""),
    ],
)
def test_a_project_is_told_by_its_folder(tmp_path: Path, folder: str, project: str) -> None:
    spec = EnvironmentSpec({"projects": {"o/shop": {}, "a/twice": {}, "b/twice": {}}}, tmp_path)
    assert spec.project_of(tmp_path / folder) == project


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default\n", "not valid TOML"),
        (f"default = {'[' * 100_000}", "nested too deeply"),
        ("[defaults]\n", "defaults: Extra inputs"),
        ("[default]\npackges = []\n", "default.packges: Extra inputs"),
        ('[projects."a/b"]\nrange = []\n', "projects.a/b.range: Extra inputs"),
        ('[default]\npackages = ["-r x.txt"]\n', "default.packages.0: .*option of pip"),
        ('[default]\npackages = "pytest"\n', "default.packages: .* tuple"),
        ('[default]\npaths = ["../x"]\n', "default.paths.0: .*inside the repository"),
        ('[default]\nfiles = { "/x" = "" }\n', "default.files"),
        ('[default]\nenv = { "A B" = "" }\n', "default.env"),
        ("[default]\nmetadata = 3\n", "default.metadata"),
        ("[default]\npython = 3.11\n", "default.python: .*string"),
        ('[projects.click]\npython = "3"\n', "projects.click: .*pattern"),
        ('[[projects."a/b".ranges]]\nuntil = 8.0\n', "ranges.0.until: .*string"),
        ('[[projects."a/b".ranges]]\nsince = "new"\n', "ranges.0.since: "),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=words):
        read_spec(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml: No such file"):
        read_spec(tmp_path / "none.toml")
