"""Edits are read back from every shape unchanged; mutated replies never raise or hang."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.patching import parse_reply
from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    ParseFailure,
    PatchProposal,
    RenameFile,
    SearchReplace,
)
from tests.support.reply_shapes import SHAPES

# Lines that look like those of some shape, and what text files are full of.
_LIKE_SHAPES = (
    *(
        *("", "    return x", "\tpass  ", "- item", "+ item", "--- a", "+++ b", "@@ decorated"),
        "======",
    ),
    *(
        *("<<<<<<< HEAD", ">>>>>>> main", "*** bold", "<b>&amp;</b>", 'say "hi" \\n', "{}"),
        "# comment",
    ),
    *("naïve — “quoted” 日本", "def f(x): ...", "# comment", "======"),
)
_LINES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12
) | st.sampled_from(_LIKE_SHAPES)
_TEXTS = st.lists(_LINES, min_size=1, max_size=5).map(lambda lines: "\n".join(lines) + "\n")
_SOLID = _TEXTS.filter(lambda text: bool(text.strip()))
_PATHS = st.sampled_from(["a.py", "pkg/b.py", "docs/c.rst", "x/y/z.ts", "my_dir/d-e.json"])
_REPLACES = st.builds(SearchReplace, _PATHS, _SOLID, _TEXTS | st.just(""))
_ALL: st.SearchStrategy[Edit] = st.one_of(
    _REPLACES,
    st.builds(CreateFile, _PATHS, _SOLID),
    st.builds(DeleteFile, _PATHS),
    st.builds(RenameFile, _PATHS, st.just("new/name.py")),
)
_KINDS: dict[str, st.SearchStrategy[Edit]] = {
    "json": _REPLACES | st.builds(CreateFile, _PATHS, _SOLID),
    "search-replace": _REPLACES,
    "unified-diff": _ALL,
    "apply-patch": _ALL,
    "whole-files": st.builds(CreateFile, _PATHS, _SOLID, st.just(True)),
}


def essential(edits: tuple[Edit, ...]) -> list[Edit]:
    """Drop hints, and end the texts as a line-wise shape does."""
    return [replace(edit, line=None) if isinstance(edit, SearchReplace) else edit for edit in edits]


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@given(st.data())
@settings(deadline=timedelta(seconds=2), max_examples=60)
def test_edits_round_trip_or_are_refused(shape: str, ends: str, data: st.DataObject) -> None:
    """An ambiguous shape may be refused but is never read as another edit."""
    unique = st.lists(_KINDS[shape], min_size=1, max_size=3, unique=True)
    edits = tuple(data.draw(unique.filter(lambda e: all(_changes(one) for one in e))))
    text = SHAPES[shape](edits)
    outcome = parse_reply("\ufeff" + text.replace("\n", ends))
    if isinstance(outcome, ParseFailure):
        assert _has_marks(edits), outcome
        return
    assert outcome.reader == shape or (shape, outcome.reader) == ("json", "json-lenient")
    assert essential(outcome.edits) == essential(edits)


def _changes(edit: Edit) -> bool:
    return not (isinstance(edit, SearchReplace) and edit.search == edit.replace)


_MARKS = ("<<<<", "====", ">>>>", "@@", "---", "+++", "***", "<b>", "- item", "+ item", "\\n", "#",
          "...", "…")  # fmt: skip


def _has_marks(edits: tuple[Edit, ...]) -> bool:
    texts = "".join(
        edit.search + edit.replace if isinstance(edit, SearchReplace) else edit.content
        for edit in edits
        if isinstance(edit, (SearchReplace, CreateFile))
    )
    return any(mark in texts for mark in _MARKS)


_PLAIN = (
    SearchReplace("pkg/a.py", "def f(x):\n    return x\n", "def f(x):\n    return x + 1\n"),
    SearchReplace("b.py", "old = 1\n\n\nold = 2\n", "new = 1\n"),
)
_FILES = (CreateFile("pkg/new.py", "import os\n\n\ndef f():\n    return os\n", True),)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_reply_cut_anywhere_is_never_half_an_edit(shape: str) -> None:
    """A reply cut at the output limit is not read; otherwise only complete edits are read."""
    edits = _FILES if shape == "whole-files" else _PLAIN
    text = SHAPES[shape](edits)
    for size in range(len(text.rstrip())):
        assert isinstance(parse_reply(text[:size], finish_reason="length"), ParseFailure)
        outcome = parse_reply(text[:size])
        if isinstance(outcome, PatchProposal):
            assert essential(outcome.edits) == essential(edits)[: len(outcome.edits)]
