"""Runs of the base on disk: what is read back, and what their keys tell apart."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path

import pytest

from agent.types import Channels, Outcome
from agent.types import TestRun as Run
from agent.verify.trees import BaseRuns, key_of, package_folders
from tests.support.validation import run_of

RUN = dataclasses.replace(
    run_of({"t::a": "passed", "t::b": "failed"}, failures={"t::b": "E"}, exit_code=1),
    channels=Channels(("report", "exit code"), (), ("a plugin",)),
)


def ignore(event: object) -> None:
    """Warnings about a file that cannot be used."""


@pytest.mark.parametrize(
    ("run", "stays"),
    [
        (RUN, True),
        (dataclasses.replace(RUN, output_tail=" " * (5 * 1024 * 1024)), False),
        (dataclasses.replace(RUN, failures={"t::b": "E \ud800"}), False),
        (dataclasses.replace(RUN, ended="wall-limit"), False),
        (dataclasses.replace(RUN, ended="inconsistent"), False),
        (dataclasses.replace(RUN, channels=Channels(disagreements=("no",))), False),
        (dataclasses.replace(RUN, outcomes={"t": Outcome.ERROR}), False),
    ],
    ids=range(7),
)
def test_only_whole_runs_that_can_be_believed_stay_on_disk(
    tmp_path: Path, run: Run, stays: bool
) -> None:
    (tmp_path / "file").write_text("")
    for folder, lasting in (
        (tmp_path / "runs", True),
        (tmp_path / "file", True),
        (tmp_path, False),
    ):
        with closing(BaseRuns(folder, ignore)) as first:
            assert first.get(b"key") is None
            first.put(b"key", run, lasting=lasting)
            assert first.get(b"key") == dataclasses.replace(run, cached=True)
        with closing(BaseRuns(folder, ignore)) as second:
            read = second.get(b"key")
        assert read == (dataclasses.replace(run, cached=True) if stays else None)
        stays = False
    assert (tmp_path / "runs").stat().st_mode & 0o777 == 0o700


def test_keys_tell_apart_what_is_installed(tmp_path: Path) -> None:
    home, python = tmp_path / "home", tmp_path / "venv" / "bin" / "python"
    for place in (home / "bin", home / "lib" / "python3.11" / "site-packages", python.parent):
        place.mkdir(parents=True)
    (home / "bin" / "python").touch()
    python.symlink_to(home / "bin" / "python")

    def key(parts: object = "") -> bytes:
        return key_of(parts, package_folders(python))

    before = key()
    assert before == key() != key("other")
    (home / "lib" / "python3.11" / "site-packages" / "pytest-9.0.dist-info").mkdir()
    assert key() != before
