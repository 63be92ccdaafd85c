from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agent.errors import Status
from agent.results.publishing import Publication, prepare, publish
from agent.run.record import Ledger, make_record
from agent.types import FileChange
from tests.conftest import run_git
from tests.support.forge_server import ForgeServer

RESULT = make_record(Ledger(), status=Status.ACCEPTED, message="").model_copy(
    update={"verdict": "verified"}
)
CHANGE = FileChange("a", b"a\n", b"b\n")


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeServer]:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.invalid")
    with ForgeServer(tmp_path / "forge", "owner/name") as server:
        monkeypatch.setenv("GITHUB_SERVER_URL", server.url)
        monkeypatch.setenv("GITHUB_TOKEN", server.token)
        yield server


@pytest.fixture
def origin(
    forge: ForgeServer, make_repository: Callable[[Mapping[str, str | bytes]], Path]
) -> Path:
    """A repository of two commits, pushed to the server."""
    root = make_repository({"a": "a\n"})
    run_git(root, "commit", "-q", "--allow-empty", "-m", "second")
    forge.publish(root)
    return root


def published(root: Path, forge: ForgeServer) -> None:
    base = run_git(root, "rev-parse", "HEAD").strip()
    plan = prepare(Publication("fix", pull_request=True), root, base)
    outcome = publish(plan, [CHANGE], RESULT)
    assert outcome.failure == ""
    assert outcome.published is not None
    assert forge.branches()["fix"] == outcome.published.commit
    assert run_git(forge.bare, "rev-parse", "fix~1").strip() == base
    assert outcome.published.pull_request == f"{forge.url}/owner/name/pull/1"


def test_a_shallow_clone(origin: Path, forge: ForgeServer, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    bare = f"file://{forge.bare}"
    run_git(tmp_path, "clone", "-q", "--depth", "1", bare, str(clone), "-b", "main")
    run_git(clone, "remote", "set-url", "origin", forge.origin)
    published(clone, forge)


def test_a_linked_work_tree(origin: Path, forge: ForgeServer, tmp_path: Path) -> None:
    run_git(origin, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "work")
    published(tmp_path / "linked", forge)
    assert forge.opened[0]["base"] == "main"


def test_the_branch_that_is_checked_out_is_the_target(origin: Path, forge: ForgeServer) -> None:
    run_git(origin, "checkout", "-q", "-b", "release")
    run_git(forge.bare, "branch", "release", "main")
    published(origin, forge)
    assert forge.opened[0]["base"] == "release"
