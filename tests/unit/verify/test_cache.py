"""The cache of base runs on disk: what is read back, and what counts as absent."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.types import Channels, Outcome
from agent.types import TestRun as Run
from agent.verify.trees import (
    ResultCache,
    digest_of,
    installed_packages,
)
from tests.support.validation import run_of

KEY = "0" * 64
RUN = dataclasses.replace(
    run_of({"t::a": "passed", "t::b": "failed"}, failures={"t::b": "E"}, exit_code=1),
    channels=Channels(("report", "exit code"), (), ("a plugin",)),
)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResultCache]:
    with closing(ResultCache(tmp_path / "runs", ignore)) as made:
        yield made


def ignore(event: object) -> None:
    """Warnings about a cache that cannot be used."""


def test_a_run_comes_back_as_it_was_and_says_so(cache: ResultCache, tmp_path: Path) -> None:
    assert cache.run(KEY) is None
    cache.put_run(KEY, RUN)
    for opened in (cache, ResultCache(tmp_path / "runs", ignore)):
        assert opened.run(KEY) == dataclasses.replace(RUN, cached=True)
        assert opened.run("1" * 64) is None
        opened.close()
    assert (tmp_path / "runs").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "run",
    [
        dataclasses.replace(RUN, output_tail=" " * (5 * 1024 * 1024)),  # too large
        dataclasses.replace(RUN, failures={"t::b": "E \ud800"}),  # no Unicode
        dataclasses.replace(RUN, ended="wall-limit"),
        dataclasses.replace(RUN, ended="inconsistent"),
        dataclasses.replace(RUN, channels=Channels(disagreements=("no",))),
        dataclasses.replace(RUN, outcomes={}),
        dataclasses.replace(RUN, outcomes={"t": Outcome.ERROR}),
    ],
    ids=range(7),
)
def test_only_whole_runs_that_can_be_believed_are_kept(cache: ResultCache, run: Run) -> None:
    cache.put_run(KEY, run)
    assert cache.run(KEY) is None


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file"):
        cache = ResultCache(folder, ignore)
        cache.put_run(KEY, RUN)
        assert cache.run(KEY) is None
        cache.close()


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"run": {}},
        {"run": None},
        {"written": "now"},
        {"written": 0.0},
        {"written": 9e12},
        None,
    ],
)
def test_a_record_that_is_foreign_or_old_is_absent(
    cache: ResultCache, tmp_path: Path, change: dict[str, object] | None
) -> None:
    cache.put_run(KEY, RUN)
    cache.close()
    with closing(sqlite3.connect(tmp_path / "runs" / "results.sqlite")) as file:
        (data,) = file.execute("SELECT data FROM record").fetchone()
        forged = json.dumps({**json.loads(data), **change}) if change else "no JSON"
        file.execute("UPDATE record SET data = ?", (forged.encode(),))
        file.commit()
    assert cache.run(KEY) is None


def test_digests_tell_apart_what_differs_and_nothing_else(tmp_path: Path) -> None:
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
