"""Environments from wheels, without a network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agent.environments.building import Built, Recipe, build
from agent.environments.pythons import HostPython, find_python
from agent.errors import ConfigurationError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="module")
def built(recipe: Recipe, folder: Path) -> Built:
    return build(recipe, folder)


def said_by(python: Path, code: str) -> str:
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_an_environment_has_its_packages(built: Built) -> None:
    assert said_by(built.python, "import tiny, smaller; print(tiny.value)") == "1"
    assert {"tiny==1.0", "smaller==2.0"} <= set(built.installed)


def test_it_is_built_once(recipe: Recipe, folder: Path, built: Built) -> None:
    notes: list[str] = []

    again = build(replace(recipe, packages=("tiny==1.0", "tiny==1.0")), folder, note=notes.append)

    assert (again, notes) == (built, [])


def test_the_key_depends_on_what_it_is_made_of(recipe: Recipe) -> None:
    others = (
        replace(recipe, packages=("smaller", *recipe.packages)),
        replace(recipe, python=replace(recipe.python, version="3.0")),
        replace(recipe, index=""),
        replace(recipe, find_links=()),
        replace(recipe, sdist=True),
    )

    assert len({recipe.key, *(other.key for other in others)}) == 6
    turned = (replace(recipe, packages=packages).key for packages in (("a", "b"), ("b", "a")))
    assert len(set(turned)) == 1


def test_one_that_was_removed_is_built_again(recipe: Recipe, tmp_path: Path, built: Built) -> None:
    (tmp_path / f"{recipe.key}.json").write_text('{"folder": "gone", "installed": []}')
    (tmp_path / f"{recipe.key}-left").mkdir()
    empty = replace(recipe, packages=())

    assert build(empty, tmp_path).python.exists()
    with pytest.raises(ConfigurationError):  # and not taken for there
        build(replace(recipe, find_links=()), tmp_path)


def test_what_cannot_be_installed_is_told(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pip install failed.*nothere"):
        build(replace(recipe, packages=("nothere",)), tmp_path)
    assert not list(tmp_path.glob("*-*"))


def test_a_source_archive_is_not_built(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"only wheels are taken.*sdist = true"):
        build(replace(recipe, packages=("sourced",)), tmp_path)


def test_leave_to_build_is_said(recipe: Recipe, tmp_path: Path) -> None:
    notes: list[str] = []

    with pytest.raises(ConfigurationError):
        build(replace(recipe, packages=("sourced",), sdist=True), tmp_path, note=notes.append)

    assert "run their code on this machine" in notes[1]


def test_an_index_that_is_not_there(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    away = replace(recipe, index="http://127.0.0.1:9/simple", find_links=())

    with pytest.raises(ConfigurationError, match="index cannot be reached from here"):
        build(away, tmp_path)


def test_whoever_comes_at_the_same_time_waits(recipe: Recipe, tmp_path: Path) -> None:
    notes: list[str] = []
    empty = replace(recipe, packages=())

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: build(empty, tmp_path, note=notes.append), range(3)))

    assert len(set(found)) == len(notes) == 1


def test_it_can_be_stopped(recipe: Recipe, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()

    with pytest.raises(ConfigurationError, match="stopped"):
        build(recipe, tmp_path, cancel=cancel)
    assert not list(tmp_path.glob("*-*"))


@pytest.fixture
def slow_python(tmp_path: Path, host: HostPython) -> Iterator[HostPython]:
    """Hangs when it is started for the first time, and leaves its process id."""
    mark, script = tmp_path / "mark", tmp_path / "slow-python"
    script.write_text(
        f"#!/bin/sh\nif [ ! -e {mark} ]; then echo $$ >{mark}; exec sleep 120; fi\n"
        f'exec {host.path} "$@"\n'
    )
    script.chmod(0o755)
    yield replace(host, path=script)
    if mark.exists():
        try:
            os.kill(int(mark.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass


_BUILDER = """
import sys
from pathlib import Path
from agent.environments.building import Recipe, build
from agent.environments.pythons import HostPython
build(Recipe(HostPython(Path(sys.argv[1]), sys.argv[2]), ()), Path(sys.argv[3]))
"""


def test_a_kill_leaves_nothing_that_is_taken_for_whole(
    slow_python: HostPython, tmp_path: Path
) -> None:
    folder = tmp_path / "environments"
    arguments = (str(slow_python.path), slow_python.version, str(folder))
    process = subprocess.Popen([sys.executable, "-c", _BUILDER, *arguments])
    deadline = time.monotonic() + 60
    while not (tmp_path / "mark").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait(30)
    recipe = Recipe(slow_python, ())
    (folder / f"{recipe.key}-half").mkdir()

    built = build(recipe, folder)

    assert said_by(built.python, "print(1)") == "1"
    assert [path.name for path in folder.glob("*-*")] == [built.python.parent.parent.name]


@pytest.mark.parametrize("name", [f"{sys.version_info[0]}.{sys.version_info[1]}", sys.executable])
def test_a_python_is_found(name: str, host: HostPython) -> None:
    assert find_python(name).version == host.version


@pytest.mark.parametrize("name", ["3.1", "no-such-python", "/no/such/python"])
def test_a_python_that_is_not_there(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no such Python here"):
        find_python(name)
