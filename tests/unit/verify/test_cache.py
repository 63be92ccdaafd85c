"""The cache on disk: what is read back, and what counts as absent."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from agent.types import Channels, Outcome
from agent.types import TestRun as Run
from agent.verify.cache import (
    Probed,
    ResultCache,
    digest_of,
    installed_packages,
    key_of,
    probe_key,
)
from tests.support.validation import run_of

NOW = 1_800_000_000.0
DAY = 24 * 3600.0
KEY = key_of({"tree": "x"})
ANSWER = Probed("3.12.1", "8.3.0", ("abc",))
RUN = dataclasses.replace(
    run_of({"t::a": "passed", "t::b": "failed"}, failures={"t::b": "E"}, exit_code=1),
    channels=Channels(("report", "exit code"), (), ("a plugin",)),
)


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / "runs")


def dated(cache: ResultCache, key: str = KEY, at: float = NOW) -> Path:
    path = cache.folder / f"{key}.json"
    os.utime(path, (at, at))
    return path


def test_a_run_comes_back_as_it_was_and_says_so(cache: ResultCache) -> None:
    assert cache.run(KEY, NOW) is None
    cache.put_run(KEY, RUN)
    assert dated(cache).stat().st_mode & 0o777 == 0o600
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert cache.run(KEY, NOW) == dataclasses.replace(RUN, cached=True)
    assert cache.run(key_of({"tree": "y"}), NOW) is None
    assert cache.answer(KEY, NOW) is None


def test_an_answer_comes_back_and_a_missing_pytest_is_asked_for_again(cache: ResultCache) -> None:
    cache.put_answer(KEY, ANSWER)
    dated(cache)
    assert cache.answer(KEY, NOW) == ANSWER
    cache.put_answer("other", ANSWER._replace(pytest=None))
    assert len(list(cache.folder.iterdir())) == 1


@pytest.mark.parametrize("days", [-31, 31])
def test_what_is_old_or_of_a_wrong_clock_is_absent(cache: ResultCache, days: int) -> None:
    cache.put_run(KEY, RUN)
    dated(cache, at=NOW + days * DAY)
    assert cache.run(KEY, NOW) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(cache: ResultCache, tmp_path: Path, kind: str) -> None:
    cache.put_run(KEY, RUN)
    place = dated(cache)
    if kind == "link":
        place.symlink_to(place.rename(tmp_path / "other"))
    else:
        place.unlink()
        os.mkfifo(place) if kind == "pipe" else place.mkdir()
    assert cache.run(KEY, NOW) is None


def test_what_is_too_large_or_no_unicode_or_cannot_be_written_is_left_out(
    cache: ResultCache,
) -> None:
    cache.put_run(KEY, dataclasses.replace(RUN, output_tail=" " * (5 * 1024 * 1024)))
    cache.put_run(KEY, dataclasses.replace(RUN, failures={"t::b": "E \ud800"}))
    assert not cache.folder.exists()
    cache.folder.write_text("a file")
    cache.put_run(KEY, RUN)
    assert cache.run(KEY, NOW) is None


@pytest.mark.parametrize("limits", [{"most_files": 2}, {"most_total": 800}])
def test_the_oldest_go_first(tmp_path: Path, limits: dict[str, int]) -> None:
    cache = ResultCache(tmp_path, **limits)
    for number in range(4):
        cache.put_run(f"k{number}", dataclasses.replace(RUN, output_tail="x" * 50))
        dated(cache, f"k{number}", number)  # older than what is written now
    assert {path.stem for path in tmp_path.iterdir()} == {"k2", "k3"}


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
def test_only_whole_runs_that_can_be_believed_are_kept(cache: ResultCache, run: Run) -> None:
    cache.put_run(KEY, run)
    assert cache.run(KEY, NOW) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", 1), ("key", "x"), ("more", 1), ("run", {}), ("run", None)],
)
def test_what_we_did_not_write_is_as_good_as_absent(
    cache: ResultCache, field: str, value: object
) -> None:
    cache.put_run(KEY, RUN)
    file = dated(cache)
    entry = json.loads(file.read_bytes())
    assert cache.run(KEY, NOW) is not None
    for data in (json.dumps({**entry, field: value}).encode(), b"", b"no JSON", b"[]"):
        file.write_bytes(data)
        dated(cache)
        assert cache.run(KEY, NOW) is None


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
