"""Maps the indentation of a reply to that of the file, for lines that matched and for new lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.patching.tiers.lines import indent_of, is_blank

# Widths of a tab in the order in which they are tried.
_TAB_WIDTHS = (4, 8, 2, 3)


@dataclass(frozen=True, slots=True)
class Shift:
    """Maps indentation of the reply to indentation of the file.

    `known` comes from the matched lines; other indentations are computed. `before` is common to all
    lines of the search text, `after` to those of the file. `same`: nothing changes. `tabs`: tabs
    and blanks are exchanged. `irregular`: no single rule holds for all lines.
    """

    known: Mapping[str, str]
    before: str = ""
    after: str = ""
    same: bool = False
    tabs: bool = False
    irregular: bool = False
    width: int = 4
    into_tabs: bool = False

    def of(self, indent: str) -> str | None:
        """Return the indentation of a new line; None if it is not certain."""
        if self.same:
            return indent
        if indent in self.known:
            return self.known[indent]
        if self.tabs or self.irregular:
            return self._by_columns(indent)
        if indent.startswith(self.before):
            return self.after + indent[len(self.before) :]
        return self._less_than_common(indent)

    def _less_than_common(self, indent: str) -> str | None:
        """Return the indentation of a new line that is further left than the whole search text."""
        if self.after.endswith(self.before):
            return self.after[: len(self.after) - len(self.before)] + indent
        if self.before.endswith(self.after):
            less = self.before[: len(self.before) - len(self.after)]
            return indent[len(less) :] if indent.startswith(less) else None
        return self._by_columns(indent)

    def _by_columns(self, indent: str) -> str | None:
        """Compute from the nearest known indentation to the left, or else to the right."""
        column = _columns(indent, self.width)
        pairs = sorted((_columns(s, self.width), f) for s, f in self.known.items())
        lower = [pair for pair in pairs if pair[0] <= column]
        start, file = lower[-1] if lower else pairs[0]
        target = _columns(file, self.width) + (column - start) * self._scale(pairs)
        return None if target < 0 else self._rendered(int(target))

    def _scale(self, pairs: Sequence[tuple[int, str]]) -> float:
        """Return the step of the file for one step of the reply (2.0 for 4 blanks instead of 2)."""
        if len(pairs) < 2:
            return 1
        width = pairs[-1][0] - pairs[0][0]
        height = _columns(pairs[-1][1], self.width) - _columns(pairs[0][1], self.width)
        return height / width if width > 0 and height > 0 else 1

    def _rendered(self, columns: int) -> str:
        if not self.into_tabs:
            return " " * columns
        return "\t" * (columns // self.width) + " " * (columns % self.width)


def shift_between(
    pairs: Sequence[tuple[str, str]], new: Sequence[str], *, page_uses_tabs: bool
) -> Shift | None:
    """Return the shift from lines of the reply to lines of the file.

    `pairs`: (line of the reply, line of the file). `new`: lines of the replacement. None if one
    indentation of the reply stands for several of the file; the lines may still match, but new
    lines have no certain indentation.
    """
    indents = [(indent_of(s), indent_of(f)) for s, f in pairs if not is_blank(s)]
    if all(s == f for s, f in indents):
        return Shift({}, same=True)
    known: dict[str, str] = {}
    unsure = False
    for s, f in indents:
        unsure |= known.setdefault(s, f) != f
    if unsure:
        return None
    into_tabs = _into_tabs(indents, page_uses_tabs)
    if not _kinds_differ(known, new, into_tabs):
        shift = _uniform(known)
        if shift is not None:
            return shift
    return _by_width(known, new, into_tabs)


def _into_tabs(indents: Sequence[tuple[str, str]], page_uses_tabs: bool) -> bool:
    files = [f for _, f in indents if f]
    return any("\t" in f for f in files) if files else page_uses_tabs


def _kinds_differ(known: Mapping[str, str], new: Sequence[str], into_tabs: bool) -> bool:
    """Whether one of reply and file is indented by blanks and the other by tabs."""
    written = [indent for indent in (*known, *map(indent_of, new)) if indent]
    if into_tabs:
        return any("\t" not in indent for indent in written)
    return any("\t" in indent for indent in written)


def _uniform(known: Mapping[str, str]) -> Shift | None:
    before = _shared_start(list(known))
    after = _shared_start(list(known.values()))
    if all(s[len(before) :] == f[len(after) :] for s, f in known.items()):
        return Shift(known, before, after)
    return None


def _shared_start(indents: Sequence[str]) -> str:
    first, last = min(indents), max(indents)
    size = next((k for k, c in enumerate(first) if not last.startswith(c, k)), len(first))
    return first[:size]


def _by_width(known: Mapping[str, str], new: Sequence[str], into_tabs: bool) -> Shift:
    widths = (_step((*known, *map(indent_of, new))), *_TAB_WIDTHS)
    mixed = _kinds_differ(known, new, into_tabs)
    for width in widths:
        deltas = {_columns(f, width) - _columns(s, width) for s, f in known.items()}
        if len(deltas) == 1 and mixed:
            return Shift(known, tabs=True, width=width, into_tabs=into_tabs)
    return Shift(known, irregular=True, width=widths[0], into_tabs=into_tabs)


def _step(indents: Sequence[str]) -> int:
    """Return the smallest step between indentations written in blanks, 4 if there is none."""
    columns = sorted({len(indent) for indent in indents if "\t" not in indent} | {0})
    gaps = [b - a for a, b in pairwise(columns) if b - a > 1]
    return min(gaps, default=4)


def _columns(indent: str, width: int) -> int:
    return len(indent.expandtabs(width))
