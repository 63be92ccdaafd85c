from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import RepositoryError
from agent.repository.snapshot import RepositorySnapshot, take_snapshot
from agent.repository.worktree import blob_id
from agent.types import SkippedFile, SourceFile
from tests.conftest import run_git

Make = Callable[[Mapping[str, str | bytes]], Path]

# b"\x80" is valid in no UTF-8 name.
NOT_UTF8 = b"caf\x80.py"


def _skipped(snapshot: RepositorySnapshot) -> dict[str, str]:
    return {file.path: file.reason for file in snapshot.skipped}


@pytest.mark.parametrize("mode", [{"commit": "HEAD"}, {"dirty": "include"}, {"dirty": "refuse"}])
def test_a_clean_repository_is_the_same_in_all_modes(
    make_repository: Make, mode: dict[str, str]
) -> None:
    root = make_repository(
        {
            "b.py": "b = 'é'\r\n",
            "a/x.md": "\ufeff# X\n",
            "Z": "z\n",
            "bin/tool": "#!/usr/bin/env python3\n",
            "with space.txt": "s\n",
            "empty.py": "",
            "data.bin": b"\0\1\2",
            "big.txt": "x" * 2000,
            "lfs.dat": "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64
            + "\nsize 12\n",
            "new\nline.py": "n\n",
        }
    )  # fmt: skip
    (root / "bin" / "tool").chmod(0o755)
    (root / "link.py").symlink_to("b.py")
    (root / "dirlink").symlink_to("a")
    Path(os.fsdecode(os.fsencode(root) + b"/" + NOT_UTF8)).write_text("c\n")
    run_git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    run_git(root, "add", "-A", ":!sub")
    run_git(root, "commit", "-q", "-m", "kinds")

    snapshot = take_snapshot(root, max_file_bytes=1000, **mode)  # type: ignore[arg-type]

    assert snapshot.root == root
    assert snapshot.commit == run_git(root, "rev-parse", "HEAD").strip()
    assert not snapshot.dirty
    assert snapshot.overlay() == {}
    assert list(snapshot.files.values()) == [
        SourceFile("Z", blob_id(b"z\n"), 2, "text"),
        SourceFile("a/x.md", blob_id("\ufeff# X\n".encode()), 7, "markdown"),
        SourceFile("b.py", blob_id("b = 'é'\r\n".encode()), 10, "python"),
        SourceFile("bin/tool", blob_id(b"#!/usr/bin/env python3\n"), 23, "python", executable=True),
        SourceFile("empty.py", blob_id(b""), 0, "python"),
        SourceFile("with space.txt", blob_id(b"s\n"), 2, "text"),
    ]
    assert list(snapshot.files) == sorted(snapshot.files)
    assert list(snapshot.skipped) == [
        SkippedFile("big.txt", "too-large"),
        SkippedFile("caf\\x80.py", "name-not-utf-8"),
        SkippedFile("data.bin", "binary"),
        SkippedFile("dirlink", "symlink"),
        SkippedFile("lfs.dat", "lfs-pointer"),
        SkippedFile("link.py", "symlink"),
        SkippedFile("new\\nline.py", "control-in-name"),
        SkippedFile("sub", "submodule"),
    ]
    assert snapshot.read("b.py") == "b = 'é'\r\n".encode()
    assert snapshot.text("b.py") == "b = 'é'\n"
    assert snapshot.text("a/x.md") == "# X\n"
    assert snapshot.exists("a/x.md")
    assert snapshot.exists("data.bin")
    assert not snapshot.exists("a")
    with pytest.raises(KeyError):
        snapshot.read("data.bin")
    with pytest.raises(KeyError):
        snapshot.text("nowhere.py")


def _make_dirty(root: Path) -> None:
    (root / "changed.py").write_text("new\n")
    (root / "gone.py").unlink()
    (root / "data.bin").write_bytes(b"\0new")
    (root / "added.py").write_text("added\n")
    (root / "ignored.log").write_text("no\n")
    (root / "sub").mkdir()
    (root / "sub" / ".gitignore").write_text("*.tmp\n")
    (root / "sub" / "x.tmp").write_text("no\n")
    (root / "sub" / "y.py").write_text("y\n")
    (root / "excluded.txt").write_text("no\n")
    (root / ".git" / "info" / "exclude").write_text("excluded.txt\n")


BASE: Mapping[str, str | bytes] = {
    "changed.py": "old\n",
    "gone.py": "gone\n",
    "data.bin": b"\0old",
    "kept.py": "kept\n",
    ".gitignore": "*.log\n",
}


def test_include_sees_the_work_tree(make_repository: Make) -> None:
    root = make_repository(BASE)
    _make_dirty(root)
    snapshot = take_snapshot(root)
    assert snapshot.dirty
    assert {path: snapshot.text(path) for path in snapshot.files} == {
        ".gitignore": "*.log\n",
        "added.py": "added\n",
        "changed.py": "new\n",
        "kept.py": "kept\n",
        "sub/.gitignore": "*.tmp\n",
        "sub/y.py": "y\n",
    }
    assert snapshot.overlay() == {
        "added.py": b"added\n",
        "changed.py": b"new\n",
        "data.bin": b"\0new",
        "gone.py": None,
        "sub/.gitignore": b"*.tmp\n",
        "sub/y.py": b"y\n",
    }
    assert not snapshot.exists("gone.py")
    assert snapshot.notes == ("the work tree differs from HEAD: 1 deleted, 2 modified, 3 new",)


def test_refuse_raises_on_a_dirty_tree(make_repository: Make) -> None:
    root = make_repository(BASE)
    _make_dirty(root)
    with pytest.raises(RepositoryError) as caught:
        take_snapshot(root, dirty="refuse")
    assert "uncommitted changes (1 deleted, 2 modified, 3 new)" in str(caught.value)


def test_staged_deleted_and_force_added_files(make_repository: Make) -> None:
    root = make_repository({**BASE, "uncached.py": "u\n"})
    (root / "forced.log").write_text("forced\n")
    run_git(root, "add", "-f", "forced.log")
    (root / "staged-then-lost.py").write_text("x\n")
    run_git(root, "add", "staged-then-lost.py")
    (root / "staged-then-lost.py").unlink()
    run_git(root, "rm", "-q", "--cached", "uncached.py")
    snapshot = take_snapshot(root)
    assert snapshot.overlay() == {"forced.log": b"forced\n"}
    assert snapshot.exists("uncached.py")
    assert not snapshot.exists("staged-then-lost.py")


def test_a_racy_rewrite_is_seen(make_repository: Make) -> None:
    """A changed file with the same size and time stamp as in the index is found."""
    root = make_repository({"a.py": "a = 1\n"})
    status = (root / "a.py").stat()
    (root / "a.py").write_text("a = 2\n")
    os.utime(root / "a.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert take_snapshot(root).overlay() == {"a.py": b"a = 2\n"}


def test_a_checkouts_crlf_is_not_dirty(make_repository: Make) -> None:
    root = make_repository({"a.py": "a\nb\n", "b.py": "b\n"})
    (root / "a.py").write_bytes(b"a\r\nb\r\n")
    snapshot = take_snapshot(root, dirty="refuse")
    assert not snapshot.dirty
    assert snapshot.read("a.py") == b"a\r\nb\r\n"
    assert snapshot.files["a.py"].blob == blob_id(b"a\r\nb\r\n")
    assert snapshot.overlay() == {"a.py": b"a\r\nb\r\n"}
    (root / "a.py").write_bytes(b"a\r\nc\r\n")
    assert take_snapshot(root).dirty


def test_the_executable_bit(make_repository: Make) -> None:
    root = make_repository({"tool.sh": "x\n"})
    (root / "tool.sh").chmod(0o755)
    snapshot = take_snapshot(root)
    assert snapshot.dirty
    assert snapshot.overlay() == {"tool.sh": b"x\n"}
    assert snapshot.files["tool.sh"].executable
    run_git(root, "config", "core.fileMode", "false")
    snapshot = take_snapshot(root)
    assert not snapshot.dirty
    assert not snapshot.files["tool.sh"].executable


def test_links_are_never_followed(make_repository: Make, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("secret\n")
    root = make_repository({"kept.py": "k\n", "file.py": "f\n", "folder/secret.py": "inner\n"})
    (root / "link").symlink_to("kept.py")
    run_git(root, "add", "link")
    run_git(root, "commit", "-q", "-m", "link")
    (root / "file.py").unlink()
    (root / "file.py").symlink_to(outside / "secret.py")
    (root / "folder" / "secret.py").unlink()
    (root / "folder").rmdir()
    (root / "folder").symlink_to(outside)
    (root / "link").unlink()
    (root / "link").write_text("a file now\n")
    (root / "fresh").symlink_to(outside)
    snapshot = take_snapshot(root)
    assert {path: snapshot.text(path) for path in snapshot.files} == {
        "kept.py": "k\n",
        "link": "a file now\n",
    }
    assert _skipped(snapshot) == {
        "file.py": "symlink",
        "folder": "symlink",
        "folder/secret.py": "symlink",
        "fresh": "symlink",
    }
    assert snapshot.overlay() == {
        "file.py": None,
        "folder/secret.py": None,
        "link": b"a file now\n",
    }
    assert snapshot.dirty
    assert any("folder" in note and "left out" in note for note in snapshot.notes)


def test_fifos_and_folders_in_place_of_files(make_repository: Make) -> None:
    root = make_repository({"a.py": "a\n", "pipe.py": "p\n", "folder.py": "f\n"})
    for name in ("pipe.py", "folder.py"):
        (root / name).unlink()
    os.mkfifo(root / "pipe.py")
    (root / "folder.py").mkdir()
    (root / "folder.py" / "inner.py").write_text("i\n")
    snapshot = take_snapshot(root)
    assert sorted(snapshot.files) == ["a.py", "folder.py/inner.py"]
    assert _skipped(snapshot) == {"pipe.py": "unreadable"}
    assert snapshot.overlay() == {
        "folder.py": None,
        "folder.py/inner.py": b"i\n",
        "pipe.py": None,
    }


def test_nested_repositories_and_submodules(make_repository: Make) -> None:
    root = make_repository({"a.py": "a\n"})
    (root / "nested").mkdir()
    (root / "nested" / "n.py").write_text("n\n")
    run_git(root / "nested", "init", "-q")
    run_git(root / "nested", "add", "-A")
    run_git(root / "nested", "commit", "-q", "-m", "nested")
    snapshot = take_snapshot(root)
    assert _skipped(snapshot) == {"nested": "submodule"}
    assert not snapshot.dirty
    run_git(root, "-c", "advice.addEmbeddedRepo=false", "add", "nested")
    run_git(root, "commit", "-q", "-m", "as submodule")
    (root / "nested" / "n.py").write_text("changed\n")
    snapshot = take_snapshot(root)
    assert _skipped(snapshot) == {"nested": "submodule"}
    assert not snapshot.dirty
    assert snapshot.overlay() == {}


def test_a_sparse_checkout_is_not_dirty(make_repository: Make) -> None:
    root = make_repository({"in/a.py": "a\n", "out/b.py": "b\n", "top.py": "t\n"})
    run_git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
    assert not (root / "out").exists()
    snapshot = take_snapshot(root)
    assert not snapshot.dirty
    assert snapshot.overlay() == {}
    assert _skipped(snapshot) == {"out/b.py": "missing"}
    assert snapshot.notes == ("skipped out/b.py: missing",)


def test_git_lfs_contents_on_disk_are_not_changes(make_repository: Make) -> None:
    small, large = b"\0real content", b"\0" * 5000

    def pointer(content: bytes) -> str:
        return (
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
        )

    root = make_repository(
        {
            ".gitattributes": "*.dat filter=lfs diff=lfs merge=lfs -text\n",
            "a.py": "a\n",
            "small.dat": pointer(small),
            "large.dat": pointer(large),
            "edited.dat": pointer(b"before"),
        }
    )
    (root / "small.dat").write_bytes(small)
    (root / "large.dat").write_bytes(large)
    snapshot = take_snapshot(root, max_file_bytes=1000)
    assert not snapshot.dirty
    assert snapshot.overlay() == {}
    assert set(_skipped(snapshot).values()) == {"lfs-pointer"}
    (root / "edited.dat").write_bytes(b"\0after")
    assert not take_snapshot(root).dirty


def test_a_hostile_tree_leads_nowhere(make_repository: Make) -> None:
    """A commit may have names that no checkout writes: `..`, `.git`, an absolute path."""
    root = make_repository({"a.py": "a\n"})
    (root.parent / "outside.py").write_text("outside\n")
    oid = run_git(root, "rev-parse", "HEAD:a.py").strip()

    def tree(*entries: tuple[str, str, str]) -> str:
        raw = b"".join(
            f"{mode} {name}".encode() + b"\0" + bytes.fromhex(item) for mode, name, item in entries
        )
        (root.parent / "raw").write_bytes(raw)
        return run_git(
            root, "hash-object", "-t", "tree", "--literally", "-w", str(root.parent / "raw")
        ).strip()

    inner = tree(("100644", "outside.py", oid), ("100644", "config", oid))
    top = tree(("40000", "..", inner), ("40000", ".GIT", inner), ("100644", "a.py", oid))
    commit = run_git(root, "commit-tree", top, "-m", "evil").strip()
    run_git(root, "update-ref", "refs/heads/main", commit)
    expected = {
        "../config": "name-outside", "../outside.py": "name-outside",
        ".GIT/config": "name-outside", ".GIT/outside.py": "name-outside",
    }  # fmt: skip
    for snapshot in (take_snapshot(root, commit=commit), take_snapshot(root)):
        assert sorted(snapshot.files) == ["a.py"]
        assert _skipped(snapshot) == expected
        assert snapshot.overlay() == {}


def test_subfolders_and_work_trees(make_repository: Make, tmp_path: Path) -> None:
    root = make_repository({"pkg/a.py": "a\n", "b.py": "b\n"})
    snapshot = take_snapshot(root / "pkg")
    assert snapshot.root == root
    assert sorted(snapshot.files) == ["b.py", "pkg/a.py"]
    assert snapshot.notes == (f"pkg lies inside {root}, which is used as a whole",)
    linked = tmp_path / "linked"
    run_git(root, "worktree", "add", "-q", "-b", "other", str(linked))
    (linked / "b.py").write_text("other\n")
    snapshot = take_snapshot(linked)
    assert snapshot.root == linked
    assert snapshot.overlay() == {"b.py": b"other\n"}


def test_a_folder_that_the_repository_above_does_not_track(make_repository: Make) -> None:
    """A home directory under git is not taken for a project without `git init`."""
    root = make_repository({"a.py": "a\n"})
    (root / "project").mkdir()
    (root / "project" / "main.py").write_text("m\n")
    for mode in ({}, {"commit": "HEAD"}):
        with pytest.raises(RepositoryError, match=r"not a git repository, and .* tracks nothing"):
            take_snapshot(root / "project", **mode)  # type: ignore[arg-type]


def test_another_users_repository(make_repository: Make) -> None:
    root = make_repository({"a.py": "a\n"})
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository away")
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in files)):  # noqa: PTH118
            os.chown(path, 12345, 12345)
    assert sorted(take_snapshot(root).files) == ["a.py"]
    assert sorted(take_snapshot(root, commit="HEAD").files) == ["a.py"]


def test_repositories_that_cannot_be_used(make_repository: Make, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run_git(tmp_path / "empty", "init", "-q")
    root = make_repository({"data.bin": b"\0", "more.bin": b"\0"})
    for path, commit, words in (
        (tmp_path / "empty", None, "no commits yet"),
        (tmp_path / "nowhere", None, "no such directory"),
        (root, "nonsense", "no commit 'nonsense' here"),
        (root, None, r"no usable text file at [0-9a-f]{12} \(skipped: 2 binary\)"),
        (root, "HEAD", r"no usable text file at [0-9a-f]{12} \(skipped: 2 binary\)"),
    ):
        with pytest.raises(RepositoryError, match=words) as caught:
            take_snapshot(path, commit=commit)
        assert "\n" not in str(caught.value)


def test_the_problem_file_can_be_left_out(make_repository: Make) -> None:
    root = make_repository({"a.py": "a\n", "b.md": "b\n"})
    (root / "issue.md").write_text("a is wrong\n")
    (root / "b.md").write_text("tracked files stay\n")
    exclude = (root / "issue.md", root / "b.md", root.parent / "elsewhere.md")
    snapshot = take_snapshot(root, exclude=exclude)
    assert sorted(snapshot.files) == ["a.py", "b.md"]
    assert snapshot.overlay() == {"b.md": b"tracked files stay\n"}
