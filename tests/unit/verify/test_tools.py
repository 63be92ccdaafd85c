from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.verify.runners.base import Interpreter
from agent.verify.tools import candidates


def choose_interpreter(
    root: Path, explicit: Path | None, virtual_env: str | None, search_path: str | None = None
) -> Interpreter:
    return candidates(root, explicit, virtual_env, search_path=search_path)[0]


def program(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def environment(folder: Path, version: str = "3.9.1") -> Path:
    path = program(folder / "bin" / "python")
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    return root


def test_the_explicit_one_wins_and_is_the_only_one(repository: Path, tmp_path: Path) -> None:
    environment(repository / ".venv")
    chosen = environment(tmp_path / "mine", "3.10.2")
    found = candidates(repository, chosen, str(tmp_path / "active"), search_path="")
    assert [(f.path, f.version, f.certain) for f in found] == [(chosen, "3.10.2", True)]
    assert choose_interpreter(repository, chosen.parent.parent, None).path == chosen


def test_an_explicit_one_that_is_none_is_an_error(repository: Path, tmp_path: Path) -> None:
    for wrong in (tmp_path / "missing", program(tmp_path / "script", b"#!/bin/sh\n"), tmp_path):
        with pytest.raises(ConfigurationError, match="--python"):
            choose_interpreter(repository, wrong, None)


def test_the_order(repository: Path, tmp_path: Path) -> None:
    active = environment(tmp_path / "active")
    own_folder = environment(repository / "venv")
    hidden = environment(repository / ".venv")
    on_path = program(tmp_path / "bin" / "python3")
    found = candidates(
        repository, None, str(tmp_path / "active"), search_path=str(tmp_path / "bin")
    )
    assert [f.path for f in found] == [active, hidden, own_folder, on_path, Path(sys.executable)]
    assert [f.certain for f in found] == [True, True, True, False, False]


def test_the_repository_comes_before_patchshots_own_environment(repository: Path) -> None:
    hidden = environment(repository / ".venv")
    assert choose_interpreter(repository, None, sys.prefix, search_path="").path == hidden


def test_patchshots_own_active_environment_comes_before_the_systems_python(
    repository: Path, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "python3")
    found = choose_interpreter(repository, None, sys.prefix, search_path=str(tmp_path / "bin"))
    assert found.path == Path(sys.prefix) / "bin" / "python"
    assert not found.certain


def test_a_committed_environment_is_not_taken(repository: Path) -> None:
    environment(repository / ".venv")
    for tracked in (".venv", ".venv/pyvenv.cfg", ".venv/bin/python"):
        found = candidates(
            repository, None, None, tracked=lambda path, t=tracked: path == t, search_path=""
        )
        assert [f.path for f in found] == [Path(sys.executable)]


def test_the_own_interpreter_is_the_last_resort(repository: Path) -> None:
    found = choose_interpreter(
        repository, None, "/nonexistent", search_path="/nonexistent:relative:"
    )
    assert found.path == Path(sys.executable)
    assert found.version == ".".join(map(str, sys.version_info[:3]))


class TestPyenv:
    @pytest.fixture
    def pyenv(self, tmp_path: Path) -> Path:
        root = tmp_path / "pyenv"
        program(root / "shims" / "python3", b"#!/usr/bin/env bash\n")
        for version in ("3.8.1", "3.12.0"):
            program(root / "versions" / version / "bin" / "python3")
        (root / "version").write_text("3.12.0\n")
        return root

    def found(self, repository: Path, pyenv: Path) -> Path:
        return choose_interpreter(repository, None, None, search_path=str(pyenv / "shims")).path

    def test_a_shim_is_resolved_to_the_global_version(self, repository: Path, pyenv: Path) -> None:
        assert self.found(repository, pyenv) == pyenv / "versions/3.12.0/bin/python3"

    def test_the_repositorys_version_wins(self, repository: Path, pyenv: Path) -> None:
        (repository / ".python-version").write_text("3.8.1\n")
        assert self.found(repository, pyenv) == pyenv / "versions/3.8.1/bin/python3"

    def test_a_version_cannot_lead_elsewhere(self, repository: Path, pyenv: Path) -> None:
        program(pyenv / "evil" / "bin" / "python3")
        (repository / ".python-version").write_text("../evil\n..\n/etc\n")
        assert self.found(repository, pyenv) == pyenv / "versions/3.12.0/bin/python3"

    def test_an_explicit_shim_is_resolved_too(self, repository: Path, pyenv: Path) -> None:
        found = choose_interpreter(repository, pyenv / "shims" / "python3", None)
        assert found.path == pyenv / "versions/3.12.0/bin/python3"

    def test_another_script_on_the_path_is_passed_over(
        self, repository: Path, tmp_path: Path
    ) -> None:
        program(tmp_path / "a" / "python3", b"#!/bin/sh\n")
        real = program(tmp_path / "b" / "python3")
        path = f"{tmp_path / 'a'}:{tmp_path / 'b'}"
        assert choose_interpreter(repository, None, None, search_path=path).path == real


def test_environments_of_the_scope_come_first(repository: Path) -> None:
    of_root = environment(repository / ".venv")
    between = environment(repository / "services/venv")
    own = environment(repository / "services/billing/.venv")
    environment(repository / "services/orders/.venv")
    found = candidates(repository, None, None, scope="services/billing", search_path="")
    assert [one.path for one in found][:3] == [own, between, of_root]
    assert found[0].why == "the repository's services/billing/.venv"
    committed = candidates(
        repository, None, None, scope="services/billing", search_path="",
        tracked="services/billing/.venv/pyvenv.cfg".__eq__,
    )  # fmt: skip
    assert committed[0].path == between
