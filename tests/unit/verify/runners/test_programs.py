"""Installations made of empty files: nothing is run to find a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.verify.runners.base import Toolchain
from agent.verify.tools import find_programs
from tests.support.fakes import MemorySnapshot


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    return path


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
    assert find(tmp_path, home, "go", go.parent).read_only == ()


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


def test_what_is_not_there_is_named_and_python_is_found_elsewhere(
    tmp_path: Path, home: Path
) -> None:
    names = ["python", "node", "go"]
    found = find_programs(names, snapshot(tmp_path), search_path="/nonexistent", home=home)
    assert found.missing == ("go", "node")
    assert found.program("node") == "node"
