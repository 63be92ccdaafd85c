"""The documents of a project as passages: sections of README and docs, and docstrings.

Documents are split at their headings (Markdown, reStructuredText, plain text). They are untrusted,
so every pattern runs in linear time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from agent.repository import is_test_path, is_vendored_path
from agent.search.passages import Label, Passage, described, passage_about
from agent.search.symbols import docstring_of, first_sentence, read_symbols
from agent.shared.secrets import mask_secrets
from agent.shared.workers import Cancelled

if TYPE_CHECKING:
    from agent.retrieval.index import Index
    from agent.types import Chunk
    from agent.types.protocols import Snapshot

MAX_SECTION = 3_000
"""Maximum characters of a section, about the input of an embedding model."""

_LEAST = 20  # minimum characters of a body; a shorter one is only a heading or a badge
_MAX_HEADING = 200

_ATX = re.compile(r"^ {0,3}(#{1,6})[ \t]++([^\n]{1,400})")
_FENCE = re.compile(r"^ {0,3}(?:(`{3,}+)(?=[^`]*+$)|(~{3,}+))")
_RULE = re.compile(r"^([=\-~^\"'`#*+:.<>_])\1{2,200}[ \t]*$")


@dataclass(frozen=True, slots=True)
class Section:
    """Lines `start`..`end` (1-based, inclusive) under `headings`, the outermost first."""

    headings: tuple[str, ...]
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading on rows `first`..`last` (0-based). Levels are comparable within one document."""

    first: int
    last: int
    level: int
    title: str


def cut_sections(text: str, language: str) -> tuple[Section, ...]:
    """Return the sections in order; long ones are split at blank lines."""
    lines = text.split("\n")
    headings = list(_markdown(lines) if language == "markdown" else _underlined(lines))
    ends = [*(heading.first for heading in headings), len(lines)]
    sections = [*_parts((), lines, 0, 0, ends[0])]
    above: list[_Heading] = []
    for heading, end in zip(headings, ends[1:], strict=True):
        above = [*(one for one in above if one.level < heading.level), heading]
        titles = tuple(one.title for one in above)
        sections += _parts(titles, lines, heading.first, heading.last + 1, end)
    return tuple(sections)


def _parts(
    headings: tuple[str, ...], lines: Sequence[str], start: int, body: int, end: int
) -> Iterator[Section]:
    """Yield the section whose heading begins at row `start`, in parts if it is too long."""
    for part_start, part_end in _cut(lines, body, end):
        text = "\n".join(lines[part_start:part_end]).strip()
        if len(text) >= _LEAST:
            shown = start if part_start == body else part_start
            last = part_end
            while last > 1 and not lines[last - 1].strip():
                last -= 1
            yield Section(headings, shown + 1, last, text[:MAX_SECTION])


def _cut(lines: Sequence[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    first, size, blank = start, 0, start
    for row in range(start, end):
        size += len(lines[row]) + 1
        if size > MAX_SECTION and row > first:
            cut = blank if blank > first else row
            yield first, cut
            first, blank = cut, cut
            size = sum(len(line) + 1 for line in lines[cut : row + 1])
        if not lines[row].strip():
            blank = row
    if first < end:
        yield first, end


def _markdown(lines: Sequence[str]) -> Iterator[_Heading]:
    fence = ""
    for row, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if line.strip().strip(fence[0]) == "" and fence in line else fence
            continue
        if mark:
            fence = mark.group(1) or mark.group(2)
        elif found := _ATX.match(line):
            yield _Heading(row, row, len(found.group(1)), _title(found.group(2).rstrip("# \t")))
        elif _is_setext(lines, row):
            level = 1 if lines[row + 1].lstrip().startswith("=") else 2
            yield _Heading(row, row + 1, level, _title(line))


def _is_setext(lines: Sequence[str], row: int) -> bool:
    if row + 1 >= len(lines) or not lines[row].strip() or lines[row].startswith(("    ", "|", ">")):
        return False
    above = lines[row - 1].strip() if row else ""
    rule = _RULE.match(lines[row + 1])
    return not above and rule is not None and rule.group(1) in "=-"


def _underlined(lines: Sequence[str]) -> Iterator[_Heading]:
    levels: dict[str, int] = {}
    row = 0
    while row + 1 < len(lines):
        title, rule = lines[row].rstrip(), _RULE.match(lines[row + 1])
        plain = title.strip() and not _RULE.match(title) and not title.startswith((" ", "\t"))
        if rule and plain and len(lines[row + 1].rstrip()) >= min(len(title), 3):
            over = row > 0 and lines[row - 1].rstrip() == lines[row + 1].rstrip()
            level = levels.setdefault(rule.group(1) * (1 + over), len(levels) + 1)
            yield _Heading(row - over, row + 1, level, _title(title))
            row += 1
        row += 1


def _title(text: str) -> str:
    return " ".join(text.split())[:_MAX_HEADING]


PROSE = frozenset({"markdown", "rst", "text"})
_FOLDERS = frozenset({"doc", "docs", "documentation", "guide", "guides", "manual", "wiki", "book"})
_NAMES = ("readme", "contributing", "usage", "tutorial", "faq", "overview", "guide")
_NOT_DOCUMENTS = (
    "changelog", "changes", "history", "news", "release", "license", "licence", "copying",
    "authors", "contributors", "requirements", "constraints", "cmakelists", "robots", "code_of",
)  # fmt: skip
"""Prefixes of file names to skip: lists of versions, people and packages match almost any query."""

_SUFFIXES = frozenset({"", ".md", ".markdown", ".mdx", ".rst", ".rest", ".txt"})
_MAX_TITLE = 120


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """Reads documents and the docstrings of symbols."""

    label: ClassVar = Label.DOCS
    index: Index

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return sections by path and line, then docstrings by path and line. Raises Cancelled."""
        passages: list[Passage] = []
        for path in sorted(snapshot.files):
            if cancel.is_set():
                raise Cancelled
            file = snapshot.files[path]
            if file.language in PROSE and is_document(path):
                text = mask_secrets(snapshot.text(path)).text
                sections = cut_sections(text, file.language)
                passages += [_section_passage(path, file.language, one) for one in sections]
        for symbol in read_symbols(snapshot, self.index, cancel):
            passages += _docstring_passages(symbol)
        return tuple(passages)


def _section_passage(path: str, language: str, section: Section) -> Passage:
    heading = " > ".join(section.headings) or PurePosixPath(path).name
    return Passage(
        corpus=Label.DOCS,
        title=heading[:_MAX_TITLE],
        text=described(heading, "document", path, section.text),
        path=path,
        start=section.start,
        end=section.end,
        language=language,
        tags=("section",),
    )


def _docstring_passages(symbol: Chunk) -> Iterator[Passage]:
    if docstring := mask_secrets(docstring_of(symbol)).text:
        title = f"{symbol.symbol}: {first_sentence(docstring)}"[:_MAX_TITLE]
        yield passage_about(symbol, Label.DOCS, title, docstring, "docstring")


def is_document(path: str) -> bool:
    """Whether a prose file is for users: a README, a file in docs, or one in the top folder."""
    pure = PurePosixPath(path)
    name = pure.name.lower()
    if pure.suffix.lower() not in _SUFFIXES or name.startswith(_NOT_DOCUMENTS):
        return False
    if is_vendored_path(path) or is_test_path(path):
        return False
    if name.startswith(_NAMES):
        return True
    inside = not _FOLDERS.isdisjoint(part.lower() for part in pure.parts[:-1])
    return inside or (len(pure.parts) == 1 and pure.suffix.lower() not in ("", ".txt"))
