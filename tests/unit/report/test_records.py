from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.report import records
from agent.report.records import FilePart, Line, RunFiles


@pytest.fixture
def tree(tmp_path: Path) -> RunFiles:
    root = tmp_path / "run"
    (root / "a").mkdir(parents=True)
    (root / "a/file").write_bytes(b"one\ntwo\nthree")
    (tmp_path / "secret").write_text("secret")
    (root / "a/link").symlink_to(tmp_path / "secret")
    (root / "folder-link").symlink_to(tmp_path)
    os.mkfifo(root / "a/pipe")
    return RunFiles(root)


def test_parts_of_files_are_read(tree: RunFiles) -> None:
    assert tree.document("a", "file") == FilePart(b"one\ntwo\nthree", 13)
    assert tree.head(3, "a", "file") == FilePart(b"one", 13)
    assert tree.tail(5, "a", "file") == FilePart(b"three", 13)
    assert tree.tail(99, "a", "file").data == b"one\ntwo\nthree"
    assert tree.part(4, 3, "a", "file").data == b"two"
    assert tree.document("a", "gone").missing


def test_lines_come_with_their_places_and_without_a_torn_end(tree: RunFiles) -> None:
    assert list(tree.lines("a", "file")) == [Line(b"one", 0, 4), Line(b"two", 4, 4)]
    assert list(tree.lines("a", "gone")) == []


@pytest.mark.parametrize(
    "parts", [("a", "link"), ("folder-link", "secret"), ("a", "pipe"), ("..", "secret"), ("a",)]
)
def test_nothing_is_read_through_links_pipes_and_upwards(
    tree: RunFiles, parts: tuple[str, ...]
) -> None:
    piece = tree.document(*parts)
    assert piece.data == b""
    assert piece.problem
    assert not piece.missing
    assert list(tree.lines(*parts)) == []


def test_folders_are_named_in_order_without_links(tree: RunFiles) -> None:
    (tree.root / "b").mkdir()
    assert tree.folders() == ["a", "b"]
    assert tree.folders("folder-link") == []


def test_the_root_itself_may_be_a_link(tree: RunFiles, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tree.root)
    assert RunFiles(tmp_path / "other").document("a", "file").size == 13


def test_a_document_beyond_all_measure_is_none(
    tree: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LARGEST_DOCUMENT", 5)
    assert tree.document("a", "file") == FilePart(size=13, problem="larger than 5 bytes")
