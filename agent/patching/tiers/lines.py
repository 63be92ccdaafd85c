"""Texts as lines, and runs of lines found in linear time.

Each distinct line (under a normalisation) becomes one letter, so that a file is a string of letters
and a search text is a short one: `str.find` then does what nested loops over lines would do.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Indel

# Occurrences that are looked for; more are all the same reason to refuse.
MAX_OCCURRENCES = 1000

# Product of lengths up to which two sequences are compared exactly (1e7 bits are about a megabyte
# and a few milliseconds); beyond that everything between common ends counts as changed.
_MAX_PRODUCT = 10_000_000

# Characters that are compared one by one where two texts part.
_COMPARED_SINGLY = 32

# Typographic characters that word processors, and models, put in place of plain ones. One to one,
# so that places in the translated text are places in the text itself.
_PUNCTUATION = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a", " "),
        **dict.fromkeys("\u202f\u205f\u3000", " "),
    }
)
_ELLIPSIS = "\u2026"
_INDENT = re.compile(r"[ \t]*")
_WORD = re.compile(r"\w")


def plain_punctuation(text: str) -> str:
    """The text with typographic quotes, dashes and spaces made plain; as many characters."""
    return text.translate(_PUNCTUATION)


def ends_stripped(line: str) -> str:
    """The line without white space at its ends: what the letters of most tiers stand for."""
    return line.strip()


def end_stripped(line: str) -> str:
    """The line without white space at its end."""
    return line.rstrip()


def spaceless(line: str) -> str:
    """The line without any white space."""
    return "".join(line.split())


def typed(line: str) -> str:
    """The line as a keyboard would have it: plain punctuation, no white space at the ends."""
    return plain_punctuation(line).replace(_ELLIPSIS, "...").strip()


Normal = Callable[[str], str]


def indent_of(line: str) -> str:
    """The blanks and tabs that a line begins with."""
    found = _INDENT.match(line)
    return found[0] if found else ""


def is_blank(line: str) -> bool:
    """Whether a line has nothing but white space."""
    return not line or line.isspace()


def shared_start(a: str, b: str) -> int:
    """The length of the common beginning, found by comparing halves: texts may be megabytes."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > _COMPARED_SINGLY:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return next((k for k in range(low, high) if a[k] != b[k]), high)


@dataclass(frozen=True, slots=True)
class Letters:
    """A text under a normalisation. `at[k]` is the line of the k-th letter."""

    ids: Mapping[str, int]
    text: str
    at: Sequence[int]

    def occurrences(self, keys: Sequence[str]) -> list[int]:
        """Places (indices into `at`) of a run of normalised lines, at most MAX_OCCURRENCES."""
        if not keys or any(key not in self.ids for key in keys):
            return []
        wanted = "".join(chr(self.ids[key]) for key in keys)
        found: list[int] = []
        start = self.text.find(wanted)
        while start >= 0 and len(found) < MAX_OCCURRENCES:
            found.append(start)
            start = self.text.find(wanted, start + 1)
        return found


class Page:
    """A text and its lines (without line feeds; a line feed at the end begins no line)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._letters: dict[tuple[Normal, bool], Letters] = {}

    @functools.cached_property
    def lines(self) -> Sequence[str]:
        """The lines; made on demand, since an exact match needs none."""
        lines = self.text.split("\n")
        return lines if lines[-1] else lines[:-1]

    @functools.cached_property
    def starts(self) -> Sequence[int]:
        """Offset of each line, and of the end of the text."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line) + 1)
        starts[-1] = min(starts[-1], len(self.text))
        return starts

    @functools.cached_property
    def plain(self) -> str:
        """The text with plain punctuation."""
        return plain_punctuation(self.text)

    @functools.cached_property
    def uses_tabs(self) -> bool:
        """Whether more lines are indented by tabs than by blanks."""
        tabs = sum(line.startswith("\t") for line in self.lines)
        return tabs > sum(line.startswith("  ") for line in self.lines)

    def letters(self, normal: Normal, *, blanks: bool = True) -> Letters:
        """The lines under a normalisation; without blank ones unless `blanks`."""
        key = (normal, blanks)
        if key not in self._letters:
            self._letters[key] = self._spelled(normal, blanks)
        return self._letters[key]

    def _spelled(self, normal: Normal, blanks: bool) -> Letters:
        ids: dict[str, int] = {}
        letters: list[str] = []
        at: list[int] = []
        for index, line in enumerate(self.lines):
            if blanks or not is_blank(line):
                letters.append(chr(ids.setdefault(normal(line), len(ids))))
                at.append(index)
        return Letters(ids, "".join(letters), at)


@dataclass(frozen=True, slots=True)
class Step:
    """Elements `a_start:a_end` become `b_start:b_end`; `equal`: they are the same."""

    equal: bool
    a_start: int
    a_end: int
    b_start: int
    b_end: int


def steps(a: Sequence[str], b: Sequence[str]) -> list[Step]:
    """How one sequence becomes the other: equal and changed runs in turn, shortest edit."""
    size = min(len(a), len(b))
    head = next((k for k in range(size) if a[k] != b[k]), size)
    tail = next((k for k in range(size - head) if a[-1 - k] != b[-1 - k]), size - head)
    inner_a, inner_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if len(inner_a) * len(inner_b) > _MAX_PRODUCT:
        middle = [(head, head, 0)]
    else:
        middle = [
            (head + op.src_start, head + op.dest_start, op.src_end - op.src_start)
            for op in Indel.opcodes(inner_a, inner_b)
            if op.tag == "equal"
        ]
    return _filled([(0, 0, head), *middle, (len(a) - tail, len(b) - tail, tail)], len(a), len(b))


def _filled(runs: Sequence[tuple[int, int, int]], a_size: int, b_size: int) -> list[Step]:
    result: list[Step] = []
    a_done = b_done = 0
    for a_start, b_start, size in [*runs, (a_size, b_size, 0)]:
        if (a_done, b_done) != (a_start, b_start):
            result.append(Step(False, a_done, a_start, b_done, b_start))
        if size:
            result.append(Step(True, a_start, a_start + size, b_start, b_start + size))
        a_done, b_done = a_start + size, b_start + size
    return result


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reply asks for: texts with `\\n` ends, and as lines."""

    search: str
    replace: str
    old: Sequence[str]
    new: Sequence[str]
    steps: Sequence[Step]

    @classmethod
    def of(cls, search: str, replace: str) -> Wanted:
        """Cut both texts into lines; a final line feed begins no line."""
        return cls.of_lines(_cut(search), _cut(replace), search, replace)

    @classmethod
    def of_lines(
        cls,
        old: Sequence[str],
        new: Sequence[str],
        search: str | None = None,
        replace: str | None = None,
    ) -> Wanted:
        """From lines; the texts are made of them unless given."""
        return cls(
            _joined(old) if search is None else search,
            _joined(new) if replace is None else replace,
            tuple(old),
            tuple(new),
            steps(old, new),
        )

    @property
    def says_something(self) -> bool:
        """Whether the search text has a letter or digit, without which no lenient tier looks."""
        return _WORD.search(self.search) is not None


def _cut(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
