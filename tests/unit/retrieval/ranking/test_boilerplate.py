from __future__ import annotations

import pytest

from agent.retrieval.ranking.lexical import without_boilerplate
from agent.types import Problem
from tests.support.fakes import MemorySnapshot

MARKDOWN = """---
name: Bug report
about: Something does not work
---
**Describe the bug you have found**

## Steps to reproduce it

Please search the open issues before you file one.
Version
"""

FORM = """
name: Broken site
body:
  - type: checkboxes
    attributes:
      label: CHECKLIST OF THE REPORTER
      description: |
        Carefully read and work through this check list
      options:
        - label: I'm reporting that a supported site is broken
"""


TEMPLATES = {
    ".github/ISSUE_TEMPLATE/bug.md": MARKDOWN,
    ".github/ISSUE_TEMPLATE/1_broken.yml": FORM,
    "pkg/mod.py": "x = 1\n",
}


def body(text: str) -> str:
    return without_boilerplate(Problem("title", text), MemorySnapshot(TEMPLATES)).body


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "<!-- Love it? Tell\nyour friends -->\n- [x] I searched\n* [ ] I read\nIt hangs.",
            ["It hangs."],
        ),
        (
            "**Describe the bug you have found**\n\nIt hangs.\n\n### Steps to reproduce it\n"
            "Version\nplease search the open issues before you file one.\nrun it",
            ["It hangs.", "Version", "run it"],  # a word alone may be the reporter's
        ),
        (
            "### Checklist of the reporter\n\nI'm reporting that a supported site is broken\n"
            "Carefully read and work through this check list\nno video on example.org",
            ["no video on example.org"],
        ),
    ],
)
def test_comments_boxes_and_lines_of_templates_and_forms_are_left_out(
    text: str, left: list[str]
) -> None:
    assert [line for line in body(text).split("\n") if line] == left


@pytest.mark.parametrize(
    "text",
    [
        "```\nPlease search the open issues before you file one.\n```",  # pasted into a fence
        "before <!-- open\nafter",
        "<!-- nothing else -->",
        "- [x] I searched",
        "",
    ],
)
def test_what_stays(text: str) -> None:
    assert body(text) == text
