from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import RepositoryError
from agent.repository.git import merge_texts, open_repository
from agent.repository.git_process import IndexEntry, TreeEntry
from agent.repository.scope import Location, locate_repository
from tests.conftest import run_git

Make = Callable[[Mapping[str, str | bytes]], Path]


def test_reads(make_repository: Make) -> None:
    root = make_repository({"a b.py": "x\n", "dir/ü\n.txt": "y\n", ".gitignore": "*.log\n"})
    (root / "staged.py").write_text("s\n")
    run_git(root, "add", "staged.py")
    (root / "loose.py").write_text("l\n")
    (root / "ignored.log").write_text("i\n")
    with open_repository(root) as git:
        commit = git.resolve("HEAD")
        assert commit == run_git(root, "rev-parse", "HEAD").strip()
        oid = "587be6b4c3f93f93c489c0111bba5596147a26cb"  # of b"x\n"
        tree = git.tree(commit, sizes=True)
        assert tree[1] == TreeEntry(b"a b.py", "100644", oid, 2)
        assert [entry.path for entry in tree] == [b".gitignore", b"a b.py", "dir/ü\n.txt".encode()]
        assert git.tree(commit, sizes=False)[1].size is None
        assert git.index()[-1] == IndexEntry(b"staged.py", "100644", skip_worktree=False)
        assert git.untracked() == (b"loose.py",)
        assert git.blobs([oid, "0" * 40]) == {oid: b"x\n"}
        assert git.blobs([]) == {}
        assert git.trusts_file_mode()


@pytest.mark.parametrize(
    "name", ["main", "v1", "HEAD~1", "--help", "-q", "no such", "main:a", "a\0b", ""]
)
def test_revisions_are_names_never_options(make_repository: Make, name: str) -> None:
    root = make_repository({"a": "1\n"})
    run_git(root, "tag", "-a", "v1", "-m", "annotated")
    run_git(root, "commit", "-q", "--allow-empty", "-m", "second")
    commits = run_git(root, "rev-list", "HEAD").split()
    with open_repository(root) as git:
        if name in ("main", "v1", "HEAD~1"):
            assert git.resolve(name) == commits[name != "main"]
        else:
            with pytest.raises(RepositoryError):
                git.resolve(name)


def test_the_callers_git_variables_do_not_reach_git(
    make_repository: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git hook, or `git rebase --exec`, runs programs with these set."""
    root = make_repository({"a.py": "1\n"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "alias.x")
    with open_repository(root) as git:
        assert [entry.path for entry in git.index()] == [b"a.py"]


def test_the_users_own_ignore_file_counts(
    make_repository: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repository({"a.py": "1\n"})
    (root / "notes.tmp").write_text("x\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignore\n")
    (home / "ignore").write_text("*.tmp\n")
    monkeypatch.setenv("HOME", str(home))
    with open_repository(root) as git:
        assert git.untracked() == ()


def test_a_call_that_hangs_is_killed(
    make_repository: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repository({"a.py": "1\n"})
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nsleep 4321.1234\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    started = time.monotonic()
    with (
        pytest.raises(RepositoryError, match=r"longer than 0\.3 s"),
        open_repository(root, seconds=0.3),
    ):
        pass
    assert time.monotonic() - started < 10
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=False).stdout
    assert b"sleep 4321.1234" not in running


def test_git_not_installed(
    make_repository: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repository({"a.py": "1\n"})
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(RepositoryError, match="git is not installed; install it"),
        open_repository(root),
    ):
        pass


def test_locate(make_repository: Make, tmp_path: Path) -> None:
    root = make_repository({"pkg/sub/a.py": "1\n"})
    found = Location(root, root / ".git", bare=False)
    assert locate_repository(root) == found
    assert locate_repository(root / "pkg" / "sub") == Location(
        root, root / ".git", False, "pkg/sub"
    )
    link = tmp_path / "link"
    link.symlink_to(root)
    assert locate_repository(link) == found


def test_paths_that_are_no_repository(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, words in (
        (tmp_path, "not a git repository"),
        (tmp_path / "missing", "no such directory"),
        (tmp_path / "file", "not a directory"),
        (Path("a\0b"), "no such directory|cannot be opened"),
        (Path("x" * 5000), "cannot be opened"),
    ):
        with pytest.raises(RepositoryError, match=words):
            locate_repository(path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(RepositoryError):
        locate_repository(loop)


LINES = b"1\n2\n3\n4\n5\n"


def test_a_merge_reads_no_settings(make_repository: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repository({".gitattributes": "* merge=evil\n", "ours": "1\n", "base": "1\n"})
    (root / ".git/config").write_text("[core\n")  # git fails where it reads this
    monkeypatch.setattr("tempfile.tempdir", str(root))
    control = subprocess.run(
        ["git", "merge-file", "-p", "ours", "base", "base"], cwd=root, capture_output=True
    )
    assert control.returncode == 128
    assert merge_texts(LINES, LINES, LINES + b"6\n") == LINES + b"6\n"
    assert not list(root.glob("patchshot-*"))
