"""The folder of what is remembered: what comes back, and what does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.validation.running.kept_files import KeptFiles

NOW = 1_800_000_000.0
DAY = 24 * 3600.0


@pytest.fixture
def files(tmp_path: Path) -> KeptFiles:
    return KeptFiles(tmp_path / "kept")


def dated(files: KeptFiles, key: str, at: float) -> Path:
    path = files.folder / f"{key}.json"
    os.utime(path, (at, at))
    return path


def test_an_entry_comes_back_and_is_the_users_own(files: KeptFiles) -> None:
    assert files.get("a", NOW) is None
    files.put("a", b"{}")
    assert dated(files, "a", NOW).stat().st_mode & 0o777 == 0o600
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert files.get("a", NOW) == b"{}"
    assert files.get("b", NOW) is None


@pytest.mark.parametrize("days", [-31, 31])
def test_what_is_old_or_of_a_wrong_clock_is_absent(files: KeptFiles, days: int) -> None:
    files.put("a", b"{}")
    dated(files, "a", NOW + days * DAY)
    assert files.get("a", NOW) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(files: KeptFiles, tmp_path: Path, kind: str) -> None:
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


def test_what_is_too_large_is_neither_kept_nor_read(files: KeptFiles) -> None:
    files.put("a", b" " * (5 * 1024 * 1024))
    assert not files.folder.exists()
    files.put("b", b"")
    (files.folder / "b.json").write_bytes(b" " * (5 * 1024 * 1024))
    dated(files, "b", NOW)
    assert files.get("b", NOW) is None


def test_a_folder_that_cannot_be_written_costs_nothing_else(files: KeptFiles) -> None:
    files.folder.write_text("a file")
    files.put("a", b"{}")
    assert files.get("a", NOW) is None


def test_the_oldest_go_first(tmp_path: Path) -> None:
    files = KeptFiles(tmp_path, most_files=3)
    for number in range(5):
        files.put(f"k{number}", b"{}")
        dated(files, f"k{number}", number)  # older than what is written now
    assert {path.stem for path in tmp_path.iterdir()} == {"k2", "k3", "k4"}


def test_the_folder_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    files = KeptFiles(tmp_path, most_total=250)
    for number in range(4):
        files.put(f"k{number}", b"x" * 100)
        dated(files, f"k{number}", number)
    assert {path.stem for path in tmp_path.iterdir()} == {"k2", "k3"}
