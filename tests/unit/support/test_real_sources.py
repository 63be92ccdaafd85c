"""Fetching by checksum and making replies from a tree, on a package index of this test's own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import run_git
from tests.real import sdist
from tests.real.project import Change, RealProject
from tests.support.fingerprint import fingerprint
from tests.support.solve_command import (
    apply_in_fresh_clone,
    changed_files,
    shown_files,
)

NAME = "patchshot-sample"
FILES = {
    "setup.py": "import pathlib\npathlib.Path('executed').touch()\n",
    "sample.py": "def half(x):\r\n    return x / 3\r\n",
    ".gitignore": "*.py\n",
}


def archive_of(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, content in files.items():
            data = content.encode()
            info = tarfile.TarInfo(f"{NAME}-1.0/{path}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One index folder, no other configuration, and a cache."""
    links = tmp_path / "links"
    links.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
    }


@pytest.fixture
def project(environment: dict[str, str]) -> RealProject:
    content = archive_of(FILES)
    filename = f"{NAME}-1.0.tar.gz"
    Path(environment["PIP_FIND_LINKS"], filename).write_bytes(content)
    return RealProject(
        name=NAME,
        version="1.0",
        filename=filename,
        sha256=hashlib.sha256(content).hexdigest(),
        thought="Half is by two.",
        changes=(Change("sample.py", r"^(def .*\n.*)3$", r"\g<1>2"),),
        gold_functions=("sample.py:half",),
        related_tests=(),
        reproduction_path="test_sample.py",
    )


def test_fetch_executes_nothing_and_keeps_the_archive(
    project: RealProject, environment: dict[str, str], tmp_path: Path
) -> None:
    archive = sdist.fetch(project, environment)
    assert archive == tmp_path / "cache" / "patchshot-tests" / project.filename
    assert list(tmp_path.rglob("executed")) == []
    Path(environment["PIP_FIND_LINKS"], project.filename).unlink()
    assert sdist.fetch(project, environment) == archive
    assert [path.name for path in archive.parent.iterdir()] == [project.filename]


def test_missing_file_is_unavailable(project: RealProject, environment: dict[str, str]) -> None:
    with pytest.raises(sdist.Unavailable, match=r"other-1\.0\.zip is not on the configured"):
        sdist.fetch(replace(project, filename="other-1.0.zip"), environment)


def test_other_content_is_refused_and_not_kept(
    project: RealProject, environment: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="sha256"):
        sdist.fetch(replace(project, sha256="0" * 64), environment)
    assert list((tmp_path / "cache" / "patchshot-tests").iterdir()) == []


def test_a_changed_cache_is_noticed(project: RealProject, environment: dict[str, str]) -> None:
    sdist.fetch(project, environment).write_bytes(b"changed")
    with pytest.raises(AssertionError, match="delete it"):
        sdist.fetch(project, environment)


def test_commit_takes_ignored_files_byte_for_byte(
    project: RealProject, environment: dict[str, str], tmp_path: Path
) -> None:
    root = sdist.unpack(sdist.fetch(project, environment), tmp_path / "unpacked")
    sdist.commit(root)
    assert run_git(root, "ls-files").split() == sorted(FILES)
    assert run_git(root, "show", "HEAD:sample.py") == FILES["sample.py"]
    assert run_git(root, "status", "--porcelain") == ""


def test_archive_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "bad.tar.gz"
    archive.write_bytes(archive_of({"../../outside.py": ""}))
    with pytest.raises(AssertionError, match="leads out"):
        sdist.unpack(archive, tmp_path / "unpacked")


def test_edit_is_whole_lines_with_plain_line_ends(project: RealProject, tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_bytes(FILES["sample.py"].encode())
    assert project.changes[0].edit(tmp_path) == {
        "path": "sample.py",
        "search": "def half(x):\n    return x / 3\n",
        "replace": "def half(x):\n    return x / 2\n",
    }
    assert project.fixed(tmp_path) == {"sample.py": b"def half(x):\r\n    return x / 2\r\n"}


def test_pattern_must_fit_one_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(AssertionError, match="2 matches"):
        Change("a.py", "x = 1", "x = 2").edit(tmp_path)
    (tmp_path / "a.py").write_text("x = 1\nlonger: x = 1\n")
    with pytest.raises(AssertionError, match="not unique"):
        Change("a.py", "(?<!: )x = 1", "x = 2").edit(tmp_path)


def test_reply_holds_edits_and_reproduction(
    project: RealProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "reproduction.py").write_text("def test(): ...\n")
    monkeypatch.setattr("tests.real.project.CASES", tmp_path)
    (tmp_path / "sample.py").write_bytes(FILES["sample.py"].encode())
    reply = json.loads(project.make_reply(tmp_path))
    assert reply["edits"] == [project.changes[0].edit(tmp_path)]
    assert reply["reproduction_test"]["content"] == "def test(): ...\n"


def test_fingerprint_sees_content_mode_and_names(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    def look() -> tuple[tuple[str, int, str], ...]:
        """Without time stamps, which alone would tell the states apart."""
        found = fingerprint(tree)
        return tuple((path, mode, digest) for path, (mode, _, digest) in sorted(found.items()))

    (tree / "a").write_text("1")
    seen = [look()]
    (tree / "a").write_text("2")
    seen.append(look())
    (tree / "a").chmod(0o755)
    seen.append(look())
    (tree / "a").rename(tree / "b")
    seen.append(look())
    (tree / "link").symlink_to("b")
    seen.append(look())
    assert len(set(seen)) == len(seen)
    assert look() == seen[-1]


def test_shown_files_reads_the_headers() -> None:
    prompt = "### pkg/mod.py:L10-42\n```python\nx\n```\n### other.py:L1-1 f\nno ### in.py:L1-2\n"
    assert shown_files(prompt) == {"pkg/mod.py", "other.py"}


def test_diff_is_applied_in_a_clone(
    project: RealProject, environment: dict[str, str], tmp_path: Path
) -> None:
    root = sdist.unpack(sdist.fetch(project, environment), tmp_path / "unpacked")
    sdist.commit(root)
    before = fingerprint(root)
    diff = (
        "diff --git a/sample.py b/sample.py\n--- a/sample.py\n+++ b/sample.py\n"
        "@@ -1,2 +1,2 @@\n def half(x):\r\n-    return x / 3\r\n+    return x / 2\r\n"
    )
    clone = apply_in_fresh_clone(diff, root, tmp_path)
    assert changed_files(clone) == {"sample.py"}
    assert {"sample.py": (clone / "sample.py").read_bytes()} == project.fixed(root)
    assert fingerprint(root) == before
