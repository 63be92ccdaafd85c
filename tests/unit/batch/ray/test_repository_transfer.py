"""A copy of a repository on another machine has the wanted commits, each object once."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.batch.ray.repository_transfer import (
    Pack,
    commits_of,
    full_name,
    has_commit,
    make_pack,
    unpack,
)
from agent.errors import RepositoryError
from agent.repository.snapshot import take_snapshot
from tests.conftest import run_git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    run_git(work, "init", "-q")
    for number in range(3):
        (work / "a.py").write_text("".join(f"x{n} = {n}\n" for n in range(500 + number)))
        run_git(work, "add", "-A")
        run_git(work, "commit", "-q", "-m", f"commit {number}")
    return work


def commits(project: Path) -> list[str]:
    return run_git(project, "rev-list", "--reverse", "HEAD").split()


def test_a_commit_arrives_with_its_history_and_nothing_else(project: Path, tmp_path: Path) -> None:
    _, second, third = commits(project)
    copy = tmp_path / "copy.git"
    assert (has_commit(copy, second), commits_of(copy)) == (False, [])
    unpack(copy, second, make_pack(project, second))
    assert (has_commit(copy, second), has_commit(copy, third)) == (True, False)
    assert commits_of(copy) == [second]
    assert take_snapshot(copy, commit=second).text("a.py") == run_git(
        project, "show", f"{second}:a.py"
    )
    assert run_git(copy, "-c", "safe.bareRepository=all", "rev-list", "--count", second) == "2\n"
    assert "remote" not in (copy / "config").read_text()


def test_a_later_commit_brings_only_what_is_new(project: Path, tmp_path: Path) -> None:
    _, second, third = commits(project)
    copy = tmp_path / "copy.git"
    unpack(copy, second, make_pack(project, second))
    more = make_pack(project, third, [*commits_of(copy), "f" * 40])  # one that is not here
    assert int.from_bytes(more.data[8:12], "big") == 3  # commit, tree and blob
    unpack(copy, third, more)
    unpack(copy, third, more)  # twice does no harm
    assert has_commit(copy, third)
    assert commits_of(copy) == sorted([second, third])


def test_a_shallow_clone_stays_one(project: Path, tmp_path: Path) -> None:
    shallow, copy = tmp_path / "shallow", tmp_path / "copy.git"
    run_git(project, "clone", "-q", "--depth", "1", project.as_uri(), str(shallow))
    head = commits(project)[-1]
    unpack(copy, head, make_pack(shallow, head))
    assert take_snapshot(copy, commit=head).files.keys() == {"a.py"}


def test_hooks_and_configuration_of_the_project_are_not_in_force(
    project: Path, tmp_path: Path
) -> None:
    run_git(project, "config", "uploadpack.packObjectsHook", f"touch {tmp_path}/ran")
    run_git(project, "config", "core.fsmonitor", f"touch {tmp_path}/ran")
    head = full_name(project, commits(project)[-1][:10])
    unpack(tmp_path / "copy.git", head, make_pack(project, head))
    assert head == commits(project)[-1]
    assert not (tmp_path / "ran").exists()


def test_what_is_not_there_is_said(project: Path, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="no commit"):
        full_name(project, "f" * 40)
    with pytest.raises(RepositoryError, match="pack-objects has failed"):
        make_pack(project, "f" * 40)
    with pytest.raises(RepositoryError, match="index-pack has failed"):
        unpack(tmp_path / "copy.git", "f" * 40, Pack(b"no pack"))
