"""Replies to a repair that refer to the edits of the reply before them, and continued replies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.patching import joined_reply, parse_reply
from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    OutdatedTest,
    ParseFailure,
    PatchProposal,
    ReplaceSymbol,
    ReproductionTest,
    SearchReplace,
)

TEST = ReproductionTest("tests/test_issue.py", "x = 1\n")
EDITS: tuple[Edit, ...] = (
    SearchReplace("a.py", "one", "two", 3),
    CreateFile("b.py", "three\n"),
    DeleteFile("c.py"),
)
EARLIER = PatchProposal(EDITS, "thought", TEST, outdated_tests=(OutdatedTest("t.py::t", "why"),))


def parsed(edits: Any, **fields: Any) -> PatchProposal | ParseFailure:
    return parse_reply(json.dumps({"edits": edits, **fields}), earlier=EARLIER)


def edits_of(edits: Any) -> tuple[Edit, ...]:
    found = parsed(edits)
    assert isinstance(found, PatchProposal), found
    return found.edits


def test_the_same_edits_with_another_test() -> None:
    found = parsed("same", reproduction_test={"path": "tests/t.py", "content": "y = 1\n"})
    assert isinstance(found, PatchProposal)
    assert found.edits == EDITS
    assert found.reproduction_test == ReproductionTest("tests/t.py", "y = 1\n")
    assert found.outdated_tests == EARLIER.outdated_tests
    kept = parsed("same", reproduction_test=None)
    assert isinstance(kept, PatchProposal)
    assert kept.reproduction_test == TEST
    back = parsed("same", wrong_tests=[{"path": TEST.path, "reason": "it asserts the bug"}])
    assert isinstance(back, PatchProposal)
    assert back.reproduction_test is None


def test_edits_are_replaced_dropped_and_added() -> None:
    first = SearchReplace("a.py", "one", "four", 3)
    new = {"path": "d.py", "create": "d\n"}
    assert edits_of([{"edit": 1, "replace": "four"}]) == (first, *EDITS[1:])
    assert edits_of([{"edit": 2, "drop": True}, new]) == (
        EDITS[0], EDITS[2], CreateFile("d.py", "d\n"),
    )  # fmt: skip
    other = edits_of([{"edit": 3, "symbol": "f", "replace": "def f(): pass"}])
    assert other[2] == ReplaceSymbol("c.py", "f", "def f(): pass")


def test_edits_without_any_number_are_all_edits_and_one_number_keeps_the_others() -> None:
    new = {"path": "d.py", "create": "d\n"}
    assert edits_of([new]) == (CreateFile("d.py", "d\n"),)
    assert edits_of([{"edit": 1}, new]) == (*EDITS, CreateFile("d.py", "d\n"))


@pytest.mark.parametrize(
    "edits",
    [
        *("same ", "Same", [{"edit": 4}], [{"edit": 0}], [{"edit": True}], [{"edit": "1"}]),
        *([{"edit": [1]}], [{"edit": 1, "create": 3}], [{"edit": 1}, "x"]),
    ],
)
def test_what_refers_to_nothing_is_a_failure(edits: Any) -> None:
    assert isinstance(parsed(edits), ParseFailure)


def test_without_an_earlier_reply_there_is_nothing_to_keep() -> None:
    found = parse_reply('{"edits": "same"}')
    assert isinstance(found, ParseFailure)
    assert found.reason == (
        "edits: there is no earlier reply with edits to refer to; give all edits"
    )


REPLY = json.dumps(
    {"thought": "a b", "edits": [{"path": "a.py", "search": "x  y", "replace": 'z "q"\n  w'}]}
)


@given(st.integers(1, len(REPLY) - 1), st.integers(0, 40))
def test_a_reply_cut_anywhere_is_joined(at: int, repeated: int) -> None:
    begun = REPLY[:at].rstrip()
    repeated = repeated if repeated >= 12 else 0
    rest = REPLY[max(0, len(begun) - repeated) :]
    whole = joined_reply(REPLY[:at], rest, finish_reason="stop")
    assert parse_reply(whole) == parse_reply(REPLY)
