"""SEARCH/REPLACE blocks as models write them."""

from __future__ import annotations

import pytest

from agent.patching.readers import blocks
from agent.patching.readers.reply import Reading, Reply, Trouble
from agent.types import Edit, ParseFailure, SearchReplace


def read_blocks(text: str, *, cut_off: bool = False) -> tuple[Edit, ...] | ParseFailure | None:
    outcome = blocks.read_blocks(Reply(text, cut_off=cut_off))
    if isinstance(outcome, Reading):
        return outcome.proposal.edits
    return outcome.failure if isinstance(outcome, Trouble) else None


BLOCK = "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "above",
    [
        *("pkg/a.py\n", "Some words.\n\npkg/a.py\n", "pkg/a.py\n```python\n"),
        *("```python\npkg/a.py\n", "```\n### pkg/a.py\n", "# pkg/a.py\n", "// pkg/a.py\n"),
        *("/* pkg/a.py */\n", "**pkg/a.py**\n```python\n", "`pkg/a.py`:\n\n```python\n"),
        *("pkg/a.py\n<source>python\n", "**`pkg/a.py`**\n", "File: pkg/a.py\n"),
        *("- filename: `pkg/a.py`\n", "### 1. Update `pkg/a.py`\n"),
        *("### pkg/a.py:L10-42\n```python\n", "```python:pkg/a.py\n"),
        *('```python title="pkg/a.py"\n', "<path>pkg/a.py</path>\n<diff>\n"),
        "Then I change `pkg/a.py` like this:\n\n```python\n",
        "In pkg/a.py the call is wrong.\n",
    ],
)
def test_finds_the_path_above(above: str) -> None:
    assert read_blocks(above + BLOCK) == (SearchReplace("pkg/a.py", "old\n", "new\n"),)


def test_a_block_right_after_another_is_for_the_same_file() -> None:
    outcome = read_blocks(f"a.py\n```python\n{BLOCK}```\n\n```python\n{BLOCK}```\n")
    assert outcome == (SearchReplace("a.py", "old\n", "new\n"),) * 2


@pytest.mark.parametrize("length", [5, 7, 9])
def test_marker_lengths_and_line_ends(length: int) -> None:
    text = f"a.py\n{'<' * length} SEARCH\nold\n{'=' * length}\n\n{'>' * length} REPLACE"
    assert read_blocks(text) == (SearchReplace("a.py", "old\n", "\n"),)
    assert read_blocks(text.replace("\n", "\r\n")) == (SearchReplace("a.py", "old\n", "\n"),)


def test_an_underline_is_told_from_the_divider_by_its_length() -> None:
    text = "a.rst\n<<<<<<< SEARCH\nHead\n=====\n=======\nTitle\n=====\n>>>>>>> REPLACE\n"
    assert read_blocks(text) == (SearchReplace("a.rst", "Head\n=====\n", "Title\n=====\n"),)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (BLOCK, "malformed", "line 1, column 1: block 1 has no file"),
        (f"Now I change the file:\n{BLOCK}", "malformed", "line 2, column 1: block 1"),
        (f"a.py\n{BLOCK}Now b.py and c.py:\n{BLOCK}", "malformed", "block 2"),
        ("a.py\n<<<<<<< SEARCH\nold\n=======\nne", "truncated", "block of line 2"),
        ("a.py\n<<<<<<< SEARCH\nold\n", "truncated", "block of line 2"),
        ("a.py\n<<<<<<< SEARCH\nold\n>>>>>>> REPLACE\n", "malformed", "this one has 0"),
        (f"a.py\n{BLOCK.replace('old', '=======')}", "malformed", "this one has 2"),
        (f"a.py\n<<<<<<< SEARCH\nx\n{BLOCK}", "malformed", "line 4, column 1: a second"),
        (f"a.py\n{BLOCK}>>>>>>> REPLACE\n", "malformed", "without its"),
    ],
)
def test_refuses_what_can_be_read_in_two_ways(text: str, kind: str, reason: str) -> None:
    outcome = read_blocks(text)
    assert isinstance(outcome, ParseFailure)
    assert outcome.kind == kind
    assert reason in outcome.reason


@pytest.mark.parametrize(
    "text", ["git shows <<<<<<< SEARCH inside a line", "<<<<<<< HEAD\n=======\n>>>>>>> main\n", "x"]
)
def test_what_is_no_block_is_left_to_others(text: str) -> None:
    assert read_blocks(text) is None


@pytest.mark.parametrize(
    "block",
    [
        "<<<<<<< SEARCH a.py\nold\n=======\nnew\n>>>>>>> REPLACE\n",
        "a.py\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE the call\n",
        "a.py\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>>\n",
        "1. a.py\n   ```\n   <<<<<<< SEARCH\n   old\n   =======\n   new\n   >>>>>>> REPLACE\n",
    ],
)
def test_variants_of_the_markers(block: str) -> None:
    assert read_blocks(block) == (SearchReplace("a.py", "old\n", "new\n"),)


def test_conflict_markers_are_edited_with_longer_markers() -> None:
    conflict = "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main\n"
    text = f"a.py\n<<<<<<<<< SEARCH\n{conflict}=========\nb\n>>>>>>>>> REPLACE\n"
    assert read_blocks(text) == (SearchReplace("a.py", conflict, "b\n"),)
