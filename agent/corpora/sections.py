"""Cutting a document at its headings: Markdown, reStructuredText, AsciiDoc, plain text.

Every pattern is linear; a document is untrusted text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_SECTION = 3_000
"""Characters: about what an embedding model reads. A longer section is cut at blank lines."""

_LEAST = 20  # characters of a body: less is a heading alone, or a badge
_MAX_HEADING = 200

_ATX = re.compile(r"^ {0,3}(#{1,6})[ \t]++([^\n]{1,400})")
_ASCIIDOC = re.compile(r"^(={1,6})[ \t]++([^\n]{1,400})")
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
    """A heading on rows `first`..`last` (0-based). `level` is comparable within a document."""

    first: int
    last: int
    level: int
    title: str


def cut_sections(text: str, language: str) -> tuple[Section, ...]:
    """Sections in order. A text without headings is one section, or several where it is long."""
    lines = text.split("\n")
    found = list(_READERS.get(language, _underlined)(lines))
    sections: list[Section] = []
    above: list[_Heading] = []
    bounds = [*found, _Heading(len(lines), len(lines), 0, "")]
    sections.extend(_parts((), lines, 0, bounds[0].first))
    for heading, following in zip(found, bounds[1:], strict=True):
        above = [*(h for h in above if h.level < heading.level), heading]
        titles = tuple(h.title for h in above)
        sections.extend(_parts(titles, lines, heading.first, following.first, heading.last + 1))
    return tuple(sections)


def _parts(
    headings: tuple[str, ...], lines: Sequence[str], start: int, end: int, body: int | None = None
) -> Iterator[Section]:
    """The section of rows `start` to `end` (exclusive), cut where it is too long."""
    first = start if body is None else body
    for part_start, part_end in _cut(lines, first, end):
        text = "\n".join(lines[part_start:part_end]).strip()
        if len(text) >= _LEAST:
            shown = start if part_start == first else part_start
            yield Section(
                headings, shown + 1, _last_filled(lines, part_end) + 1, text[:MAX_SECTION]
            )


def _cut(lines: Sequence[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of rows of at most `MAX_SECTION` characters, ended at blank lines if possible."""
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


def _last_filled(lines: Sequence[str], end: int) -> int:
    row = end - 1
    while row > 0 and not lines[row].strip():
        row -= 1
    return row


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


def _asciidoc(lines: Sequence[str]) -> Iterator[_Heading]:
    inside = False
    for row, line in enumerate(lines):
        if line.rstrip() == "----":
            inside = not inside
        elif not inside and (found := _ASCIIDOC.match(line)):
            yield _Heading(row, row, len(found.group(1)), _title(found.group(2)))


def _underlined(lines: Sequence[str]) -> Iterator[_Heading]:
    """reStructuredText: the adornments' order of appearance gives their levels."""
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


_READERS: Mapping[str, Callable[[Sequence[str]], Iterator[_Heading]]] = {
    "markdown": _markdown,
    "asciidoc": _asciidoc,
    "rst": _underlined,
}
