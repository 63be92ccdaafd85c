"""Transfers the change from search text to replacement to the lines of the file that matched. Only
what the model changed is written, in the indentation of the file; other lines stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz import fuzz

from agent.patching.diff import Step, steps
from agent.patching.lines import Page, Wanted, indent_of, is_blank


def transplant(page: Page, wanted: Wanted, at: Mapping[int, int]) -> list[str] | None:
    """Return the new text of the lines of the file `at` those of the search text, and between them;
    None if the indentation of a new line is not certain.
    """
    at = _with_blanks(page, wanted, at)
    lines = {i: page.lines[k] for i, k in at.items()}
    new = [line for line in wanted.added if not is_blank(line)]
    shift = Shift.between([(wanted.old[i], line) for i, line in lines.items()], new, page.uses_tabs)
    result: list[str] = []
    done = min(at.values())  # lines before it are done; those between two steps are kept
    for step in wanted.steps:
        if step.equal:
            end = next((k for i, k in at.items() if i >= step.a_end), max(at.values()) + 1)
            result.extend(page.lines[done:end])
            done = max(done, end)
            continue
        if step.b_start < step.b_end:
            written = None if shift is None else _rewritten(wanted, lines, step, shift)
            if written is None:
                return None
            result.extend(written)
        if step.a_start < step.a_end:
            done = max([done, *(k + 1 for i, k in at.items() if i < step.a_end)])
    return result


def _with_blanks(page: Page, wanted: Wanted, at: Mapping[int, int]) -> dict[int, int]:
    """Return the places with those of the blank lines between them, in order."""
    free, last = min(at.values()), max(at.values())
    placed: dict[int, int] = {}
    for index, line in enumerate(wanted.old):
        place = at.get(index)
        if place is None and is_blank(line) and free <= last and is_blank(page.lines[free]):
            place = free
        if place is not None:
            placed[index] = place
            free = place + 1
    return placed


def _rewritten(
    wanted: Wanted, lines: Mapping[int, str], step: Step, shift: Shift
) -> list[str] | None:
    twins = {i + step.b_start - step.a_start: t for i, t in merged_lines(wanted, step, lines)}
    result: list[str] = []
    for index in range(step.b_start, step.b_end):
        line = wanted.new[index]
        indent = shift.of(indent_of(line))
        if is_blank(line):
            result.append(indent or "" if line else "")
            continue
        if indent is None:
            return None
        body = line.lstrip(" \t")
        result.append(indent + twins.get(index, body))
    return result


def merged_lines(wanted: Wanted, step: Step, lines: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Return the misquoted old lines that one new line each replaces, with that line merged.
    `lines`: the line of the file for each old line that is there.
    """
    if step.a_end - step.a_start != step.b_end - step.b_start:
        return
    news = wanted.new[step.b_start : step.b_end]
    for i, new in zip(range(step.a_start, step.a_end), news, strict=True):
        old, line = wanted.old[i].strip(), lines.get(i, "").strip()
        text = merged(old, new.lstrip(" \t"), line) if line and old != line else None
        if text is not None:
            yield i, text


# Widths of a tab in the order in which they are tried.
_TAB_WIDTHS = (4, 8, 2, 3)


@dataclass(frozen=True, slots=True)
class Shift:
    """Maps indentation of the reply to that of the file; `indents` are those of matched lines.
    `mixed`: reply and file differ in tabs and blanks.
    """

    indents: Mapping[str, str]
    mixed: bool = False
    width: int = 4
    into_tabs: bool = False

    @classmethod
    def between(
        cls, pairs: Sequence[tuple[str, str]], new: Sequence[str], page_uses_tabs: bool
    ) -> Shift | None:
        """Return the shift for lines `new`; None if one indentation stands for several."""
        both = [(indent_of(old), indent_of(line)) for old, line in pairs if not is_blank(old)]
        if all(old == line for old, line in both):
            return cls({})
        indents = dict(both)
        if any(indents[old] != line for old, line in both):
            return None
        in_file = [line for _, line in both if line]
        into_tabs = any("\t" in line for line in in_file) if in_file else page_uses_tabs
        given = [indent for indent in (*indents, *map(indent_of, new)) if indent]
        mixed = any(("\t" in indent) != into_tabs for indent in given)
        widths = (_step(given), *_TAB_WIDTHS)
        for width in widths if mixed else ():
            if len({_columns(f, width) - _columns(s, width) for s, f in both}) == 1:
                return cls(indents, True, width, into_tabs)
        return cls(indents, mixed, widths[0], into_tabs)

    def of(self, indent: str) -> str | None:
        """Return the indentation of a new line; None if it is not certain."""
        if not self.indents:
            return indent
        if indent in self.indents:
            return self.indents[indent]
        column = _columns(indent, self.width)
        pairs = sorted((_columns(old, self.width), old) for old in self.indents)
        lower = [pair for pair in pairs if pair[0] <= column]
        start, old = lower[-1] if lower else pairs[0]
        line = self.indents[old]
        if not self.mixed and indent.startswith(old):
            return line + indent[len(old) :]
        target = _columns(line, self.width) + column - start
        if target < 0:
            return None
        tabs, blanks = divmod(target, self.width) if self.into_tabs else (0, target)
        return "\t" * tabs + " " * blanks


def _step(indents: Sequence[str]) -> int:
    """Return the smallest step between indentations written in blanks, 4 if there is none."""
    columns = sorted({len(indent) for indent in indents if "\t" not in indent} | {0})
    return min((b - a for a, b in pairwise(columns) if b - a > 1), default=4)


def _columns(indent: str, width: int) -> int:
    return len(indent.expandtabs(width))


_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
# A quoted line must be this similar to the line of the file (percent), or it is another line.
_ALIKE = 80.0
# A longer line holds data and is not merged.
_MAX_LINE = 1000

# Tokens `start:end` of a line become others.
_Change = tuple[int, int, tuple[str, ...]]


def merged(quoted: str, new: str, line: str) -> str | None:
    """Apply the change `quoted` -> `new` to the line of the file by tokens; None if they clash."""
    if max(len(quoted), len(new), len(line)) > _MAX_LINE or fuzz.ratio(quoted, line) < _ALIKE:
        return None
    tokens = _TOKEN.findall(quoted)
    theirs, ours = _changes(tokens, line), _changes(tokens, new)
    if any(a != b and a[0] <= b[1] and b[0] <= a[1] for a in theirs for b in ours):
        return None
    result: list[str] = []
    done = 0
    for start, end, text in sorted({*theirs, *ours}):
        result.extend([*tokens[done:start], *text])
        done = end
    return "".join([*result, *tokens[done:]])


def _changes(tokens: Sequence[str], line: str) -> list[_Change]:
    other = _TOKEN.findall(line)
    return [
        (step.a_start, step.a_end, tuple(other[step.b_start : step.b_end]))
        for step in steps(tokens, other)
        if not step.equal
    ]
