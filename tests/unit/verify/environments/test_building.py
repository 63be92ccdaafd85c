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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.verify.environments.building import HostPython, Recipe, build_environment, find_python


def said_by(python: Path, code: str) -> str:
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_an_environment_is_built_once(scripted: Recipe, tmp_path: Path) -> None:
    notes: list[str] = []

    first = build_environment(scripted, tmp_path, note=notes.append)
    again = build_environment(
        replace(scripted, packages=("tiny==1.0",) * 2), tmp_path, note=notes.append
    )

    assert first == again
    assert first.installed == ("tiny==1.0",)
    assert notes == ["environment: Python 3.11.9 with tiny==1.0"]
    log = (tmp_path / f"{scripted.key}.log").read_text()
    assert "install --no-input" in log
    assert "--only-binary=:all: --no-index --find-links=/wheels -- tiny==1.0" in log


def test_no_key_reaches_a_build(
    scripted: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-value")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")

    build_environment(replace(scripted, packages=("shown",)), tmp_path)

    (log,) = tmp_path.glob("*.log")
    assert "HTTPS_PROXY=http://proxy.invalid" in log.read_text()
    assert "secret-value" not in log.read_text()


def test_the_key_depends_on_what_it_is_made_of(scripted: Recipe) -> None:
    others = (
        replace(scripted, packages=("smaller", *scripted.packages)),
        replace(scripted, python=replace(scripted.python, version="3.0")),
        replace(scripted, index=""),
        replace(scripted, find_links=()),
        replace(scripted, sdist=True),
    )

    assert len({scripted.key, *(other.key for other in others)}) == 6
    turned = (replace(scripted, packages=packages).key for packages in (("a", "b"), ("b", "a")))
    assert len(set(turned)) == 1


def test_one_that_was_removed_is_built_again(scripted: Recipe, tmp_path: Path) -> None:
    built = build_environment(scripted, tmp_path)
    built.python.unlink()

    assert build_environment(scripted, tmp_path).python.exists()
    (tmp_path / f"{scripted.key}.json").write_text("{torn")
    assert build_environment(scripted, tmp_path).python.exists()
    assert len(list(tmp_path.glob("*-*"))) == 1  # nothing is left of the others


@pytest.mark.parametrize(("package", "sdist"), [("sourced", False), ("sourced", True)])
def test_what_cannot_be_installed_is_told(
    scripted: Recipe, tmp_path: Path, package: str, sdist: bool
) -> None:
    notes: list[str] = []
    words = rf"pip install failed \(1\): .*for sourced; correct the spec \(output: {tmp_path}"

    with pytest.raises(ConfigurationError, match=words):
        build_environment(
            replace(scripted, packages=(package,), sdist=sdist), tmp_path, note=notes.append
        )

    assert not list(tmp_path.glob("*-*"))
    assert ("run their code on this machine" in notes[-1]) == sdist


def test_the_last_error_of_pip_is_told_and_the_rest_is_in_the_log(
    scripted: Recipe, tmp_path: Path
) -> None:
    chatty = replace(scripted, packages=("chatty",))
    with pytest.raises(ConfigurationError, match=r"failed \(1\): Cannot install: 0{284};"):
        build_environment(chatty, tmp_path)
    assert "Traceback" in (tmp_path / f"{chatty.key}.log").read_text()


def test_whoever_comes_at_the_same_time_waits(scripted: Recipe, tmp_path: Path) -> None:
    notes: list[str] = []

    with ThreadPoolExecutor(3) as pool:
        found = list(
            pool.map(lambda _: build_environment(scripted, tmp_path, note=notes.append), range(3))
        )

    assert len(set(found)) == len(notes) == 1


def test_it_can_be_stopped(scripted: Recipe, tmp_path: Path) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()

    with pytest.raises(ConfigurationError, match="stopped"):
        build_environment(replace(scripted, packages=("endless",)), tmp_path, cancel=cancel)
    assert not list(tmp_path.glob("*-*"))


@pytest.mark.slow
class TestWithPip:
    """Runs the real tools, which take seconds."""

    def test_an_environment_has_its_packages(self, recipe: Recipe, tmp_path: Path) -> None:
        built = build_environment(recipe, tmp_path)

        assert said_by(built.python, "import tiny, smaller; print(tiny.value)") == "1"
        assert {"tiny==1.0", "smaller==2.0"} <= set(built.installed)

    def test_a_source_archive_is_not_built(self, recipe: Recipe, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="No matching distribution found for sourced"):
            build_environment(replace(recipe, packages=("sourced",)), tmp_path)


@pytest.fixture
def slow_python(tmp_path: Path, scripted: Recipe) -> Iterator[HostPython]:
    """A Python that hangs at its first start and leaves its process id."""
    mark, script = tmp_path / "mark", tmp_path / "slow-python"
    script.write_text(
        f"#!/bin/sh\nif [ ! -e {mark} ]; then echo $$ >{mark}; exec sleep 120; fi\n"
        f'exec {scripted.python.path} "$@"\n'
    )
    script.chmod(0o755)
    yield replace(scripted.python, path=script)
    if mark.exists():
        with suppress(ProcessLookupError):
            os.kill(int(mark.read_text()), signal.SIGKILL)


_BUILDER = """
import sys
from pathlib import Path
from agent.verify.environments.building import HostPython, Recipe, build_environment
build_environment(Recipe(HostPython(Path(sys.argv[1]), sys.argv[2]), ()), Path(sys.argv[3]))
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

    built = build_environment(recipe, folder)

    assert built.python.exists()
    assert [path.name for path in folder.glob("*-*")] == [built.python.parent.parent.name]


@pytest.mark.parametrize("name", [f"{sys.version_info[0]}.{sys.version_info[1]}", sys.executable])
def test_a_python_is_found(name: str, host: HostPython) -> None:
    assert find_python(name).version == host.version


@pytest.mark.parametrize("name", ["3.1", "no-such-python", "/no/such/python"])
def test_a_python_that_is_not_there(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no such Python here"):
        find_python(name)
