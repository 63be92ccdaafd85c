"""Edits that replace lines by their numbers, guarded by the texts of the first and last one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.patching import apply_proposal, parse_reply
from agent.types import AppliedPatch, ApplyFailure, MatchTier, ParseFailure, PatchProposal
from tests.support.memory_files import MemoryFiles

TEXT = """def one(a):
    if a:
        return 1
    return 2


def two(a):
    if a:
        return 3
    return 4
"""
Edit = dict[str, object]


def edit(first: int, last: int, begins: str, ends: str, new: str = "") -> Edit:
    return {"path": "a.py", "lines": [first, last], "first": begins, "last": ends, "replace": new}


def applied(
    *edits: Edit, text: str = TEXT, shown: list[tuple[int, int]] | None = None
) -> AppliedPatch | ApplyFailure:
    proposal = parse_reply(json.dumps({"edits": edits}))
    assert isinstance(proposal, PatchProposal), proposal
    seen = None if shown is None else {"a.py": shown}
    return apply_proposal(proposal, MemoryFiles({"a.py": text}), shown=seen)


def after(done: AppliedPatch | ApplyFailure, tier: MatchTier = MatchTier.EXACT) -> str:
    assert isinstance(done, AppliedPatch), done
    assert {one.tier for one in done.edits} == {tier}
    return (done.changes[0].after or b"").decode()


def without(first: int, last: int, new: str = "") -> str:
    lines = TEXT.splitlines(keepends=True)
    return "".join([*lines[: first - 1], new, *lines[last:]])


def test_lines_are_deleted_and_replaced() -> None:
    assert after(applied(edit(1, 6, "def one(a):", ""))) == without(1, 6)
    new = "    return 5"
    assert after(applied(edit(8, 10, "    if a:", "    return 4", new))) == without(
        8, 10, f"{new}\n"
    )
    whole = edit(1, 2, "x", "y", "z\n")
    assert after(applied(whole, text="x\ny")) == "z"


def test_numbers_are_those_of_the_file_as_it_was_shown() -> None:
    one = edit(2, 4, "    if a:", "    return 2", "    return 0")
    two = edit(9, 9, "        return 3", "        return 3", "        return 9")
    wanted = without(2, 4, "    return 0\n").replace("return 3", "return 9")
    assert after(applied(one, two)) == after(applied(two, one)) == wanted


@pytest.mark.parametrize(
    ("numbers", "begins", "ends", "lines", "tier"),
    [
        ((7, 10), "def two(a):", "return 4", (7, 10), MatchTier.WHITE_SPACE),
        ((5, 8), "def two(a):", "    return 4", (7, 10), MatchTier.NEAR),
        ((90, 93), "def two(a):", "    return 4", (7, 10), MatchTier.NEAR),
        ((7, 9), "def two(a):", "    return 4", (7, 10), MatchTier.NEAR),
        ((9, 12), "    if a:\n        return 3", "    return 4", (8, 10), MatchTier.NEAR),
    ],
)
def test_texts_that_stand_elsewhere_once_decide(
    numbers: tuple[int, int], begins: str, ends: str, lines: tuple[int, int], tier: MatchTier
) -> None:
    new = "def two(a):\n    return 4\n"
    done = applied(edit(*numbers, begins, ends, new if lines[0] == 7 else new.split("\n")[1]))
    assert after(done, tier) == without(7, 10, new)


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (edit(4, 6, "    if a:", ""), "no-match", 'the text of "first" is at 2, 8'),
        (edit(1, 4, "def one(a):", "    return 9"), "no-match", '"last" is at no line'),
        (edit(1, 40, "def none(a):", "x"), "no-match", "the file has 10 lines"),
        (edit(5, 6, "", "", "x = 1"), "no-match", 'line 5 is ""'),
        (edit(7, 8, "def one(a):", "    if a:"), "broken-syntax", "lines 1-2"),
        (edit(1, 4, "def one(a):", "    return 2", "# ... rest of it"), "no-match", "leaves code"),
    ],
)
def test_why_lines_are_refused(wrong: Edit, kind: str, words: str) -> None:
    done = applied(wrong)
    assert isinstance(done, ApplyFailure)
    assert done.failures[0].kind == kind
    assert words in done.failures[0].reason


def test_lines_that_were_not_shown_are_not_replaced() -> None:
    near = edit(3, 8, "def one(a):", "")
    done = applied(near, shown=[(1, 2), (4, 9)])
    assert isinstance(done, ApplyFailure)
    assert done.failures[0].kind == "not-shown"
    assert after(applied(near, shown=[(1, 4)]), MatchTier.NEAR) == without(1, 6)


@pytest.mark.parametrize("lines", [[0, 2], [3, 2], [1], [1, 2, 3], ["1", "2"], 3])
def test_a_range_has_two_numbers_in_order(lines: object) -> None:
    found = parse_reply(json.dumps({"edits": [{**edit(1, 2, "a", "b"), "lines": lines}]}))
    assert isinstance(found, ParseFailure)
    assert found.kind == "schema"
    assert "edits[0].lines" in found.reason


@given(st.lists(st.sampled_from(["a", " a", "b1", "", "}"]), min_size=1, max_size=9), st.data())
@settings(max_examples=200)
def test_only_lines_with_both_texts_are_replaced_whatever_the_numbers(
    lines: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    off = data.draw(st.integers(0, 30))
    text = "".join(f"{line}\n" for line in lines)
    begins, ends = lines[first - 1], lines[last - 1]
    exact = applied(edit(first, last, begins, ends, "new"), text=text)
    if not (begins + ends).strip(" }"):
        assert isinstance(exact, ApplyFailure)
        return
    assert after(exact) == "".join(f"{x}\n" for x in [*lines[: first - 1], "new", *lines[last:]])
    moved = applied(edit(first + off, last + off, begins, ends, "new"), text=text)
    bare = [line.strip() for line in lines]
    if bare.count(begins.strip()) == bare.count(ends.strip()) == 1:
        assert isinstance(moved, AppliedPatch)
        assert moved.changes == exact.changes  # type: ignore[union-attr]
    elif isinstance(moved, AppliedPatch):
        kept = after(moved, moved.edits[0].tier).split("\n")
        at = kept.index("new")
        gone = bare[at : len(bare) - len(kept) + at + 2]
        assert [gone[0], gone[-1]] == [begins.strip(), ends.strip()]
