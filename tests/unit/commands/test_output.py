from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from agent.commands.common import write_stdout
from agent.commands.output import PatchFile, write_into_work_tree
from agent.errors import ConfigurationError, RepositoryError, UsageError
from agent.types import AppliedPatch, FileChange
from tests.support.fakes import MemorySnapshot
from tests.support.full_disk import full_at


def patch(*changes: FileChange, diff: bytes = b"diff\n") -> AppliedPatch:
    return AppliedPatch(changes, diff, ())


@pytest.fixture
def target(tmp_path: Path) -> MemorySnapshot:
    (tmp_path / "a.py").write_bytes(b"old\n")
    (tmp_path / "gone.py").write_bytes(b"x\n")
    snapshot = MemorySnapshot({"a.py": "old\n", "gone.py": "x\n"})
    snapshot.root = tmp_path
    return snapshot


def test_the_file_always_holds_the_last_better_patch(tmp_path):
    file = PatchFile(tmp_path / "fix.diff")
    assert not (tmp_path / "fix.diff").exists()
    file.write(patch(diff=b"one\n"))
    file.write(patch(diff=b"two\n"))
    assert (tmp_path / "fix.diff").read_bytes() == b"two\n"
    assert [p.name for p in tmp_path.iterdir()] == ["fix.diff"]


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no folder"):
        PatchFile(tmp_path / "none" / "fix.diff")
    with pytest.raises(ConfigurationError, match="is a folder"):
        PatchFile(tmp_path)


def test_a_pipe_is_written_through(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    PatchFile(pipe).write(patch(diff=b"through\n"))
    assert os.read(reader, 100) == b"through\n"
    os.close(reader)


def test_changes_creations_and_deletions_reach_the_work_tree(target):
    write_into_work_tree(
        patch(
            FileChange("a.py", b"old\n", b"new\n"),
            FileChange("gone.py", b"x\n", None),
            FileChange("sub/new.sh", None, b"#!/bin/sh\n", executable=True),
        ),
        target,
    )
    assert (target.root / "a.py").read_bytes() == b"new\n"
    assert not (target.root / "gone.py").exists()
    assert os.access(target.root / "sub/new.sh", os.X_OK)


def test_nothing_is_written_when_a_file_has_changed_meanwhile(target):
    (target.root / "gone.py").write_bytes(b"edited\n")
    with pytest.raises(RepositoryError, match=r"gone\.py has changed"):
        write_into_work_tree(
            patch(FileChange("a.py", b"old\n", b"new\n"), FileChange("gone.py", b"x\n", None)),
            target,
        )
    assert (target.root / "a.py").read_bytes() == b"old\n"


def test_a_link_is_never_written_through(target, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"old\n")
    (target.root / "a.py").unlink()
    (target.root / "a.py").symlink_to(outside)
    with pytest.raises(RepositoryError, match="is a link"):
        write_into_work_tree(patch(FileChange("a.py", b"old\n", b"new\n")), target)
    assert outside.read_bytes() == b"old\n"


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
            write_stdout(b"diff\n")
        with contextlib.suppress(OSError):
            full.buffer.raw.close()
