"""Interpreters and programs, found in installations made of empty files: nothing is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.verify.runners.base import Interpreter, Toolchain
from agent.verify.tools import candidates, find_programs
from tests.support.fakes import MemorySnapshot


def choose_interpreter(
    root: Path, explicit: Path | None, virtual_env: str | None, search_path: str | None = None
) -> Interpreter:
    return candidates(root, explicit, virtual_env, search_path=search_path)[0]


def program(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def environment(folder: Path) -> Path:
    return program(folder / "bin" / "python")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    return root


def test_the_explicit_one_wins_and_is_the_only_one(repository: Path, tmp_path: Path) -> None:
    environment(repository / ".venv")
    chosen = environment(tmp_path / "mine")
    found = candidates(repository, chosen, str(tmp_path / "active"), search_path="")
    assert [(f.path, f.certain) for f in found] == [(chosen, True)]
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


# ------------------------------------------------------------------------------------- programs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def snapshot(tmp_path: Path, **files: str) -> MemorySnapshot:
    found = MemorySnapshot({"a.txt": "", **files})
    found.root = tmp_path / "repo"
    found.root.mkdir(exist_ok=True)
    return found


def find(tmp_path: Path, home: Path, name: str, *folders: Path, **files: str) -> Toolchain:
    path = ":".join(map(str, folders))
    return find_programs([name], snapshot(tmp_path, **files), search_path=path, home=home)


def test_a_proxy_of_rustup_stands_for_the_toolchain_that_it_would_choose(
    tmp_path: Path, home: Path
) -> None:
    rustup = program(home / ".cargo/bin/rustup")
    (home / ".cargo/bin/cargo").symlink_to("rustup")
    (home / ".cargo/registry").mkdir()
    (home / ".cargo/credentials.toml").write_text("token")
    (home / ".rustup").mkdir()
    (home / ".rustup/settings.toml").write_text('default_toolchain = "stable-x86_64"\n')
    chosen = {}
    for name in ("stable-x86_64", "1.70-x86_64"):
        chosen[name] = program(home / ".rustup/toolchains" / name / "bin/cargo")
        (chosen[name].parent.parent / "lib/rustlib").mkdir(parents=True)
    found = find(tmp_path, home, "cargo", rustup.parent)
    assert found.programs == {"cargo": chosen["stable-x86_64"]}
    assert found.read_only == (
        home / ".cargo/registry",
        home / ".rustup/toolchains/stable-x86_64",
    )
    assert found.environment["CARGO_HOME"] == str(home / ".cargo")
    pinned = {"rust-toolchain.toml": '[toolchain]\nchannel = "1.70"\n'}
    found = find(tmp_path, home, "cargo", rustup.parent, **pinned)
    assert found.program("cargo") == str(chosen["1.70-x86_64"])
    for hostile in ("../../../etc", "/etc", "", "[", "x" * 100_000):
        found = find(tmp_path, home, "cargo", rustup.parent, **{"rust-toolchain": hostile})
        assert found.program("cargo") == str(chosen["stable-x86_64"])


def test_a_shim_is_passed_over_for_the_real_node_later_on_path(tmp_path: Path, home: Path) -> None:
    shims, real = home / ".volta/bin", home / ".nvm/versions/node/v20"
    program(shims / "volta-shim")
    (shims / "node").symlink_to("volta-shim")
    program(real / "bin/node")
    (real / "lib/node_modules").mkdir(parents=True)
    found = find(tmp_path, home, "node", shims, real / "bin")
    assert found.programs == {"node": real / "bin/node"}
    assert found.read_only == (real / "bin/node", real / "lib/node_modules")
    assert found.folders() == (str(real / "bin"),)


def test_a_program_in_the_home_itself_never_shows_the_home(tmp_path: Path, home: Path) -> None:
    program(home / "bin/node")
    found = find(tmp_path, home, "node", home / "bin")
    assert found.read_only == (home / "bin/node",)
    go = program(home / "bin/go")
    (home / "pkg/tool").mkdir(parents=True)
    assert find(tmp_path, home, "go", go.parent).read_only == (go,)


def test_installed_packages_are_shown_unless_the_repository_brings_them(
    tmp_path: Path, home: Path
) -> None:
    bin_ = program(home / "n/bin/node").parent
    root = snapshot(tmp_path).root
    for folder in ("node_modules", "web/node_modules", "other/node_modules"):
        (root / folder).mkdir(parents=True)
    files = {
        "package.json": "{}",
        "web/package.json": "{}",
        "web/node_modules/x/index.js": "",
        "gone/package.json": "{}",
    }
    found = find(tmp_path, home, "node", bin_, **files)
    assert found.read_only == (bin_ / "node", root / "node_modules")


def test_a_link_in_the_place_of_packages_is_not_followed(tmp_path: Path, home: Path) -> None:
    bin_ = program(home / "n/bin/node").parent
    secret = tmp_path / "secret"
    secret.mkdir()
    root = snapshot(tmp_path).root
    (root / "node_modules").symlink_to(secret)
    found = find(tmp_path, home, "node", bin_, **{"package.json": "{}"})
    assert found.read_only == (bin_ / "node",)


def test_a_program_that_the_repository_brings_is_not_taken(tmp_path: Path, home: Path) -> None:
    inside = program(snapshot(tmp_path).root / "bin/make")
    found = find(tmp_path, home, "make", inside.parent)
    assert (found.programs, found.missing) == ({}, ("make",))
    linked = tmp_path / "links"
    linked.mkdir()
    (linked / "make").symlink_to(inside)
    assert find(tmp_path, home, "make", linked).missing == ("make",)
    assert find(tmp_path, home, "make", Path("relative")).missing == ("make",)


def test_java_and_maven_come_with_their_own_settings_and_no_users(
    tmp_path: Path, home: Path
) -> None:
    jvm, maven = tmp_path / "jvm", tmp_path / "maven"
    program(jvm / "bin/java")
    (jvm / "lib").mkdir()
    program(maven / "bin/mvn")
    for folder in ("boot", "conf/logging"):
        (maven / folder).mkdir(parents=True)
    (maven / "bin/m2.conf").touch()
    (home / ".m2/repository").mkdir(parents=True)
    (home / ".m2/settings.xml").write_text("password")
    path = f"{jvm}/bin:{maven}/bin"
    found = find_programs(["java", "mvn"], snapshot(tmp_path), search_path=path, home=home)
    assert found.environment["JAVA_HOME"] == str(jvm)
    assert f"-Dmaven.repo.local={home}/.m2/repository" in found.environment["MAVEN_OPTS"]
    assert home / ".m2/repository" in found.read_only
    assert not any("settings.xml" in str(path) or path == home / ".m2" for path in found.read_only)
