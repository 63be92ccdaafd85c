"""An edit has exactly one match, or a refusal that says what to do."""

from __future__ import annotations

import pytest

from agent.patching.file_text import open_text
from agent.patching.matching import Located, Match, find_place
from agent.patching.refusals import LINE_TOLERANCE, Miss
from agent.types import MatchTier, SearchReplace


def place(text: str, search: str, replace: str = "new", line: int | None = None) -> Located | Miss:
    if replace == "new" and search.endswith("\n"):
        replace = "new\n"
    file = open_text(text.encode())
    assert file is not None
    return find_place(file, SearchReplace("a.py", search, replace, line))


def exact(start: int, end: int, replacement: str = "new") -> Located:
    return Located(MatchTier.EXACT, Match(start, end, replacement))


def miss(outcome: Located | Miss) -> Miss:
    assert isinstance(outcome, Miss), outcome
    return outcome


def test_a_missing_final_line_feed_is_not_seen_by_the_model() -> None:
    assert place("a\nb", "b\n", "c\n") == exact(2, 3, "c")
    assert place("a\nb", "b\n", "c") == exact(2, 3, "c")
    assert place("a\nb", "b", "c\n") == exact(2, 3, "c\n")


FAR = "x\n" + "-\n" * 20 + "x\n" + "-\n" * 3 + "x\n"  # x at lines 1, 22, 26


@pytest.mark.parametrize(
    ("line", "start"), [(1, 0), (6, 0), (22, 42), (23, 42), (25, 50), (26, 50), (31, 50)]
)
def test_a_hint_selects_the_nearest_occurrence(line: int, start: int) -> None:
    assert place(FAR, "x", line=line) == exact(start, start + 1)


@pytest.mark.parametrize("line", [7, 12, 16, 24, 32, 1000])
def test_a_hint_far_off_or_in_the_middle_is_refused(line: int) -> None:
    outcome = miss(place(FAR, "x", line=line))
    assert outcome.kind == "ambiguous"
    assert f'nearest to "line" {line} (within {LINE_TOLERANCE} lines)' in outcome.reason


APPLIED = "def f():\n    return compute(1, 2, 3)\n"


@pytest.mark.parametrize(
    ("text", "search", "replace"),
    [
        ("a\nreturn None\n", "return 1\n", "return None\n"),  # says too little
        (f"{APPLIED}{APPLIED}", "def f():\n    return compute(1)\n", APPLIED),  # twice
        (f"a\n{APPLIED}", "quite = another\nstory = told\n", APPLIED),  # not related
    ],
)
def test_what_only_looks_applied_is_a_miss(text: str, search: str, replace: str) -> None:
    assert miss(place(text, search, replace)).kind == "no-match"


@pytest.mark.parametrize("search", ["x = 1", "x = 1\n", "max", "ma"])
def test_a_line_inside_a_longer_word_is_refused(search: str) -> None:
    outcome = place("max = 1\n", search, "y\n")
    assert isinstance(outcome, Miss) == (search != "max")


def test_bytes_without_encoding_do_not_reach_the_reason() -> None:
    file = open_text("é è x = 1 ".encode() + b"\xff\n")
    assert file is not None
    outcome = miss(find_place(file, SearchReplace("a.py", "é è x = 2 \ufffd\n", "y")))
    assert outcome.candidates[0].text == "é è x = 1 \ufffd"
    assert "U+FFFD" in outcome.advice
    outcome.reason.encode()
