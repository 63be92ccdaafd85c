"""Repairs found in a real history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent.repository.git import open_repository
from benchmarks.instances.history import Entry, Repair, parse_log, repairs
from benchmarks.instances.parts import Parts, Touched

BODY = (
    "Asking an empty shop for its first item raises an IndexError instead of returning None, and "
    "the page that shows it crashes."
)


class History:
    """A repository that grows by commits."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.root, check=True, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.stdout.strip()

    def commit(self, message: str, files: dict[str, str]) -> str:
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit("Begin", {"shop.py": "one\n", "tests/test_shop.py": "1\n"})
    return made


def fix(history: History, number: int, subject: str = "Fix empty shops") -> str:
    changed = {
        "shop.py": f"two {number}\n",
        "tests/test_shop.py": f"test {number}\n",
        "CHANGES.md": f"{number}\n",
    }
    return history.commit(f"{subject}\n\n{BODY}\n", changed)


def test_a_repair_is_found_with_its_parent_and_its_parts(history: History) -> None:
    before = history.git("rev-parse", "HEAD")
    commit = fix(history, 1)
    history.commit(f"Fix more\n\n{BODY}\n", {"shop.py": "three\n"})  # without a test

    with open_repository(history.root) as git:
        found = list(repairs(git, "owner/shop", "HEAD", 10))

    parts = Parts(("shop.py",), ("tests/test_shop.py",), ("tests/test_shop.py",))
    assert found == [Repair(commit, before, f"Fix empty shops\n\n{BODY}\n", parts)]


def test_of_equal_messages_the_newest_counts_and_the_limit_holds(history: History) -> None:
    first, second = fix(history, 1, "Fix full shops"), fix(history, 2)
    third = fix(history, 3)

    with open_repository(history.root) as git:
        found = [repair.commit for repair in repairs(git, "owner/shop", "HEAD", 10)]
        newest = [repair.commit for repair in repairs(git, "owner/shop", "HEAD", 1)]

    assert found == [third, first]
    assert second not in found
    assert newest == [third]


def test_a_message_cannot_pose_as_a_commit(history: History) -> None:
    posing = "a" * 40 + " " + "b" * 40
    commit = history.commit(f"{posing}\n\n{posing}\n", {"shop.py": "two\n"})

    with open_repository(history.root) as git:
        output = git.changes([commit], "--numstat", "-z", "--format=%x00%H %P%x00%B%x00")

    (entry,) = parse_log(output)
    assert isinstance(entry, Entry)
    assert (entry.commit, entry.touched) == (commit, (Touched("shop.py", 2),))
