"""Changes are written all or none, merged with edits of the user, and taken back exactly."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import RepositoryError
from agent.results.work_tree import FileOperations, WriteConflict, apply_changes, undo_changes
from agent.types import FileChange
from tests.support.full_disk import full_at
from tests.support.killed_writes import CHANGES, make_tree, state_of

NOBODY = 65534
BASE = b"one\ntwo\nthree\nfour\nfive\n"
PATCHED = b"one\ntwo\nthree\nfour\nFIVE\n"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    make_tree(root)
    return root


def test_modes_new_folders_and_deletions(tree: Path, journal: Path) -> None:
    before = os.umask(0o027)
    try:
        outcome = apply_changes(CHANGES, tree, journal)
    finally:
        os.umask(before)
    assert outcome.written == ("a.py", "gone/c.py", "new/deep/d.py", "pkg/b.sh")
    assert outcome.conflicts == ()
    found = {path: (stat.S_IMODE(mode), data) for path, (mode, data) in state_of(tree).items()}
    assert found == {
        "a.py": (0o640, b"a = 2\n" * 99),
        "new": (0o750, b""),
        "new/deep": (0o750, b""),
        "new/deep/d.py": (0o750, b"d\n"),
        "pkg": (found["pkg"][0], b""),
        "pkg/b.sh": (0o755, b"bb\n"),
        "pkg/keep.py": (0o644, b"k\n"),
    }


def test_undo_restores_files_modes_and_folders(tree: Path, journal: Path) -> None:
    before = state_of(tree)
    apply_changes(CHANGES, tree, journal)
    assert undo_changes(tree, journal).written == (
        "a.py", "gone/c.py", "new/deep/d.py", "pkg/b.sh",
    )  # fmt: skip
    assert state_of(tree) == before
    with pytest.raises(RepositoryError, match="nothing to undo"):
        undo_changes(tree, journal)


def test_undo_takes_the_last_write_first_or_the_one_that_is_named(
    tree: Path, journal: Path
) -> None:
    apply_changes((FileChange("x.py", None, b"x\n"),), tree, journal, run="first")
    apply_changes((FileChange("y.py", None, b"y\n"),), tree, journal, run="second")
    assert undo_changes(tree, journal, run="first").written == ("x.py",)
    assert undo_changes(tree, journal).written == ("y.py",)
    with pytest.raises(RepositoryError, match="run first"):
        undo_changes(tree, journal, run="first")


def test_undo_of_a_new_file_keeps_what_the_user_put_beside_it(tree: Path, journal: Path) -> None:
    (tree / "empty").mkdir()
    apply_changes((FileChange("empty/sub/x.py", None, b"x\n"),), tree, journal)
    (tree / "empty/sub/mine.txt").write_bytes(b"m\n")
    undo_changes(tree, journal)
    assert (tree / "empty/sub/mine.txt").read_bytes() == b"m\n"
    assert not (tree / "empty/sub/x.py").exists()
    apply_changes((FileChange("empty/other/x.py", None, b"x\n"),), tree, journal)
    undo_changes(tree, journal)
    assert not (tree / "empty/other").exists()


def test_undo_refuses_everything_if_one_file_has_changed(tree: Path, journal: Path) -> None:
    apply_changes(CHANGES, tree, journal)
    (tree / "pkg/b.sh").write_bytes(b"bb\nmine\n")
    before = state_of(tree)
    outcome = undo_changes(tree, journal)
    assert outcome.conflicts == (WriteConflict("pkg/b.sh", "has changed since it was written"),)
    assert state_of(tree) == before
    (tree / "pkg/b.sh").write_bytes(b"bb\n")
    assert undo_changes(tree, journal).conflicts == ()


@pytest.mark.parametrize(
    ("mine", "merged"),
    [
        (b"ONE\ntwo\nthree\nfour\nfive\n", b"ONE\ntwo\nthree\nfour\nFIVE\n"),
        (b"zero\n" + BASE, b"zero\n" + PATCHED),
    ],
)
def test_an_edit_elsewhere_is_merged_and_undo_restores_it(
    tree: Path, journal: Path, mine: bytes, merged: bytes
) -> None:
    (tree / "list.txt").write_bytes(mine)
    outcome = apply_changes((FileChange("list.txt", BASE, PATCHED),), tree, journal)
    assert outcome.written == outcome.merged == ("list.txt",)
    assert (tree / "list.txt").read_bytes() == merged
    undo_changes(tree, journal)
    assert (tree / "list.txt").read_bytes() == mine


def test_what_the_user_has_done_already_is_not_written_again(tree: Path, journal: Path) -> None:
    (tree / "list.txt").write_bytes(PATCHED)
    outcome = apply_changes((FileChange("list.txt", BASE, PATCHED),), tree, journal)
    assert (outcome.written, outcome.conflicts) == ((), ())
    with pytest.raises(RepositoryError):
        undo_changes(tree, journal)


def test_a_merge_that_does_not_parse_is_a_conflict(tree: Path, journal: Path) -> None:
    base = b"a = 1\nb = 1\nc = 1\nd = 1\n"
    mine, patched = b"x = 1\n" + base, base + b"x = 2\n"  # a key may not be given twice
    (tree / "m.toml").write_bytes(mine)
    outcome = apply_changes((FileChange("m.toml", base, patched),), tree, journal)
    assert outcome.conflicts == (
        WriteConflict("m.toml", "has changed, and does not parse after a merge"),
    )
    assert (tree / "m.toml").read_bytes() == mine


def _gone(tree: Path) -> None:
    (tree / "pkg/b.sh").unlink()


def _there(tree: Path) -> None:
    (tree / "new/deep").mkdir(parents=True)
    (tree / "new/deep/d.py").write_bytes(b"mine\n")


def _linked_file(tree: Path) -> None:
    (tree.parent / "outside").write_bytes(b"b\n")
    (tree / "pkg/b.sh").unlink()
    (tree / "pkg/b.sh").symlink_to(tree.parent / "outside")


def _linked_folder(tree: Path) -> None:
    shutil.move(tree / "pkg", tree.parent / "pkg")
    (tree / "pkg").symlink_to(tree.parent / "pkg")


def _folder(tree: Path) -> None:
    (tree / "pkg/b.sh").unlink()
    (tree / "pkg/b.sh").mkdir()


def _holding(path: str, content: bytes) -> Callable[[Path], object]:
    return lambda tree: (tree / path).write_bytes(content)


@pytest.mark.parametrize(
    ("meanwhile", "path", "reason"),
    [
        (_gone, "pkg/b.sh", "is gone"),
        (_holding("gone/c.py", b"mine\n"), "gone/c.py", "has changed, and the patch deletes it"),
        (_holding("pkg/b.sh", b"mine\n"), "pkg/b.sh",
         "has changed in the lines that the patch changes"),
        (_there, "new/deep/d.py", "exists now, with another content"),
        (_linked_file, "pkg/b.sh", "is a link now"),
        (_linked_folder, "pkg/b.sh", "is behind a link now"),
        (_folder, "pkg/b.sh", "is a folder now"),
        (_holding("new", b"no folder\n"), "new/deep/d.py", "Not a directory"),
    ],
)  # fmt: skip
def test_nothing_is_written_if_one_file_does_not_fit(
    tree: Path, journal: Path, meanwhile: Callable[[Path], object], path: str, reason: str
) -> None:
    meanwhile(tree)
    before = state_of(tree.parent)
    outcome = apply_changes(CHANGES, tree, journal)
    assert outcome.written == ()
    assert outcome.conflicts == (WriteConflict(path, reason),)
    shutil.rmtree(journal)
    assert state_of(tree.parent) == before


class Meanwhile(FileOperations):
    """Calls a function before the n-th rename: that of the n-th file that is not deleted."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        self.number = number
        self.action = action

    def rename(self, folder: int, name: str, to: str) -> None:
        self.number -= 1
        if self.number == 0:
            self.action()
        super().rename(folder, name, to)


@pytest.mark.parametrize("meanwhile", [_linked_folder, _holding("pkg/b.sh", b"mine\n")])
def test_what_changes_while_files_are_replaced_is_not_lost(
    tree: Path, journal: Path, meanwhile: Callable[[Path], object]
) -> None:
    operations = Meanwhile(2, lambda: meanwhile(tree))
    outcome = apply_changes(CHANGES, tree, journal, operations=operations)
    assert outcome.conflicts[0].path == "pkg/b.sh"
    assert (tree / "pkg/b.sh").read_bytes() in (b"b\n", b"mine\n")
    assert (tree / "a.py").read_bytes() == b"a = 1\n" * 99
    assert (tree / "gone/c.py").read_bytes() == b"c\n"
    assert not (tree / "new").exists()


@pytest.mark.parametrize("size", [0, 8, 300])
def test_a_full_disk_changes_nothing(tree: Path, journal: Path, size: int) -> None:
    before = state_of(tree)
    with full_at(size):
        outcome = apply_changes(CHANGES, tree, journal)
    assert outcome.written == ()
    assert "File too large" in outcome.conflicts[0].reason
    assert state_of(tree) == before
    assert apply_changes(CHANGES, tree, journal).conflicts == ()


@pytest.fixture
def open_tree() -> Iterator[Path]:
    """A folder with a tree and a place for the journal that another user can enter."""
    folder = Path(tempfile.mkdtemp())
    root = folder / "tree"
    root.mkdir()
    make_tree(root)
    if os.geteuid() == 0:
        for path in (folder, root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    folder.chmod(0o755)
    yield root
    for path in root.rglob("*"):
        path.chmod(0o700)
    shutil.rmtree(folder)


def as_nobody(action: Callable[[], object]) -> object:
    """Call as a user whom permissions bind."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        return action()
    finally:
        if root:
            os.seteuid(0)


def test_a_folder_without_permission_changes_nothing(open_tree: Path) -> None:
    (open_tree / "pkg").chmod(0o555)
    before = state_of(open_tree)
    outcome = as_nobody(lambda: apply_changes(CHANGES, open_tree, open_tree.parent / "journal"))
    assert outcome.conflicts == (WriteConflict("pkg/b.sh", "Permission denied"),)
    assert state_of(open_tree) == before


def test_a_file_without_write_permission_keeps_its_mode(open_tree: Path) -> None:
    """As with git: the permission of the folder decides."""
    (open_tree / "a.py").chmod(0o444)
    outcome = as_nobody(lambda: apply_changes(CHANGES, open_tree, open_tree.parent / "journal"))
    assert "a.py" in outcome.written
    assert stat.S_IMODE((open_tree / "a.py").stat().st_mode) == 0o444


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_root_leaves_files_and_folders_to_their_owner(open_tree: Path) -> None:
    apply_changes(CHANGES, open_tree, open_tree.parent / "journal")
    owners = {path.stat().st_uid for path in open_tree.rglob("*")}
    assert owners == {NOBODY}


def test_a_journal_that_cannot_be_written_is_a_conflict(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    before = state_of(tree)
    outcome = apply_changes(CHANGES, tree, tmp_path / "file")
    assert outcome.conflicts == (WriteConflict(str(tmp_path / "file"), "File exists"),)
    assert state_of(tree) == before


def _setuid(tree: Path) -> None:
    (tree / "pkg/b.sh").chmod(0o4755)


def _hard_link(tree: Path) -> None:
    os.link(tree / "pkg/b.sh", tree / "pkg/other.sh")


@pytest.mark.parametrize(("given", "reason"), [(_setuid, "setuid"), (_hard_link, "hard links")])
def test_what_a_replaced_file_would_lose_is_refused(
    tree: Path, journal: Path, given: Callable[[Path], None], reason: str
) -> None:
    given(tree)
    before = state_of(tree)
    [conflict] = apply_changes(CHANGES, tree, journal).conflicts
    assert conflict.path == "pkg/b.sh"
    assert reason in conflict.reason
    assert state_of(tree) == before


def test_extended_attributes_stay(tree: Path, journal: Path) -> None:
    path = tree / "a.py"
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has none")
    apply_changes(CHANGES, tree, journal)
    assert os.getxattr(path, "user.note") == b"mine"
    undo_changes(tree, journal)
    assert os.getxattr(path, "user.note") == b"mine"


@pytest.mark.slow
def test_the_journal_is_closed_to_others_and_keeps_the_newest(tree: Path, journal: Path) -> None:
    for number in range(102):
        change = FileChange("n.txt", b"%d" % (number - 1) if number else None, b"%d" % number)
        assert apply_changes((change,), tree, journal).written == ("n.txt",)
    records = sorted(journal.glob("*.applied"))
    assert len(records) == 100
    assert {stat.S_IMODE(path.stat().st_mode) for path in records} == {0o600}
    assert stat.S_IMODE(journal.stat().st_mode) == 0o700
    for number in range(101, 1, -1):
        assert (tree / "n.txt").read_bytes() == b"%d" % number
        undo_changes(tree, journal)
    with pytest.raises(RepositoryError):
        undo_changes(tree, journal)
