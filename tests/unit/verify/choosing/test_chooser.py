"""The choice of tests with a real history."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.types import SelectedTest
from agent.verify.choosing import TestChooser, changed_together
from agent.verify.runners.base import Suite
from tests.support.fakes import MemorySnapshot
from tests.support.histories import commit, git
from tests.support.validation import edit

FILES = {
    "pkg/sums.py": "def add(a, b):\n    return a - b\n",
    "tests/test_far.py": "x = 1\n",
    "tests/test_sums.py": "from pkg.sums import add\n" + "def test_add(): pass\n" * 9,
    "tests/test_use.py": "from pkg.sums import add\n",
    "web/sums.test.js": "add\n",
}
CHANGE = edit("pkg/sums.py", FILES["pkg/sums.py"], "def add(a, b):\n    return a + b\n")


def snapshot_of(folder: Path) -> MemorySnapshot:
    git(folder, "init", "-q")
    for _ in range(4):
        base = commit(folder, "pkg/sums.py", "tests/test_far.py")
    snapshot = MemorySnapshot(FILES)
    snapshot.root, snapshot.commit = folder, base
    return snapshot


def test_the_history_has_a_say_and_only_what_the_suite_runs_is_chosen(tmp_path: Path) -> None:
    chooser = TestChooser(snapshot_of(tmp_path), "", suite=Suite("pytest", ""))
    found = chooser.choose([CHANGE])
    assert [test.path for test in found] == [
        "tests/test_sums.py",
        "tests/test_far.py",
        "tests/test_use.py",
    ]
    assert found[1] == SelectedTest("tests/test_far.py", "changed together with it before")
    assert chooser.choose([CHANGE]) == found


def test_a_suite_that_cannot_name_files_still_says_which_matter() -> None:
    chooser = TestChooser(MemorySnapshot(FILES), "", suite=Suite("make", "", ("make", "test")))
    assert "web/sums.test.js" in [test.path for test in chooser.choose([CHANGE])]


def test_the_time_counts() -> None:
    chooser = TestChooser(MemorySnapshot(FILES), "", seconds=6.0, suite=Suite("pytest", ""))
    assert len(chooser.choose([CHANGE])) == 2


def test_a_new_file_has_no_history() -> None:
    new = edit("pkg/new.py", None, "def add(): pass\n")
    assert TestChooser(MemorySnapshot(FILES), "").choose([new])[0].path == "tests/test_sums.py"


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
