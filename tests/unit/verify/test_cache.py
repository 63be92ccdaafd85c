"""The caches on disk: what is read back, and what counts as absent."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from agent.types import Channels, Outcome
from agent.verify.cache import (
    CacheFolder,
    ProbeCache,
    Probed,
    RunCache,
    digest_of,
    installed_packages,
    key_of,
    probe_key,
)
from tests.support.validation import run_of

NOW = 1_800_000_000.0
_ANSWER = {"key": "k", "version": "3.12.1", "pytest": "8.3.0", "modules": ["abc"]}
DAY = 24 * 3600.0


@pytest.fixture
def files(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "kept")


def dated(files: CacheFolder, key: str, at: float) -> Path:
    path = files.folder / f"{key}.json"
    os.utime(path, (at, at))
    return path


def test_an_entry_comes_back_and_is_the_users_own(files: CacheFolder) -> None:
    assert files.get("a", NOW) is None
    files.put("a", b"{}")
    assert dated(files, "a", NOW).stat().st_mode & 0o777 == 0o600
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert files.get("a", NOW) == b"{}"
    assert files.get("b", NOW) is None


@pytest.mark.parametrize("days", [-31, 31])
def test_what_is_old_or_of_a_wrong_clock_is_absent(files: CacheFolder, days: int) -> None:
    files.put("a", b"{}")
    dated(files, "a", NOW + days * DAY)
    assert files.get("a", NOW) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(files: CacheFolder, tmp_path: Path, kind: str) -> None:
    place = files.folder / "a.json"
    place.parent.mkdir()
    if kind == "link":
        (tmp_path / "other").write_bytes(b"{}")
        place.symlink_to(tmp_path / "other")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    assert files.get("a", NOW) is None


def test_what_is_too_large_is_neither_kept_nor_read(files: CacheFolder) -> None:
    files.put("a", b" " * (5 * 1024 * 1024))
    assert not files.folder.exists()
    files.put("b", b"")
    (files.folder / "b.json").write_bytes(b" " * (5 * 1024 * 1024))
    dated(files, "b", NOW)
    assert files.get("b", NOW) is None


def test_a_folder_that_cannot_be_written_costs_nothing_else(files: CacheFolder) -> None:
    files.folder.write_text("a file")
    files.put("a", b"{}")
    assert files.get("a", NOW) is None


def test_the_oldest_go_first(tmp_path: Path) -> None:
    files = CacheFolder(tmp_path, most_files=3)
    for number in range(5):
        files.put(f"k{number}", b"{}")
        dated(files, f"k{number}", number)  # older than what is written now
    assert {path.stem for path in tmp_path.iterdir()} == {"k2", "k3", "k4"}


def test_the_folder_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    files = CacheFolder(tmp_path, most_total=250)
    for number in range(4):
        files.put(f"k{number}", b"x" * 100)
        dated(files, f"k{number}", number)
    assert {path.stem for path in tmp_path.iterdir()} == {"k2", "k3"}


RUN = dataclasses.replace(
    run_of({"t::a": "passed", "t::b": "failed"}, failures={"t::b": "E \ud800"}, exit_code=1),
    channels=Channels(("report", "exit code"), (), ("a plugin",)),
)
KEY = key_of({"tree": "x"})
NOW = 1_800_000_000.0
_ANSWER = {"key": "k", "version": "3.12.1", "pytest": "8.3.0", "modules": ["abc"]}


@pytest.fixture
def cache(tmp_path: Path) -> RunCache:
    return RunCache(CacheFolder(tmp_path / "runs"))


def stored(tmp_path: Path, *, at: float = NOW) -> Path:
    (file,) = (tmp_path / "runs").iterdir()
    os.utime(file, (at, at))
    return file


def test_a_run_comes_back_as_it_was_and_says_so(cache: RunCache, tmp_path: Path) -> None:
    assert cache.get(KEY, NOW) is None
    run = dataclasses.replace(RUN, failures={"t::b": "E"})
    cache.put(KEY, run)
    file = stored(tmp_path)
    assert cache.get(KEY, NOW) == dataclasses.replace(run, cached=True)
    assert file.stat().st_mode & 0o777 == 0o600
    assert cache.get(key_of({"tree": "y"}), NOW) is None


@pytest.mark.parametrize(
    "run",
    [
        dataclasses.replace(RUN, ended="wall-limit"),
        dataclasses.replace(RUN, ended="inconsistent"),
        dataclasses.replace(RUN, channels=Channels(disagreements=("no",))),
        dataclasses.replace(RUN, outcomes={}),
        dataclasses.replace(RUN, outcomes={"t": Outcome.ERROR}),
    ],
)
def test_only_whole_runs_that_can_be_believed_are_kept(cache: RunCache, run: object) -> None:
    cache.put(KEY, run)  # type: ignore[arg-type]
    assert cache.get(KEY, NOW) is None


def test_text_that_is_no_unicode_is_no_harm(cache: RunCache) -> None:
    cache.put(KEY, RUN)
    cache.get(KEY, NOW)


def changed(**fields: object) -> bytes:
    entry = {
        "version": 1,
        "key": KEY,
        "command": [],
        "outcomes": {"t": "passed"},
        "exit_code": 0,
        "seconds": 1.0,
        "output_tail": "",
        "failures": {},
        "read": [],
        "traces": [],
    }
    return json.dumps({**entry, **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no JSON",
        b"[]",
        changed(version=2),
        changed(key=key_of({})),
        changed(outcomes={"t": "great"}),
        changed(exit_code="0"),
        changed(more=1),
        b" " * (5 * 1024 * 1024),
    ],
)
def test_what_we_did_not_write_is_as_good_as_absent(
    cache: RunCache, tmp_path: Path, data: bytes
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    file = folder / f"{KEY}.json"
    file.write_bytes(changed())
    os.utime(file, (NOW, NOW))
    assert cache.get(KEY, NOW) is not None
    file.write_bytes(data)
    os.utime(file, (NOW, NOW))
    assert cache.get(KEY, NOW) is None


def test_keys_tell_apart_what_differs_and_nothing_else(tmp_path: Path) -> None:
    assert key_of({"a": (1, 2), "b": {}}) == key_of({"b": {}, "a": [1, 2]})
    assert key_of({"a": 1}) != key_of({"a": 2})
    assert digest_of({"a": b"", "b": None}) == digest_of({"b": None, "a": b""})
    assert len({digest_of({"a": b""}), digest_of({"a": None}), digest_of({"b": b""})}) == 3
    python = tmp_path / "bin" / "python"
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    before = installed_packages(python)
    (packages / "new-1.0.dist-info").mkdir()
    assert installed_packages(python) != before


def test_what_a_virtual_environment_sees_of_its_installation_counts(tmp_path: Path) -> None:
    packages = tmp_path / "home" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (tmp_path / "home" / "bin").mkdir()
    (tmp_path / "home" / "bin" / "python").touch()
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "home" / "bin" / "python")
    before = installed_packages(python)
    (packages / "pytest-9.0.dist-info").mkdir()
    assert installed_packages(python) != before


NOW = 1_800_000_000.0
_ANSWER = {"key": "k", "version": "3.12.1", "pytest": "8.3.0", "modules": ["abc"]}


@pytest.fixture
def probes(tmp_path: Path) -> ProbeCache:
    return ProbeCache(CacheFolder(tmp_path / "kept"))


def written(tmp_path: Path, key: str, data: bytes) -> None:
    file = tmp_path / "kept" / f"{key}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (NOW, NOW))


def test_an_answer_comes_back(probes: ProbeCache, tmp_path: Path) -> None:
    answer = Probed("3.12.1", "8.3.0", ("abc",))
    probes.put("k", answer)
    os.utime(tmp_path / "kept" / "k.json", (NOW, NOW))
    assert probes.get("k", NOW) == answer
    assert probes.get("other", NOW) is None


def test_a_missing_pytest_is_asked_for_again(probes: ProbeCache, tmp_path: Path) -> None:
    probes.put("k", Probed("3.12.1", None, ()))
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        json.dumps({**_ANSWER, "key": "other"}).encode(),
        json.dumps({**_ANSWER, "version": 3}).encode(),
        json.dumps({**_ANSWER, "pytest": None}).encode(),
        json.dumps({**_ANSWER, "more": 1}).encode(),
    ],
)
def test_a_foreign_probe_entry_counts_as_absent(
    probes: ProbeCache, tmp_path: Path, data: bytes
) -> None:
    written(tmp_path, "k", json.dumps(_ANSWER).encode())
    assert probes.get("k", NOW) is not None
    written(tmp_path, "k", data)
    assert probes.get("k", NOW) is None


def test_another_interpreter_or_another_environment_is_another_question(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    python.parent.mkdir()
    python.write_text("one")
    packages.mkdir(parents=True)

    def key(backend: str = "bwrap", shown: tuple[Path, ...] = ()) -> str:
        return probe_key(python, ("python", "-c", ""), shown, backend)

    keys = [key(), key("container"), key(shown=(tmp_path,))]
    assert key() == keys[0]
    (packages / "pytest-9.0.dist-info").mkdir()
    keys.append(key())
    python.write_text("another")
    keys.append(key())
    python.unlink()
    keys.append(key())
    assert len(set(keys)) == len(keys)
