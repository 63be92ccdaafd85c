from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository import CommitRefused, commit_changes, open_repository
from agent.repository.git_process import GitRunner
from agent.types import FileChange
from sandbox import git_environment
from tests.conftest import run_git

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.invalid")


def committed(root: Path, *changes: FileChange) -> dict[str, str] | CommitRefused:
    """The files of the new commit with their modes and contents, in one text each."""
    base = run_git(root, "rev-parse", "HEAD").strip()
    with open_repository(root) as git:
        made = commit_changes(git, changes, base, "b", "message\n")
    if isinstance(made, CommitRefused):
        assert run_git(root, "branch", "--list", "b") == ""
        return made
    assert run_git(root, "rev-parse", "b").strip() == made
    listing = run_git(root, "ls-tree", "-r", "b").splitlines()
    return {
        line.partition("\t")[2]: f"{line[:6]} {run_git(root, 'cat-file', 'blob', line.split()[2])}"
        for line in listing
    }


def test_files_are_made_changed_and_deleted(make_repository: MakeRepository) -> None:
    root = make_repository({"a": "a\n", "gone/x": "x\n", "place": "p\n", "same": "s\n"})
    (root / "a").chmod(0o755)
    run_git(root, "commit", "-qam", "executable")
    found = committed(
        root,
        FileChange("a", b"a\n", b"b\r\n"),
        FileChange("gone/x", b"x\n", None),
        FileChange("place", b"p\n", None),
        FileChange("place/inner", None, b"i\n"),
        FileChange("new.sh", None, b"n\n", executable=True),
    )
    assert found == {
        "a": "100755 b\r\n", "new.sh": "100755 n\n", "place/inner": "100644 i\n",
        "same": "100644 s\n",
    }  # fmt: skip


def test_a_file_with_other_line_ends_on_disk(make_repository: MakeRepository) -> None:
    root = make_repository({"a": "one\ntwo\n"})
    found = committed(root, FileChange("a", b"one\r\ntwo\r\n", b"one\r\n2\r\n"))
    assert found == {"a": "100644 one\n2\n"}


def test_edits_elsewhere_are_merged_and_others_refused(make_repository: MakeRepository) -> None:
    lines = [f"{number}\n" for number in range(9)]
    root = make_repository({"a": "".join(lines)})
    edited = "".join(["edited\n", *lines[1:]]).encode()
    overlap = FileChange("a", edited, edited.replace(b"edited", b"patched"))
    assert isinstance(committed(root, overlap), CommitRefused)
    assert isinstance(committed(root, FileChange("a", edited, None)), CommitRefused)
    assert isinstance(committed(root, FileChange("b", b"x\n", b"y\n")), CommitRefused)
    assert isinstance(committed(root, FileChange("a", None, b"y\n")), CommitRefused)
    assert isinstance(committed(root, FileChange("a", b"0\n", lines[0].encode())), CommitRefused)
    found = committed(root, FileChange("a", edited, edited.replace(b"8", b"eight")))
    assert found == {"a": "100644 " + "".join([*lines[:8], "eight\n"])}


def test_a_branch_with_the_same_commit_is_kept(make_repository: MakeRepository) -> None:
    root = make_repository({"a": "a\n"})
    change = FileChange("a", b"a\n", b"b\n")
    committed(root, change)
    first = run_git(root, "rev-parse", "b")
    committed(root, change)
    assert run_git(root, "rev-parse", "b") == first
    base = run_git(root, "rev-parse", "HEAD").strip()
    with open_repository(root) as git:
        other = commit_changes(git, [FileChange("a", b"a\n", b"c\n")], base, "b", "m\n")
    assert isinstance(other, CommitRefused)
    assert run_git(root, "rev-parse", "b") == first


def test_a_linked_reference_leads_nowhere_else(
    make_repository: MakeRepository, tmp_path: Path
) -> None:
    root = make_repository({"a": "a\n"})
    (root / ".git/refs/heads/b").symlink_to("refs/heads/other")
    base = run_git(root, "rev-parse", "HEAD").strip()
    with open_repository(root) as git:
        commit_changes(git, [FileChange("a", b"a\n", b"b\n")], base, "b", "m\n")
    assert not (root / ".git/refs/heads/other").exists()


def test_secrets_of_a_call_are_on_no_command_line(tmp_path: Path) -> None:
    env, git = tmp_path / "env", tmp_path / "git"
    env.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/line\nexec /usr/bin/env "$@"\n')
    git.write_text("#!/bin/sh\nexec /usr/bin/env\n")
    for program in (env, git):
        program.chmod(0o755)
    done = GitRunner(str(git), str(env), 20).run(
        [], cwd=tmp_path, variables=git_environment(), secrets={"TOKEN": "the-secret"}
    )
    seen = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert seen.pop("TOKEN") == "the-secret"
    assert {*seen} - {"PWD", "SHLVL", "_", "OLDPWD"} == {*git_environment()}
    assert "the-secret" not in (tmp_path / "line").read_text()
