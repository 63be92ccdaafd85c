from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from sandbox import places
from sandbox.places import store_size, temporary_places, working_place

GIB = 1024**3


@pytest.fixture(autouse=True)
def no_temporary_directory_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(places, "MEMORY", folder)
    monkeypatch.setattr(places, "_free", lambda _: 8 * GIB)
    monkeypatch.setattr(places, "_available_memory", lambda: 16 * GIB)
    return folder


def test_small_repositories_are_copied_into_memory(memory: Path) -> None:
    assert working_place(10_000_000) == memory


def test_large_ones_and_full_memory_go_to_the_temporary_directory(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Path(tempfile.gettempdir())
    assert working_place(GIB) == usual
    monkeypatch.setattr(places, "_available_memory", lambda: GIB)
    assert working_place(1) == usual
    monkeypatch.setattr(places, "_available_memory", lambda: 16 * GIB)
    monkeypatch.setattr(places, "_free", lambda _: 64 * 1024 * 1024)  # a container's default
    assert working_place(1) == usual


def test_where_scripts_could_not_start_nothing_is_put(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_can_execute", lambda _: False)
    assert working_place(1) == Path(tempfile.gettempdir())


def test_the_users_choice_is_obeyed(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_places() == (tmp_path,)
    assert working_place(1) == tmp_path


def test_the_size_of_a_store_counts_links_as_links(tmp_path: Path) -> None:
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / "object").write_bytes(b"x" * 1000)
    (tmp_path / "aa" / "link").symlink_to("/etc")
    assert 1000 <= store_size(tmp_path) < 1100
    assert store_size(tmp_path / "absent") == 0
