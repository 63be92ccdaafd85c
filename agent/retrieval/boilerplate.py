"""What of an issue its reporter did not write: the project's template. Ranking does without it.

Templates ask for versions, remind of rules and tick boxes; their words are the same in every issue
of a project, and together outweigh the two lines that say what is wrong. Left out are HTML
comments, ticked and unticked boxes, and lines that stand in the repository's own issue templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.types import Problem

MAX_TEMPLATES = 40
_MAX_TEMPLATE_CHARS = 50_000
_MAX_LINE = 300  # characters compared
_MIN_CHARS = 12
"""A shorter line, such as `Version`, may be a template's and a reporter's alike."""

_BOX = re.compile(r"^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]*)?\[[ xX]?\][ \t].*$", re.MULTILINE)
_KEY = re.compile(r"^(?:label|description|placeholder|value|about|title|name):\s*[|>]?[-+]?\s*")
_MARKS = re.compile(r"^[\s#>*+\-_`'\"\[\]xX|:]+|[\s*_`'\":]+$")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)")


def without_boilerplate(problem: Problem, snapshot: Snapshot) -> Problem:
    """The problem to rank by; the very same where nothing else would be left of its body."""
    known = frozenset(_template_lines(snapshot))
    text = _BOX.sub("", "".join(_outside_comments(problem.body)))
    body = "\n".join(_kept(text, known))
    return replace(problem, body=body) if body.strip() else problem


def _outside_comments(text: str) -> Iterator[str]:
    """The text between HTML comments. One that is never closed is none."""
    start = 0
    while (opened := text.find("<!--", start)) >= 0:
        closed = text.find("-->", opened + 4)
        if closed < 0:
            break
        yield text[start:opened]
        start = closed + 3
    yield text[start:]


def _kept(text: str, known: frozenset[str]) -> Iterator[str]:
    """Lines that are in no template. Inside a fence all are kept: code and logs were pasted."""
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _normal(line) in known:
            continue
        yield line


def _template_lines(snapshot: Snapshot) -> Iterator[str]:
    paths = [path for path in snapshot.files if _is_template(path)]
    for path in paths[:MAX_TEMPLATES]:
        for line in snapshot.text(path)[:_MAX_TEMPLATE_CHARS].split("\n"):
            normal = _normal(_KEY.sub("", line.strip().removeprefix("- ")))
            if len(normal) >= _MIN_CHARS:
                yield normal


def _is_template(path: str) -> bool:
    """`.github/ISSUE_TEMPLATE.md`, `.github/ISSUE_TEMPLATE/bug.yml`, `.gitlab/issue_templates/`."""
    lowered = path.lower()
    return "issue_template" in lowered and PurePosixPath(lowered).suffix in {
        ".md", ".yml", ".yaml", ".txt", ".rst",
    }  # fmt: skip


def _normal(line: str) -> str:
    return _MARKS.sub("", line[:_MAX_LINE]).lower()
