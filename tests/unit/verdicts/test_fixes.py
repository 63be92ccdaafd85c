"""The reproduction that is made of a commit's tests."""

from __future__ import annotations

from agent.types import FileChange
from benchmarks.verdicts.fixes import new_tests, rows

BEFORE = b"""import pytest

LIMIT = 3


def test_old():
    assert LIMIT


class TestOld:
    def test_one(self):
        assert LIMIT


class TestBoth:
    def test_two(self):
        assert LIMIT
"""
AFTER = BEFORE.replace(
    b"def test_old", b"@pytest.mark.slow\ndef test_marked():\n    assert 1\n\n\ndef test_old"
)
AFTER += b"\n    def test_new(self):\n        assert LIMIT == 3\n"


def test_only_new_and_changed_tests_are_left() -> None:
    test = new_tests(FileChange("tests/test_x.py", BEFORE, AFTER))
    assert test is not None
    assert test.path == "tests/test_of_issue.py"
    names: dict[str, object] = {}
    body = test.content.replace("import pytest", "").replace("@pytest.mark.slow", "")
    exec(compile(body, "x", "exec"), names)
    assert {name for name in names if name.startswith("test")} == {"test_marked"}
    assert [name for name in vars(names["TestBoth"]) if name.startswith("test")] == ["test_new"]
    assert not [name for name in vars(names["TestOld"]) if name.startswith("test")]


def test_a_file_without_a_new_test_brings_none() -> None:
    assert new_tests(FileChange("tests/test_x.py", BEFORE, BEFORE + b"\nOTHER = 1\n")) is None


def test_the_rows_name_commits_once() -> None:
    found = rows()
    assert len(set(found)) == len(found) >= 30
    assert len({repo for repo, _ in found}) >= 10
    assert all(len(commit) == 40 for _, commit in found)
