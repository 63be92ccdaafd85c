"""Transfers the change from search text to replacement to the lines of the file that matched.

Where search text and replacement agree, the file keeps its own lines. Only what the model changed
is written, in the indentation of the file. So an inexact quotation changes nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from agent.patching.tiers.indentation import Shift, shift_between
from agent.patching.tiers.lines import Step, Wanted, indent_of, is_blank, plain_punctuation, steps

# Product of lengths up to which texts are compared character by character.
_MAX_CHARACTERS = 4_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """Lines of the file that a search text matched.

    `at[i]` is the index in `lines` of the i-th line of the search text, None if the file lacks it.
    Indices increase. Lines of the file between two of them stay.
    """

    lines: Sequence[str]
    at: Sequence[int | None]
    uses_tabs: bool = False

    def pairs(
        self, wanted: Wanted, start: int = 0, end: int | None = None
    ) -> list[tuple[str, str]]:
        """Return (line of the search text, line of the file) for its lines `start:end`."""
        placed = enumerate(self.at[start:end], start)
        return [(wanted.old[i], self.lines[k]) for i, k in placed if k is not None]

    def before(self, index: int) -> int:
        """Return the index in `lines` of a line of the search text or the next that is there."""
        return next((k for k in self.at[index:] if k is not None), len(self.lines))

    def after(self, index: int) -> int:
        """Return the index in `lines` after the last line before a line of the search text."""
        return next((k + 1 for k in reversed(self.at[:index]) if k is not None), 0)


def transplant(wanted: Wanted, window: Window) -> list[str] | None:
    """Return the new lines of the window; None if the indentation of a new line is not certain."""
    if _is_absolute(wanted, window):
        way = _woven(wanted, window, lambda _: Shift({}, same=True))
    else:
        shift = shift_between(
            window.pairs(wanted), written_lines(wanted), page_uses_tabs=window.uses_tabs
        )
        way = _woven(wanted, window, lambda step: shift or _local_shift(wanted, window, step))
    return way


def transplant_characters(search: str, replace: str, found: str) -> str | None:
    """Apply the change `search` -> `replace` to `found`, which differs in punctuation only.

    None if the texts are too long to be compared character by character.
    """
    from rapidfuzz.distance import Indel

    if len(search) * len(replace) > _MAX_CHARACTERS or len(search) != len(found):
        return None
    meant = _meant(search, found)
    parts: list[str] = []
    for op in Indel.opcodes(search, replace):
        if op.tag == "equal":
            parts.append(found[op.src_start : op.src_end])
        elif op.tag == "insert":
            parts.append(meant(replace[op.dest_start : op.dest_end]))
    return "".join(parts)


# ----------------------------------------------------------------------------------------- weaving


def _woven(
    wanted: Wanted, window: Window, shift_for: Callable[[Step], Shift | None]
) -> list[str] | None:
    result: list[str] = []
    done = 0  # lines of the window that are done; those between two steps are kept
    for step in wanted.steps:
        if step.equal:
            end = len(window.lines) if step.a_end == len(wanted.old) else window.before(step.a_end)
            result.extend(window.lines[done:end])
            done = max(done, end)
            continue
        if step.b_start < step.b_end:
            shift = shift_for(step)
            written = None if shift is None else _rewritten(wanted, window, step, shift)
            if written is None:
                return None
            result.extend(written)
        if step.a_start < step.a_end:
            done = max(done, window.after(step.a_end))
    return result


def _rewritten(wanted: Wanted, window: Window, step: Step, shift: Shift) -> list[str] | None:
    """Return the new lines of a changed run. A line that only moves keeps its characters."""
    kept = dict(_kept(wanted, window, step))
    meant = _meant(*_paired_texts(wanted, window))
    twins = dict(_twins(wanted, window, step))
    result: list[str] = []
    for index in range(step.b_start, step.b_end):
        line = wanted.new[index]
        lead = indent_of(line)
        indent = shift.of(lead)
        if is_blank(line):
            result.append(indent or "" if line else "")
            continue
        if indent is None:
            return None
        body = line[len(lead) :]
        pair = kept.get(body.rstrip())
        own = pair[1] if pair and _is_kept(*pair, body) else None
        result.append(indent + (own or twins.get(index) or meant(body)))
    return result


def _kept(wanted: Wanted, window: Window, step: Step) -> Iterator[tuple[str, tuple[str, str]]]:
    """Return changed lines (stripped) with their texts in the search text and in the file."""
    for i, k in enumerate(window.at[step.a_start : step.a_end], step.a_start):
        if k is not None:
            old = wanted.old[i].lstrip(" \t")
            yield old.rstrip(), (old, window.lines[k].lstrip(" \t"))


def _is_kept(old: str, found: str, new: str) -> bool:
    """Whether a new line is an old one and its white space at the end differs by accident.

    The reply was careless elsewhere, or no lenient tier would be needed. It means the difference
    only where it quoted the white space of the file exactly and then left it out.
    """
    ends = [line[len(line.rstrip()) :] for line in (old, found, new)]
    return old == new or bool(ends[2]) or ends[0] != ends[1]


def _twins(wanted: Wanted, window: Window, step: Step) -> Iterator[tuple[int, str]]:
    """Return new lines that replace one old line each, with the characters of the file."""
    if step.a_end - step.a_start != step.b_end - step.b_start:
        return
    for i, j in zip(range(step.a_start, step.a_end), range(step.b_start, step.b_end), strict=True):
        k = window.at[i]
        if k is None:
            continue
        old, found = wanted.old[i].strip(), window.lines[k].strip()
        new = wanted.new[j].lstrip(" \t")
        if old == found:
            continue
        if plain_punctuation(old) == plain_punctuation(found):
            carried = transplant_characters(old, new, found)
        else:
            carried = merged(old, new, found)
        if carried is not None:
            yield j, carried


def _local_shift(wanted: Wanted, window: Window, step: Step) -> Shift | None:
    """Return the shift of the changed lines and their neighbours, where no rule holds for all."""
    new = wanted.new[step.b_start : step.b_end]
    for reach in (1, 0):
        start, end = max(0, step.a_start - reach), step.a_end + reach
        pairs = [pair for pair in window.pairs(wanted, start, end) if not is_blank(pair[0])]
        if pairs:
            shift = shift_between(pairs, new, page_uses_tabs=window.uses_tabs)
            if shift is not None:
                return shift
    return None


def _is_absolute(wanted: Wanted, window: Window) -> bool:
    """Whether the replacement is indented like the file although the search text is not."""
    pairs = [pair for pair in window.pairs(wanted) if not is_blank(pair[0])]
    new = [indent_of(line) for line in wanted.new if not is_blank(line)]
    if not pairs or not new:
        return False
    first_old, first_found = (indent_of(line) for line in pairs[0])
    if new[0] in (first_old, first_found):
        return new[0] != first_old
    least_old = min((indent_of(s) for s, _ in pairs), key=len)
    least_found = min((indent_of(f) for _, f in pairs), key=len)
    least = min(new, key=len)
    return least == least_found != least_old


def written_lines(wanted: Wanted) -> list[str]:
    """Return the non-blank lines of the replacement that the search text lacks."""
    runs = (wanted.new[s.b_start : s.b_end] for s in wanted.steps if not s.equal)
    return [line for run in runs for line in run if not is_blank(line)]


def _paired_texts(wanted: Wanted, window: Window) -> tuple[str, str]:
    pairs = [(s.strip(), f.strip()) for s, f in window.pairs(wanted)]
    level = [pair for pair in pairs if len(pair[0]) == len(pair[1])]
    return "\n".join(s for s, _ in level), "\n".join(f for _, f in level)


def _meant(search: str, found: str) -> Callable[[str], str]:
    """Return a function that replaces typographic characters of a reply by those of the file."""
    if search == found or search.isascii():
        return lambda text: text
    table: dict[int, str] = {}
    doubtful: set[int] = set()
    for s, f in zip(search, found, strict=True):
        if s.isascii() or plain_punctuation(s) != plain_punctuation(f):
            continue
        if table.setdefault(ord(s), f) != f:
            doubtful.add(ord(s))
    for code in doubtful:
        del table[code]
    return lambda text: text.translate(table)


# ------------------------------------------------------------------------------------------ merging

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
# A quoted line must be this similar to the line of the file (percent), or it is another line.
_ALIKE = 80.0
# A longer line holds data and is not merged.
_MAX_LINE = 1000


@dataclass(frozen=True, slots=True)
class _Edit:
    """Tokens `start:end` of the quoted line become `new`."""

    start: int
    end: int
    new: tuple[str, ...]


def merged(quoted: str, wanted: str, found: str) -> str | None:
    """Apply the change `quoted` -> `wanted` to the line `found` of the file, token by token.

    None if both sides changed the same or neighbouring tokens differently.
    """
    if max(len(quoted), len(wanted), len(found)) > _MAX_LINE:
        return None
    if fuzz.ratio(quoted, found) < _ALIKE:
        return None
    tokens = _TOKEN.findall(quoted)
    theirs, ours = _edits(tokens, found), _edits(tokens, wanted)
    if any(_clash(one, other) for one in theirs for other in ours):
        return None
    result: list[str] = []
    done = 0
    for edit in sorted({*theirs, *ours}, key=lambda e: (e.start, e.end, e.new)):
        result.extend([*tokens[done : edit.start], *edit.new])
        done = edit.end
    return "".join([*result, *tokens[done:]])


def _edits(tokens: Sequence[str], line: str) -> list[_Edit]:
    other = _TOKEN.findall(line)
    return [
        _Edit(step.a_start, step.a_end, tuple(other[step.b_start : step.b_end]))
        for step in steps(tokens, other)
        if not step.equal
    ]


def _clash(one: _Edit, other: _Edit) -> bool:
    return one != other and one.start <= other.end and other.start <= one.end
