from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def body(text: str, **templates: str) -> str:
    files = {f".github/ISSUE_TEMPLATE/{name}.md": content for name, content in templates.items()}
    snapshot = MemorySnapshot({"pkg/mod.py": "x = 1\n", **files})
    return without_boilerplate(Problem("title", text), snapshot).body


def test_comments_and_boxes_are_left_out_without_any_template() -> None:
    text = "<!-- Love it? Tell\nyour friends -->\n- [x] I searched\n* [ ] I read\nThe parser hangs."
    assert body(text).strip() == "The parser hangs."


def test_lines_of_the_templates_are_left_out() -> None:
    text = (
        "**Describe the bug you have found**\n\nIt hangs.\n\n### Steps to reproduce it\n"
        "Version\nplease search the open issues before you file one.\nrun it"
    )
    kept = [line for line in body(text, bug=MARKDOWN).split("\n") if line]
    assert kept == ["It hangs.", "Version", "run it"]  # a word alone may be the reporter's


def test_lines_of_forms_are_left_out() -> None:
    snapshot = MemorySnapshot({".github/ISSUE_TEMPLATE/1_broken.yml": FORM})
    text = (
        "### Checklist of the reporter\n\nI'm reporting that a supported site is broken\n"
        "Carefully read and work through this check list\nno video on example.org"
    )
    left = without_boilerplate(Problem("title", text), snapshot).body
    assert left.strip() == "no video on example.org"


def test_what_was_pasted_into_a_fence_is_kept() -> None:
    text = "```\nPlease search the open issues before you file one.\n```"
    assert body(text, bug=MARKDOWN) == text


@pytest.mark.parametrize("text", ["<!-- nothing else -->", "- [x] I searched", ""])
def test_a_body_of_nothing_else_is_kept_as_it_is(text: str) -> None:
    assert body(text) == text


def test_an_open_comment_takes_nothing_with_it() -> None:
    assert body("before <!-- open\nafter") == "before <!-- open\nafter"


def test_source_files_are_no_templates() -> None:
    snapshot = MemorySnapshot({"pkg/issue_template.py": "# Something that is long enough\n"})
    problem = Problem("title", "Something that is long enough")
    assert without_boilerplate(problem, snapshot) == problem


@given(st.text(alphabet="ab <!->[x]*`\n#", max_size=200))
def test_never_adds_anything(text: str) -> None:
    left = body(text, bug=MARKDOWN)
    assert len(left) <= len(text)
    assert set(left.split("\n")) <= set(text.split("\n")) or "<!--" in text


def test_takes_linear_time() -> None:
    snapshot = MemorySnapshot({"a.py": "x = 1\n"})
    for text in ("<!--" * 50_000, "*" * 200_000, "- [" * 60_000, " " * 200_000 + "x"):
        without_boilerplate(Problem("title", text), snapshot)
