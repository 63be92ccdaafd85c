"""History as a tie, with a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.validation.choosing.together import changed_together
from tests.support.histories import commit, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def test_files_of_the_same_commits_are_scored_by_how_regularly(repository: Path) -> None:
    commit(repository, "a.py", "test_a.py", "test_b.py")
    commit(repository, "a.py", "test_a.py")
    commit(repository, "test_b.py", "c.py")
    base = commit(repository, "a.py", "test_a.py", "naïve name.py")
    commit(repository, "a.py", "later.py")
    found = changed_together(repository, base, ["a.py"])
    assert list(found) == sorted(found)
    assert found["test_a.py"] > found["test_b.py"] > 0
    assert "naïve name.py" in found
    assert not {"a.py", "c.py", "later.py"} & set(found)
    assert all(0 < score <= 1 for score in found.values())


def test_commits_in_which_everything_changed_say_nothing(repository: Path) -> None:
    base = commit(repository, *(f"f{number}.py" for number in range(30)))
    assert changed_together(repository, base, ["f1.py"]) == {}


def test_a_history_that_cannot_be_read_is_no_trouble(tmp_path: Path) -> None:
    assert changed_together(tmp_path / "none", "1" * 40, ["a.py"]) == {}
    git(tmp_path, "init", "-q")
    assert changed_together(tmp_path, "1" * 40, ["a.py"]) == {}
