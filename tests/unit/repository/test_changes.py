from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import RepositoryError
from agent.repository.changes import CandidatePath, Finding, State, build_overlay
from agent.repository.worktree import read_files


def _new(root: Path, name: str, size: int, kept: int) -> Finding:
    (root / name).write_bytes(b"x" * size)
    disk = read_files(root, [name.encode()], limit=kept)[name.encode()]
    return Finding(CandidatePath(name.encode(), None), disk, State.NEW)


def test_a_file_above_the_limit_is_left_out_and_named(tmp_path: Path) -> None:
    findings = [_new(tmp_path, "large", 101, 10), _new(tmp_path, "middle", 100, 10)]
    overlay, notes = build_overlay(tmp_path, findings, file_limit=100)
    assert overlay == {"middle": b"x" * 100}
    assert notes == ("large: changed, but left out of the sandbox's copy (link, size or name)",)


def test_too_much_in_all_is_refused(tmp_path: Path) -> None:
    findings = [_new(tmp_path, "a", 60, 100), _new(tmp_path, "b", 50, 10)]
    with pytest.raises(RepositoryError, match=r"the largest: a, b\); ignore or commit them"):
        build_overlay(tmp_path, findings, total_limit=109)
    overlay, _ = build_overlay(tmp_path, findings, total_limit=110)
    assert overlay == {"a": b"x" * 60, "b": b"x" * 50}
