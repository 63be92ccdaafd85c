"""Taking a snapshot writes nothing into the repository and runs none of its code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import RepositoryError
from agent.repository.snapshot import take_snapshot
from tests.support.fingerprint import fingerprint
from tests.support.hostile_repository import SECRET, make_hostile

MODES: tuple[dict[str, Any], ...] = (
    {},
    {"dirty": "include"},
    {"dirty": "ignore"},
    {"dirty": "refuse"},
    {"commit": "HEAD"},
)
Make = Callable[[Mapping[str, str | bytes]], Path]


def _snapshot(root: Path, mode: Mapping[str, Any]) -> None:
    try:
        take_snapshot(root, **mode)
    except RepositoryError:
        assert mode.get("dirty") == "refuse"


def _stale_index(root: Path) -> None:
    """Make the stat data of the index outdated, so that a git that refreshes it would write."""
    for path in root.glob("*.py"):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_dirty_repository_stays_as_it_is(make_repository: Make, mode: dict[str, Any]) -> None:
    root = make_repository({"a.py": "a = 1\n", "b.py": "b = 1\n", "c.bin": b"\0\1"})
    (root / "b.py").write_text("b = 2\n")
    (root / "new.py").write_text("new = 1\n")
    _stale_index(root)
    before = fingerprint(root)
    _snapshot(root, mode)
    assert fingerprint(root) == before


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_hostile_repository_runs_nothing_and_stays_as_it_is(
    tmp_path: Path, mode: dict[str, Any]
) -> None:
    hostile = make_hostile(tmp_path)
    (hostile.root / "app.py").write_text("def f():\n    return 2\n")
    _stale_index(hostile.root)
    before = fingerprint(hostile.root)
    _snapshot(hostile.root, mode)
    assert hostile.fired == []
    assert fingerprint(hostile.root) == before


def test_the_attacks_are_live(tmp_path: Path) -> None:
    hostile = make_hostile(tmp_path)
    for arguments in (
        ["-c", f"core.worktree={hostile.root}", "status"],
        ["-c", f"core.worktree={hostile.root}", "add", "-A"],
        ["cat-file", "blob", "HEAD:lost.py"],
    ):
        subprocess.run(["git", *arguments], cwd=hostile.root, capture_output=True, timeout=60)
    # Which others fire depends on git's version; these show that the set-up can fire at all.
    assert {"ext-fetch", "fsmonitor", "hook-post-index-change", "ssh-command"} <= set(hostile.fired)


def test_a_configured_work_tree_elsewhere_is_not_read(tmp_path: Path) -> None:
    hostile = make_hostile(tmp_path)
    snapshot = take_snapshot(hostile.root)
    assert snapshot.root == hostile.root
    assert sorted(snapshot.files) == [".gitattributes", "app.py", "lost.py"]
    assert all(SECRET not in snapshot.text(path) for path in snapshot.files)


def test_what_a_partial_clone_lacks_is_missing_and_not_fetched(tmp_path: Path) -> None:
    hostile = make_hostile(tmp_path)
    snapshot = take_snapshot(hostile.root, commit="HEAD")
    assert [(file.path, file.reason) for file in snapshot.skipped] == [("lost.py", "missing")]
    assert snapshot.exists("lost.py")
    assert any("lost.py" in note for note in snapshot.notes)
    assert hostile.fired == []
    with pytest.raises(RepositoryError, match="no commit"):
        take_snapshot(hostile.root, commit="1" * 40)
    assert hostile.fired == []
