from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from agent.cli.commands.common import write_stdout
from agent.cli.commands.output import PatchFile, write_into_work_tree
from agent.errors import UsageError
from agent.types import AppliedPatch, FileChange
from tests.support.fakes import MemorySnapshot
from tests.support.full_disk import full_at


def patch(*changes: FileChange, diff: bytes = b"diff\n") -> AppliedPatch:
    return AppliedPatch(changes, diff, ())


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemorySnapshot:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "a.py").write_bytes(b"old\n")
    (tmp_path / "gone.py").write_bytes(b"x\n")
    snapshot = MemorySnapshot({"a.py": "old\n", "gone.py": "x\n"})
    snapshot.root = tmp_path
    return snapshot


def test_a_pipe_is_written_through(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    PatchFile(pipe).write(patch(diff=b"through\n"))
    assert os.read(reader, 100) == b"through\n"
    os.close(reader)


EDIT = FileChange("a.py", b"old\n", b"new\n")


def test_what_was_written_is_said(target, monkeypatch):
    delivery = write_into_work_tree(patch(EDIT, FileChange("gone.py", b"x\n", None)), target.root)
    assert not delivery.failed
    assert delivery.written == ("a.py", "gone.py")
    assert delivery.message == (
        f"wrote 2 files: a.py, gone.py; undo with agent undo --repo {target.root}"
    )
    monkeypatch.chdir(target.root)
    again = patch(FileChange("b c.py", None, b"b\n"))
    assert write_into_work_tree(again, target.root).message.endswith("; undo with agent undo")
    same = write_into_work_tree(again, target.root)
    assert (same.failed, same.message) == (False, "the files have this content already")


def test_a_merge_is_said(target):
    (target.root / "a.py").write_bytes(b"1\n2\n3\n4\nmine\n")
    edit = FileChange("a.py", b"1\n2\n3\n4\n5\n", b"one\n2\n3\n4\n5\n")
    delivery = write_into_work_tree(patch(edit), target.root)
    assert "your own edits in a.py are kept, and no test ran with them" in delivery.message
    assert (target.root / "a.py").read_bytes() == b"one\n2\n3\n4\nmine\n"


def test_a_patch_that_cannot_be_written_is_in_what_was_printed(target):
    (target.root / "a.py").write_bytes(b"mine\n")
    delivery = write_into_work_tree(patch(EDIT), target.root)
    assert delivery.failed
    assert delivery.message == (
        "nothing was written: a.py has changed in the lines that the patch changes; "
        "the diff is in what was printed"
    )
    assert (target.root / "a.py").read_bytes() == b"mine\n"


def test_a_full_disk_costs_the_file_and_not_the_run(tmp_path: Path) -> None:
    file = PatchFile(tmp_path / "fix.diff")
    file.write(patch(diff=b"one\n"))
    with full_at(8):
        file.write(patch(diff=b"a longer one\n"))
    assert "could not be written" in file.problem
    assert (tmp_path / "fix.diff").read_bytes() == b"one\n"
    assert [p.name for p in tmp_path.iterdir()] == ["fix.diff"]
    file.write(patch(diff=b"two\n"))
    assert file.problem == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_stdout_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(UsageError, match="stdout"):
            write_stdout("diff\n")
        with contextlib.suppress(OSError):
            full.buffer.raw.close()
