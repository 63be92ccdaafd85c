"""Texts of documents and queries for embedding and matching.

Issue templates ask for versions, repeat rules and have boxes to tick. Their words are the same in
every issue of a project, and outnumber the two lines that describe the fault. HTML comments, check
boxes and lines of the repository's own issue templates are therefore left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent.retrieval.index import without_suffix
from agent.retrieval.ranking.mentions import MentionPlace, Mentions
from agent.shared.secrets import is_secret_path

if TYPE_CHECKING:
    from agent.types import Chunk, Problem
    from agent.types.protocols import Snapshot

_MAX_PATHS = 2
_MAX_NAMES = 4
MAX_CHARS = 512_000
"""128,000 tokens of four characters, the most that an embedding server is known to take."""


def document_text(chunk: Chunk) -> str:
    """Return path, qualified name and code, in that order, because models cut the end.

    For files that hold secrets, only the path: the text may be sent to a server.
    """
    parts = (chunk.path, chunk.symbol, "" if is_secret_path(chunk.path) else chunk.text)
    return "\n".join(part for part in parts if part)[:MAX_CHARS]


def query_text(problem: Problem, mentions: Mentions) -> str:
    """Return the paths and names that the problem puts first, then its title and text."""
    paths = [mention.path for mention in mentions.paths if mention.place is not MentionPlace.CODE]
    names = [m.name for m in mentions.names if m.place in (MentionPlace.TITLE, MentionPlace.QUOTED)]
    heads = (" ".join(paths[:_MAX_PATHS]), " ".join(names[:_MAX_NAMES]))
    parts = (*heads, problem.title, problem.body)
    return "\n".join(part for part in parts if part)[:MAX_CHARS]


class FileNames:
    """Whether a file's name, or its stem as a separate word, occurs in the problem."""

    def __init__(self, problem: Problem) -> None:
        self._text = problem.text.lower()
        self._known: dict[str, str] = {}

    def found(self, path: str) -> str:
        """Return the name or stem that occurs, "" for none."""
        name = path.rpartition("/")[2].lower()
        if name not in self._known:
            stem = without_suffix(name)
            self._known[name] = self._first((name, stem if stem != "__init__" else ""))
        return self._known[name]

    def _first(self, names: Sequence[str]) -> str:
        for name in names:
            # Most names do not occur at all; compiling a pattern for each would dominate the time.
            if (
                name
                and name in self._text
                and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self._text)
            ):
                return name
        return ""


# ---------------------------------------------------------------------------------- issue templates

MAX_TEMPLATES = 40
_MAX_TEMPLATE_CHARS = 50_000
_MAX_LINE = 300  # characters compared
_MIN_CHARS = 12
"""Shorter lines, such as `Version`, stay: a reporter may have written them too."""

_BOX = re.compile(r"^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]*)?\[[ xX]?\][ \t].*$", re.MULTILINE)
_KEY = re.compile(r"^(?:label|description|placeholder|value|about|title|name):\s*[|>]?[-+]?\s*")
_MARKS = re.compile(r"^[\s#>*+\-_`'\"\[\]xX|:]+|[\s*_`'\":]+$")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)")


def without_boilerplate(problem: Problem, snapshot: Snapshot) -> Problem:
    """Return the problem without its template's text; unchanged if that leaves an empty body."""
    known = frozenset(_template_lines(snapshot))
    text = _BOX.sub("", "".join(_outside_comments(problem.body)))
    body = "\n".join(_kept(text, known))
    return replace(problem, body=body) if body.strip() else problem


def _outside_comments(text: str) -> Iterator[str]:
    """Yield the text outside HTML comments. An unclosed comment counts as text."""
    start = 0
    while (opened := text.find("<!--", start)) >= 0:
        closed = text.find("-->", opened + 4)
        if closed < 0:
            break
        yield text[start:opened]
        start = closed + 3
    yield text[start:]


def _kept(text: str, known: frozenset[str]) -> Iterator[str]:
    """Yield the lines that are in no template. Fenced code and logs are kept whole."""
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
    """Whether a path is an issue template of GitHub or GitLab.

    Examples: `.github/ISSUE_TEMPLATE.md`, `.github/ISSUE_TEMPLATE/bug.yml`,
    `.gitlab/issue_templates/`.
    """
    lowered = path.lower()
    return "issue_template" in lowered and PurePosixPath(lowered).suffix in {
        ".md", ".yml", ".yaml", ".txt", ".rst",
    }  # fmt: skip


def _normal(line: str) -> str:
    return _MARKS.sub("", line[:_MAX_LINE]).lower()
