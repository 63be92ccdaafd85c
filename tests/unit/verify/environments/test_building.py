"""Environments from wheels, without a network."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from agent.verify.environments import Environment, Environments
from agent.verify.environments.building import (
    FOLDER,
    HostPython,
    environment_key,
    find_python,
)
from agent.verify.environments.spec import EnvironmentSpec
from tests.support.wheels import make_wheel


def build(host: HostPython, environment: Environment, cache: Path, **more: Any) -> tuple[Path, str]:
    own = environment.model_copy(update={"python": str(host.path)})
    return Environments(EnvironmentSpec({}, cache), cache, **more).build(own)


def test_an_environment_is_built_once(
    scripted: HostPython, environment: Environment, tmp_path: Path
) -> None:
    notes: list[str] = []
    twice = environment.model_copy(update={"packages": ("tiny==1.0",) * 2})
    with ThreadPoolExecutor(3) as pool:
        built = pool.map(
            lambda one: build(scripted, one, tmp_path, note=notes.append),
            (environment, twice, environment),
        )
    ((python, words),) = set(built)
    assert python.parent.parent.parent == tmp_path / FOLDER
    assert words.startswith("Python 3.11.9, 1 packages (")
    assert notes == ["environment: Python 3.11.9 with tiny==1.0"]
    log = (tmp_path / FOLDER / f"{environment_key(scripted, environment)}.log").read_text()
    assert "install --no-input" in log
    assert "--only-binary=:all: --no-index --find-links=/wheels -- tiny==1.0" in log


def test_no_key_reaches_a_build(
    scripted: HostPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-value")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    build(scripted, Environment(packages=("shown",)), tmp_path)
    (log,) = (tmp_path / FOLDER).glob("*.log")
    assert "HTTPS_PROXY=http://proxy.invalid" in log.read_text()
    assert "secret-value" not in log.read_text()


def test_the_key_depends_on_what_it_is_made_of(
    scripted: HostPython, environment: Environment
) -> None:
    changes = ({"packages": ("x",)}, {"index": ""}, {"find_links": ()}, {"sdist": True})
    others = [environment.model_copy(update=change) for change in changes]
    keys = {environment_key(scripted, one) for one in (environment, *others)}
    keys.add(environment_key(replace(scripted, version="3.0"), environment))
    assert len(keys) == 6
    orders = (Environment(packages=packages) for packages in (("a", "b"), ("b", "a")))
    assert len({environment_key(scripted, one) for one in orders}) == 1


def test_one_that_is_not_whole_is_built_again(
    scripted: HostPython, environment: Environment, tmp_path: Path
) -> None:
    python, _ = build(scripted, environment, tmp_path)
    for file in (python, next(python.parent.parent.glob("*.json"))):
        file.unlink()
        (python.parent / "left").touch()
        build(scripted, environment, tmp_path)
        assert file.exists()
        assert not (python.parent / "left").exists()


@pytest.mark.parametrize("sdist", [False, True])
def test_what_cannot_be_installed_is_told(
    scripted: HostPython, tmp_path: Path, sdist: bool
) -> None:
    notes: list[str] = []
    environment = Environment(packages=("sourced",), sdist=sdist)
    words = r"pip install failed \(1\): No match for sourced 0+; correct the spec \(output: "
    with pytest.raises(ConfigurationError, match=words):
        build(scripted, environment, tmp_path, note=notes.append)
    key = environment_key(scripted, environment)
    assert not (tmp_path / FOLDER / key).exists()
    assert "Traceback" in (tmp_path / FOLDER / f"{key}.log").read_text()
    assert ("run their code" in notes[-1]) == sdist


def test_it_can_be_stopped(scripted: HostPython, tmp_path: Path) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    environment = Environment(packages=("endless",))
    with pytest.raises(ConfigurationError, match="stopped"):
        build(scripted, environment, tmp_path, cancel=cancel)
    assert not (tmp_path / FOLDER / environment_key(scripted, environment)).exists()


@pytest.mark.slow
def test_real_pip_installs_wheels_and_builds_no_source_archive(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "tiny", "1.0", {"tiny.py": "value = 1\n"}, requires=("smaller",))
    make_wheel(wheels, "smaller", "2.0", {"smaller.py": ""})
    (wheels / "sourced-1.0.tar.gz").write_bytes(b"not an archive")
    host, folder = find_python(""), tmp_path / "environments"
    of_tiny = Environment(packages=("tiny==1.0",), index="none", find_links=(str(wheels),))
    python, _ = build(host, of_tiny, folder)
    code = "import tiny, smaller; print(tiny.value)"
    assert subprocess.check_output([str(python), "-c", code], timeout=60) == b"1\n"
    packages = json.loads(next(python.parent.parent.glob("*.json")).read_text())
    assert {"tiny==1.0", "smaller==2.0"} <= set(packages)
    of_source = of_tiny.model_copy(update={"packages": ("sourced",)})
    with pytest.raises(ConfigurationError, match="No matching distribution found for sourced"):
        build(host, of_source, folder)


@pytest.mark.parametrize("name", [f"{sys.version_info[0]}.{sys.version_info[1]}", sys.executable])
def test_a_python_is_found(name: str) -> None:
    assert find_python(name).version == find_python("").version


@pytest.mark.parametrize("name", ["3.1", "no-such-python", "/no/such/python"])
def test_a_python_that_is_not_there(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no such Python here"):
        find_python(name)
