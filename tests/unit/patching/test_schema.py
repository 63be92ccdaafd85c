"""The JSON Schema that is sent to servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.patching import reply_schema
from agent.patching.schema import to_proposal
from agent.types import OutdatedTest, PatchProposal, SearchReplace, WrongTest


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, list):
        for item in node:
            yield from objects(item)
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield node
        for value in node.values():
            yield from objects(value)


def test_every_object_is_closed_and_requires_all_it_has() -> None:
    found = list(objects(reply_schema()))
    assert len(found) == 13  # the reply, six kinds of edit, the test, lists of tests, their edits
    for node in found:
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])


@pytest.mark.parametrize(
    "given", [None, "tests/t.py", [1], [{"path": "tests/t.py"}], [{"path": "a", "reason": " "}]]
)
def test_a_test_is_taken_back_with_a_reason_only_and_a_slip_there_costs_nothing(
    given: object,
) -> None:
    edit = {"path": "a.py", "search": "x", "replace": "y"}
    found = to_proposal({"edits": [edit], "wrong_tests": given}, "json")
    assert isinstance(found, PatchProposal)
    assert found.wrong_tests == ()
    given = [{"path": "tests/t.py", "reason": "it asserts the bug"}]
    found = to_proposal({"edits": [edit], "wrong_tests": given}, "json")
    assert isinstance(found, PatchProposal)
    assert found.wrong_tests == (WrongTest("tests/t.py", "it asserts the bug"),)


def test_outdated_tests_need_an_id_and_a_reason():
    edit = {"path": "a.py", "search": "x", "replace": "y"}
    why, source = "it asserts the bug", "def test_a(): pass"
    change = {"path": "t.py", "search": "1", "replace": "2", "line": None}
    gone, other = {"path": "t.py", "delete": True}, {**change, "path": "u.py"}
    given = [
        {"id": "t.py::test_e", "why": why, "edits": [gone, other, change, {"path": 1}]},
        {"id": " t.py::test_a ", "why": why, "replacement": source, "more": 1},
        {"id": "t.py::test_b", "why": why, "replacement": None},
        {"id": "t.py::test_c", "why": " "},
        {"id": "", "why": why},
        {"id": 3, "why": why},
        "t.py::test_d",
        None,
    ]
    found = to_proposal({"edits": [edit], "outdated_tests": given}, "json")
    assert isinstance(found, PatchProposal)
    assert found.outdated_tests == (
        OutdatedTest("t.py::test_e", why, edits=(SearchReplace("t.py", "1", "2"),)),
        OutdatedTest("t.py::test_a", why, source),
        OutdatedTest("t.py::test_b", why),
    )
