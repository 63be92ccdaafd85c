"""A write that is killed at any step is finished or taken back by the next call."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.results.work_tree import FileOperations, apply_changes, finish_interrupted, undo_changes
from agent.types import FileChange
from tests.conftest import ROOT


def killed(mode: str) -> Mapping[str, int]:
    """How often the tree was wholly old and wholly new in the end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_writes", mode],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Mapping[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("mode", ["apply", "undo"])
def test_killed_at_every_step(mode: str) -> None:
    found = killed(mode)
    # Until the last step a write is taken back; an undo is finished after its first step.
    assert (found["old"] > 10, found["new"] > 10) == (mode == "apply", mode == "undo")
    assert min(found.values()) > 0


@pytest.mark.slow
def test_killed_at_every_step_and_again_at_every_step_of_what_finishes_it() -> None:
    found = killed("twice")
    assert found["old"] > 50


class StopsAt(FileOperations):
    """Raises KeyboardInterrupt, then fails: nothing that comes after can roll back."""

    def __init__(self, renames: int) -> None:
        self.left = renames

    def rename(self, folder: int, name: str, to: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "Input/output error")
        super().rename(folder, name, to)


CHANGES = (FileChange("a.py", b"a\n", b"A\n"), FileChange("b.py", b"b\n", b"B\n"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a.py").write_bytes(b"a\n")
    (root / "b.py").write_bytes(b"b\n")
    return root


def half_written(tree: Path, journal: Path) -> None:
    """Replace a.py, and have everything fail from then on."""
    outcome = apply_changes(CHANGES, tree, journal, operations=StopsAt(1))
    assert outcome.written == ("a.py",)
    assert [conflict.path for conflict in outcome.conflicts] == ["b.py", str(tree)]
    assert (tree / "a.py").read_bytes() == b"A\n"
    assert (tree / "b.py").read_bytes() == b"b\n"


def test_what_could_not_be_taken_back_is_taken_back_by_the_next_call(
    tree: Path, tmp_path: Path
) -> None:
    half_written(tree, tmp_path / "journal")
    [note] = finish_interrupted(tree, tmp_path / "journal")
    assert note == "took back an interrupted write of a.py, b.py"
    assert (tree / "a.py").read_bytes() == b"a\n"
    assert sorted(path.name for path in tree.iterdir()) == ["a.py", "b.py"]


@pytest.mark.parametrize(("name", "content"), [("b.py", b"mine\n"), ("a.py", b"A\nmine\n")])
def test_an_edit_since_is_kept_and_named(
    tree: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    half_written(tree, tmp_path / "journal")
    (tree / name).write_bytes(content)
    [note] = finish_interrupted(tree, tmp_path / "journal")
    assert note.endswith(f"but not {name}, which has changed since")
    contents = {"a.py": b"a\n", "b.py": b"b\n", name: content}
    assert {path.name: path.read_bytes() for path in tree.iterdir()} == contents


def test_removed_temporary_files_are_no_obstacle(tree: Path, tmp_path: Path) -> None:
    half_written(tree, tmp_path / "journal")
    for left in tree.glob(".patchshot-*"):  # as `git clean` does
        left.unlink()
    [note] = finish_interrupted(tree, tmp_path / "journal")
    assert note == "took back an interrupted write of a.py, b.py"
    assert (tree / "a.py").read_bytes() == b"a\n"
    assert (tree / "b.py").read_bytes() == b"b\n"


def test_another_work_tree_is_left_alone(tree: Path, tmp_path: Path) -> None:
    half_written(tree, tmp_path / "journal")
    assert finish_interrupted(tmp_path, tmp_path / "journal") == ()
    assert (tree / "b.py").read_bytes() == b"b\n"


def test_ctrl_c_takes_everything_back(tree: Path, tmp_path: Path) -> None:
    class Interrupted(FileOperations):
        renames = 0

        def rename(self, folder: int, name: str, to: str) -> None:
            self.renames += 1
            if self.renames == 2:  # a.py, then b.py
                raise KeyboardInterrupt
            super().rename(folder, name, to)

    with pytest.raises(KeyboardInterrupt):
        apply_changes(CHANGES, tree, tmp_path / "journal", operations=Interrupted())
    assert (tree / "a.py").read_bytes() == b"a\n"
    assert sorted(path.name for path in tree.iterdir()) == ["a.py", "b.py"]
    assert finish_interrupted(tree, tmp_path / "journal") == ()


def test_a_record_that_was_not_complete_is_ignored(tree: Path, tmp_path: Path) -> None:
    apply_changes(CHANGES, tree, tmp_path / "journal")
    [record] = (tmp_path / "journal").glob("*.applied")
    (tmp_path / "journal" / "000002-00000000.writing").write_bytes(record.read_bytes()[:40])
    assert finish_interrupted(tree, tmp_path / "journal") == ()
    assert undo_changes(tree, tmp_path / "journal").written == ("a.py", "b.py")
