"""Ids of tests whose file gets another name for the second run."""

from __future__ import annotations

import pytest

from agent.verify.plan import _renamed


@pytest.mark.parametrize(
    ("test", "renamed"),
    [
        ("tests/test_a.py::test_x", "tests/test_b.py::test_x"),
        ("tests/test_c.py::test_x", "tests/test_c.py::test_x"),
        ("issue tests/issue.rs::adds", "issue_2 tests/issue_2.rs::adds"),
        ("other tests/issue.rs::adds", "other tests/issue.rs::adds"),
    ],
)
def test_the_id_follows_the_file(test: str, renamed: str) -> None:
    names = {"tests/test_a.py": "tests/test_b.py", "tests/issue.rs": "tests/issue_2.rs"}
    assert _renamed(test, names) == renamed
