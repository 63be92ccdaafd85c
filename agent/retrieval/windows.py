"""Cutting without a parser: prose at its headings, everything else in runs of lines.

All functions take and give rows (0-based); what they give is in order, covers every row given, and
overlaps nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

WINDOW_LINES = 60
"""Lines of a window: about as long as the longest function a reader takes in at once."""

WINDOW_CHARS = 6_000
"""A window is closed once it holds this much: with long lines, 60 of them are a book."""

MAX_WINDOWS = 200
"""A file has no more windows than this (they grow instead): data must not crowd out code."""

_SOFT = 0.6  # a window may close at a blank line once it is this full

_ATX = re.compile(r"#{1,6}(\s|$)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")


def cut_rows(rows: Sequence[int], lines: Sequence[str], limit: int = WINDOW_LINES) -> list[range]:
    """Cut ascending `rows` in runs of about `limit` lines, after blank lines where possible.

    Gives ranges of positions in `rows` (not rows).
    """
    limit = max(limit, -(-len(rows) // MAX_WINDOWS))
    chars_limit = max(WINDOW_CHARS, sum(len(lines[row]) for row in rows) // MAX_WINDOWS)
    cuts, start, chars = [0], 0, 0
    for position, row in enumerate(rows):
        chars += len(lines[row])
        count = position + 1 - start
        blank = not lines[row].strip()
        if count >= limit or chars >= chars_limit or (blank and count >= limit * _SOFT):
            cuts.append(position + 1)
            start, chars = position + 1, 0
    if cuts[-1] != len(rows):
        cuts.append(len(rows))
    return [range(a, b) for a, b in pairwise(cuts)]


def cut_file(lines: Sequence[str], language: str) -> list[range]:
    """Rows of each window of a whole file, prose cut at headings first."""
    sections = _SECTIONS.get(language, _whole)(lines)
    spans: list[range] = []
    for section in _merged(sections):
        spans.extend(
            range(section[r.start], section[r.stop - 1] + 1) for r in cut_rows(section, lines)
        )
    return spans


def _whole(lines: Sequence[str]) -> list[range]:
    return [range(len(lines))] if lines else []


def _merged(sections: Sequence[range]) -> list[range]:
    """Neighbouring short sections joined up to a window's size; long ones are left to be cut."""
    merged: list[range] = []
    target = max(WINDOW_LINES, sections[-1].stop // MAX_WINDOWS) if sections else 0
    for section in sections:
        if merged and section.stop - merged[-1].start <= target:
            merged[-1] = range(merged[-1].start, section.stop)
        else:
            merged.append(section)
    return merged


def _at(starts: Sequence[int], count: int) -> list[range]:
    bounds = sorted({0, count, *starts})
    return [range(a, b) for a, b in pairwise(bounds)]


def _markdown(lines: Sequence[str]) -> list[range]:
    starts: list[int] = []
    fenced = False
    for row, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _ATX.match(line):
            starts.append(row)
    return _at(starts, len(lines))


def _rst(lines: Sequence[str]) -> list[range]:
    """A heading is a line underlined by punctuation that is at least as long."""
    starts = [
        row - 1
        for row, line in enumerate(lines)
        if row and _UNDERLINE.match(line) and _underlines(lines[row - 1], line)
    ]
    return _at(starts, len(lines))


def _underlines(title: str, line: str) -> bool:
    title = title.rstrip()
    return bool(title) and not _UNDERLINE.match(title) and len(line.rstrip()) >= len(title)


_SECTIONS: dict[str, Callable[[Sequence[str]], list[range]]] = {
    "markdown": _markdown,
    "rst": _rst,
}
