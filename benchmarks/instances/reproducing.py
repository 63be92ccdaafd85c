"""The repair's own test as a reply would bring it: its file, as it is after the test patch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from agent.datasets.repositories import find_repository
from agent.errors import RepositoryError
from agent.evaluation.patches.applying import CommitTree, apply_patch
from agent.repository.git import open_repository


def reproduction_test(repositories: Path, row: Mapping[str, Any]) -> dict[str, str] | None:
    """Path and content of the test file that turns, under a name of its own; None for none.

    Raises RepositoryError when the row's repository or commit is not there, PatchError (a
    ValueError) when its test patch does not apply.
    """
    path = find_repository(repositories, str(row["repo"]))
    if path is None:
        raise RepositoryError(f"{row['repo']}: not in {repositories}; clone it there")
    turning = {str(test).partition("::")[0] for test in row["FAIL_TO_PASS"]}
    with open_repository(path) as git:
        tree = CommitTree(git, str(row["base_commit"]))
        changes = apply_patch(str(row["test_patch"]).encode("utf-8"), tree).changes
    for change in changes:
        if change.path in turning and change.after is not None:
            place = PurePosixPath(change.path)
            name = str(row["instance_id"]).rpartition("-")[2]
            return {
                "path": str(place.with_name(f"test_of_{name}.py")),
                "content": change.after.decode("utf-8", "replace"),
            }
    return None
