"""Runs of the base that are kept on disk: what comes back, and what does not."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from agent.types import Channels, Outcome
from agent.validation.running.kept_files import KeptFiles
from agent.validation.running.run_cache import RunCache, digest_of, installed, key_of
from tests.support.validation import run_of

RUN = dataclasses.replace(
    run_of({"t::a": "passed", "t::b": "failed"}, failures={"t::b": "E \ud800"}, exit_code=1),
    channels=Channels(("report", "exit code"), (), ("a plugin",)),
)
KEY = key_of({"tree": "x"})
NOW = 1_800_000_000.0


@pytest.fixture
def cache(tmp_path: Path) -> RunCache:
    return RunCache(KeptFiles(tmp_path / "runs"))


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
    before = installed(python)
    (packages / "new-1.0.dist-info").mkdir()
    assert installed(python) != before


def test_what_a_virtual_environment_sees_of_its_installation_counts(tmp_path: Path) -> None:
    packages = tmp_path / "home" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (tmp_path / "home" / "bin").mkdir()
    (tmp_path / "home" / "bin" / "python").touch()
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "home" / "bin" / "python")
    before = installed(python)
    (packages / "pytest-9.0.dist-info").mkdir()
    assert installed(python) != before
