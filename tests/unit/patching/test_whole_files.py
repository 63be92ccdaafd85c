"""Replies that show a whole file or insert lines by number."""

from __future__ import annotations

import pytest

from agent.patching import apply_proposal
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    CreateFile,
    Edit,
    FileChange,
    MatchTier,
    PatchProposal,
)
from tests.support.memory_files import MemoryFiles

LINES = [f"value_{k} = {k}" for k in range(20)]
BEFORE = ("\r\n".join(LINES)).encode("utf-8-sig")
FILES = MemoryFiles({"src/a.py": BEFORE, "src/b/c.py": "one = 1\n", "lib/b/c.py": "one = 1\n"})


def apply(*edits: Edit) -> AppliedPatch | ApplyFailure:
    return apply_proposal(PatchProposal(edits), FILES)


def whole(path: str, lines: list[str]) -> CreateFile:
    return CreateFile(path, "".join(f"{line}\n" for line in lines), replace_existing=True)


CHANGED = [*LINES[:7], "value_7 = 70", *LINES[8:], "value_20 = 20"]


def test_a_whole_file_keeps_encoding_line_ends_and_a_missing_last_one() -> None:
    outcome = apply(whole("src/a.py", CHANGED))
    assert isinstance(outcome, AppliedPatch)
    after = "\r\n".join(CHANGED).encode("utf-8-sig")
    assert outcome.changes == (FileChange("src/a.py", BEFORE, after),)
    assert (outcome.edits[0].tier, outcome.edits[0].line) == (MatchTier.EXACT, 8)


@pytest.mark.parametrize("path", ["a.py", "/repo/src/a.py", "SRC/a.py", "b/src/a.py"])
def test_a_whole_file_under_another_path_replaces_the_one_it_is_a_version_of(path: str) -> None:
    outcome = apply(whole(path, CHANGED))
    assert isinstance(outcome, AppliedPatch)
    assert [change.path for change in outcome.changes] == ["src/a.py"]
    assert outcome.edits[0].path_as_written == path


def test_a_whole_file_that_may_be_two_is_refused() -> None:
    outcome = apply(whole("c.py", ["one = 1", "two = 2"]))
    assert isinstance(outcome, ApplyFailure)
    assert "did you mean lib/b/c.py or src/b/c.py" in outcome.reason


def test_a_whole_file_that_is_like_none_is_new() -> None:
    outcome = apply(whole("other/a.py", ["x = 1"]))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.changes == (FileChange("other/a.py", None, b"x = 1\n"),)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (LINES[:9], "would delete the rest"),
        ([f"x{k}" for k in range(20)], "another file"),
        ([*LINES[:9], "...", *LINES[12:]], "leaves lines out ('...')"),
    ],
)
def test_an_excerpt_or_another_file_does_not_become_the_file(lines: list[str], why: str) -> None:
    outcome = apply(whole("src/a.py", lines))
    assert isinstance(outcome, ApplyFailure)
    assert why in outcome.reason


def test_an_ellipsis_may_be_a_body() -> None:
    outcome = apply(whole("src/a.py", [*LINES, "def f(x):", "    ..."]))
    assert isinstance(outcome, AppliedPatch)


def test_an_unchanged_whole_file_is_no_change() -> None:
    outcome = apply(whole("src/a.py", LINES))
    assert isinstance(outcome, ApplyFailure)
    assert outcome.failures[0].kind == "no-change"
