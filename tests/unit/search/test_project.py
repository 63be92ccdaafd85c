from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.search.project import normalised_url, project_key, project_name
from tests.conftest import run_git

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/team/shop.git",
        "https://user:key@Example.org/team/shop",
        "ssh://git@example.org:22/team/shop.git",
        "git@example.org:team/shop.git",
        "example.org:team/shop/",
    ],
)
def test_one_name_for_all_ways_to_a_project(url: str) -> None:
    assert normalised_url(url) == "example.org/team/shop"


def test_the_remote_names_the_project_on_every_machine(make_repository: MakeRepository) -> None:
    root = make_repository({"a.py": "x = 1\n"})
    own = project_name(take_snapshot(root))
    assert own.startswith("local/target-")
    run_git(root, "remote", "add", "origin", "git@example.org:team/shop.git")
    assert project_name(take_snapshot(root)) == "example.org/team/shop"
    run_git(root, "worktree", "add", "-q", str(root.parent / "linked"))
    assert project_name(take_snapshot(root.parent / "linked")) == "example.org/team/shop"


def test_keys_are_file_names() -> None:
    key = project_key("example.org/team/../shop:x")
    assert "/" not in key
    assert key != project_key("example.org/team/../shop:y")
