"""SEARCH/REPLACE blocks as models write them."""

from __future__ import annotations

import pytest

from agent.patching.blocks import has_blocks, read_blocks
from agent.types import ParseFailure, SearchReplace

BLOCK = "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "above",
    [
        "pkg/a.py\n",
        "Some words.\n\npkg/a.py\n",
        "pkg/a.py\n```python\n",
        "```python\npkg/a.py\n",
        "```\n### pkg/a.py\n",
        "# pkg/a.py\n",
        "// pkg/a.py\n",
        "/* pkg/a.py */\n",
        "**pkg/a.py**\n```python\n",
        "`pkg/a.py`:\n\n```python\n",
        "pkg/a.py\n<source>python\n",
        "**`pkg/a.py`**\n",
        "File: pkg/a.py\n",
        "- filename: `pkg/a.py`\n",
    ],
)
def test_finds_the_path_above(above: str) -> None:
    assert read_blocks(above + BLOCK) == (SearchReplace("pkg/a.py", "old\n", "new\n"),)


def test_a_path_with_spaces_needs_quotes() -> None:
    assert read_blocks("`my file.py`\n" + BLOCK) == (SearchReplace("my file.py", "old\n", "new\n"),)


def test_a_block_right_after_another_is_for_the_same_file() -> None:
    outcome = read_blocks(f"a.py\n```python\n{BLOCK}```\n\n```python\n{BLOCK}```\n")
    assert outcome == (SearchReplace("a.py", "old\n", "new\n"),) * 2


def test_several_files() -> None:
    outcome = read_blocks(f"a.py\n{BLOCK}\nb.py\n{BLOCK}")
    assert outcome == (
        SearchReplace("a.py", "old\n", "new\n"),
        SearchReplace("b.py", "old\n", "new\n"),
    )


@pytest.mark.parametrize("length", [5, 7, 9])
def test_marker_lengths_and_line_ends(length: int) -> None:
    text = f"a.py\n{'<' * length} SEARCH\nold\n{'=' * length}\n\n{'>' * length} REPLACE"
    assert read_blocks(text) == (SearchReplace("a.py", "old\n", "\n"),)
    assert read_blocks(text.replace("\n", "\r\n")) == (SearchReplace("a.py", "old\n", "\n"),)


def test_empty_parts() -> None:
    text = "a.py\n<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n"
    assert read_blocks(text) == (SearchReplace("a.py", "", ""),)


def test_an_underline_is_told_from_the_divider_by_its_length() -> None:
    text = "a.rst\n<<<<<<< SEARCH\nHead\n=====\n=======\nTitle\n=====\n>>>>>>> REPLACE\n"
    assert read_blocks(text) == (SearchReplace("a.rst", "Head\n=====\n", "Title\n=====\n"),)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (BLOCK, "malformed", "block 1 (line 1)"),
        (f"Now I change the file:\n{BLOCK}", "malformed", "block 1 (line 2)"),
        (f"a.py\n{BLOCK}And another one:\n{BLOCK}", "malformed", "block 2"),
        ("a.py\n<<<<<<< SEARCH\nold\n=======\nne", "truncated", "block of line 2"),
        ("a.py\n<<<<<<< SEARCH\nold\n", "truncated", "block of line 2"),
        ("a.py\n<<<<<<< SEARCH\nold\n>>>>>>> REPLACE\n", "malformed", "this one has 0"),
        (f"a.py\n{BLOCK.replace('old', '=======')}", "malformed", "this one has 2"),
        (f"a.py\n<<<<<<< SEARCH\nx\n{BLOCK}", "malformed", "line 4: a second"),
        (f"a.py\n{BLOCK}>>>>>>> REPLACE\n", "malformed", "without its"),
    ],
)
def test_refuses_what_can_be_read_in_two_ways(text: str, kind: str, reason: str) -> None:
    outcome = read_blocks(text)
    assert isinstance(outcome, ParseFailure)
    assert outcome.kind == kind
    assert reason in outcome.reason


def test_has_blocks() -> None:
    assert has_blocks(f"x\n{BLOCK}")
    assert not has_blocks("git shows <<<<<<< SEARCH inside a line")
    assert not has_blocks("<<<<<<< HEAD\n=======\n>>>>>>> main\n")
