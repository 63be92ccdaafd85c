"""Private copies: their content, and that making one runs nothing of a hostile repository."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sandbox.workspace import Workspace, WorkspaceError, empty_workspace, prepare_workspace
from tests.conftest import run_git

Make = Callable[..., Path]


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.mkdir()
    return path


def head(repository: Path) -> str:
    return run_git(repository, "rev-parse", "HEAD").strip()


def files(workspace: Workspace) -> Mapping[str, bytes]:
    found = (path for path in workspace.path.rglob("*") if not path.is_dir())
    names = {str(path.relative_to(workspace.path)): path for path in found}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(".git/")}


def test_a_workspace_holds_the_commit_with_the_overlay_over_it(
    make_repository: Make, parent: Path
) -> None:
    repository = make_repository({"a.py": "a", "d/b.py": "b", "d/c.py": "c"})
    overlay = {"a.py": b"changed", "d/b.py": None, "new/x": b"\0bin", "absent": None}
    with prepare_workspace(repository, head(repository), overlay, parent=parent) as workspace:
        assert files(workspace) == {"a.py": b"changed", "d/c.py": b"c", "new/x": b"\0bin"}
        assert workspace.mount == repository
        assert stat.S_IMODE(workspace.path.parent.stat().st_mode) == 0o700
    assert list(parent.iterdir()) == []


def test_a_file_may_become_a_directory_and_a_directory_a_file(
    make_repository: Make, parent: Path
) -> None:
    repository = make_repository({"a": "file", "d/b": "in directory"})
    overlay = {"a": None, "a/x": b"1", "d/b": None, "d": b"2"}
    with prepare_workspace(repository, head(repository), overlay, parent=parent) as workspace:
        assert files(workspace) == {"a/x": b"1", "d": b"2"}


def test_byte_code_of_the_repository_is_left_out(make_repository: Make, parent: Path) -> None:
    """With an unchecked-hash .pyc, tests would pass although the source says something else."""
    repository = make_repository({"p/m.py": "x", "p/__pycache__/m.cpython-311.pyc": b"forged"})
    overlay = {"__pycache__/n.cpython-311.pyc": b"forged", "n.py": b"y"}
    with prepare_workspace(repository, head(repository), overlay, parent=parent) as workspace:
        assert files(workspace) == {"p/m.py": b"x", "n.py": b"y"}
        with pytest.raises(WorkspaceError, match="__pycache__"):
            workspace.write("p/__pycache__/m.cpython-311.pyc", b"forged")


def test_executable_bits_are_kept(make_repository: Make, parent: Path) -> None:
    repository = make_repository({"run": "old", "text": "old"})
    (repository / "run").chmod(0o755)
    run_git(repository, "commit", "-qam", "executable")
    overlay = {"run": b"new", "text": b"new"}
    with prepare_workspace(repository, head(repository), overlay, parent=parent) as workspace:
        modes = [stat.S_IMODE((workspace.path / name).stat().st_mode) for name in ("run", "text")]
        assert modes == [0o755, 0o644]
        workspace.write("run", b"", executable=False)
        assert stat.S_IMODE((workspace.path / "run").stat().st_mode) == 0o644


@pytest.mark.parametrize("packed", [False, True])
def test_not_one_object_beside_those_of_the_commit_is_there(
    make_repository: Make, parent: Path, packed: bool
) -> None:
    """Make stashes, notes, replaced and dangling objects and packed references to the future."""
    repository = make_repository({"a.py": "past", "d/b.py": "b"})
    (repository / "a.py").write_text("base")
    run_git(repository, "commit", "-qam", "the base")
    base = head(repository)
    _make_futures(repository)
    if packed:
        run_git(repository, "pack-refs", "--all")
        run_git(repository, "repack", "-qadk")
    with prepare_workspace(repository, base, {}, parent=parent) as workspace:
        there = run_git(workspace.path, "cat-file", "--batch-check", "--batch-all-objects")
        walk = ("rev-list", "--objects", "--no-walk", base)
        known = run_git(repository, "--no-replace-objects", *walk)
        names = sorted(line.split()[0] for line in there.splitlines())
        assert names == sorted(line.split()[0] for line in known.splitlines())
        assert len(names) == 5
        assert run_git(workspace.path, "for-each-ref") == ""
        assert run_git(workspace.path, "log", "--all", "--reflog", "--format=%s", "HEAD") == (
            "the base\n"
        )
        assert run_git(workspace.path, "status", "--porcelain") == ""
        assert run_git(workspace.path, "fsck", "--full").strip() == ""
        git_directory = workspace.path / ".git"
        assert "token" not in (git_directory / "config").read_text()
        assert not (git_directory / "objects" / "info" / "alternates").exists()
        for name in ("logs", "packed-refs", "FETCH_HEAD", "ORIG_HEAD", "hooks", "refs/stash"):
            assert not (git_directory / name).exists(), name


def _make_futures(repository: Path) -> None:
    """List every place in which git keeps what does not belong to a commit."""
    (repository / "a.py").write_text("stashed fix")
    run_git(repository, "stash")
    (repository / "a.py").write_text("the fix")
    run_git(repository, "commit", "-qam", "future fix")
    run_git(repository, "notes", "add", "-m", "the answer", "HEAD~1")
    run_git(repository, "tag", "-a", "v2", "-m", "annotated")
    run_git(repository, "branch", "future")
    run_git(repository, "replace", "HEAD~1", "HEAD")
    run_git(repository, "update-ref", "refs/pull/7/head", "HEAD")
    run_git(repository, "remote", "add", "origin", "https://token@example.invalid/x.git")
    run_git(repository, "reset", "-q", "--hard", "HEAD~1")


def test_a_partial_clone_with_missing_objects_is_a_clear_error_and_fetches_nothing(
    make_repository: Make, parent: Path, tmp_path: Path
) -> None:
    source = make_repository({"a.txt": "a" * 100})
    run_git(source, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    run_git(
        tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", source.as_uri(), "partial"
    )
    with pytest.raises(WorkspaceError, match="partial clone"):
        prepare_workspace(partial, head(partial), {}, parent=parent)
    assert list(parent.iterdir()) == []


def test_shallow_bare_and_linked_repositories_work(
    make_repository: Make, parent: Path, tmp_path: Path
) -> None:
    source = make_repository({"a.txt": "one"})
    (source / "a.txt").write_text("two")
    run_git(source, "commit", "-qam", "two")
    run_git(tmp_path, "clone", "-q", "--depth=1", source.as_uri(), "shallow")
    run_git(tmp_path, "clone", "-q", "--bare", str(source), "bare.git")
    run_git(source, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    run_git(tmp_path, "clone", "-q", "--shared", str(source), 'sha:red\\ "x"')
    for name in ("shallow", "bare.git", "linked", 'sha:red\\ "x"'):
        with prepare_workspace(tmp_path / name, head(source), {}, parent=parent) as workspace:
            assert files(workspace) == {"a.txt": b"two"}, name


def test_sha256_repositories_work(parent: Path, tmp_path: Path) -> None:
    repository = tmp_path / "sha256"
    repository.mkdir()
    run_git(repository, "init", "-q", "--object-format=sha256")
    (repository / "a").write_text("a")
    run_git(repository, "add", "a")
    run_git(repository, "commit", "-qm", "base")
    with prepare_workspace(repository, head(repository), {}, parent=parent) as workspace:
        assert files(workspace) == {"a": b"a"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to somebody else")
def test_a_repository_of_another_user_works(make_repository: Make, parent: Path) -> None:
    repository = make_repository({"a": "a"})
    commit = head(repository)
    subprocess.run(["chown", "-R", "65534:65534", str(repository)], check=True, timeout=10)
    with prepare_workspace(repository, commit, {}, parent=parent) as workspace:
        assert files(workspace) == {"a": b"a"}


@pytest.mark.parametrize(
    ("folder", "commit", "message"),
    [
        ("repo", "HEAD", "commit id"),
        ("repo", "--all", "commit id"),
        ("repo", "0" * 40, "not wholly stored"),
        (".", "0" * 40, "not a git repository"),
    ],
)
def test_a_commit_that_is_not_there_is_a_clear_error(
    make_repository: Make, tmp_path: Path, parent: Path, folder: str, commit: str, message: str
) -> None:
    root = make_repository({"a": "a"}) if folder == "repo" else tmp_path
    with pytest.raises(WorkspaceError, match=message):
        prepare_workspace(root, commit, {}, parent=parent)
    assert list(parent.iterdir()) == []


def test_a_mount_point_can_be_named_and_must_be_absolute(
    make_repository: Make, parent: Path
) -> None:
    repository = make_repository({"a": "a"})
    with prepare_workspace(
        repository, head(repository), {}, mount=Path("/testbed"), parent=parent
    ) as found:
        assert found.mount == Path("/testbed")
    with pytest.raises(WorkspaceError, match="absolute"):
        prepare_workspace(repository, head(repository), {}, mount=Path("testbed"), parent=parent)


@pytest.mark.parametrize(
    "path", ["", "/etc/x", "../x", "a/../../x", "a\0b", ".git/hooks/x", ".GIT/config", "."]
)
def test_paths_that_leave_the_tree_are_refused(parent: Path, path: str) -> None:
    with empty_workspace(mount=Path("/srv/x"), parent=parent) as workspace:
        for data in (b"x", None):
            with pytest.raises(WorkspaceError):
                workspace.write(path, data)


def test_links_are_replaced_and_never_followed(parent: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    with empty_workspace(mount=Path("/srv/x"), parent=parent) as workspace:
        (workspace.path / "link").symlink_to(outside / "file")
        (workspace.path / "directory").symlink_to(outside)
        workspace.write("link", b"new")
        with pytest.raises(WorkspaceError, match="links are not followed"):
            workspace.write("directory/file", b"x")
        workspace.write("directory/file", None)
        (workspace.path / "link2").symlink_to(outside / "file")
        workspace.write("link2", None)
        assert files(workspace)["link"] == b"new"
        assert not (workspace.path / "link").is_symlink()
        assert not (workspace.path / "link2").is_symlink()
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "untouched")]


def test_a_copy_is_independent(make_repository: Make, parent: Path) -> None:
    repository = make_repository({"a": "a", "run": "x"})
    with prepare_workspace(repository, head(repository), {}, parent=parent) as original:
        (original.path / "link").symlink_to("a")
        with original.copy() as copy:
            copy.write("a", b"changed")
            assert (copy.path / "link").readlink() == Path("a")
            assert copy.mount == original.mount
            assert files(original)["a"] == b"a"
            original.close()
            assert files(copy)["a"] == b"changed"
    assert list(parent.iterdir()) == []
