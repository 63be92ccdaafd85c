"""The exact tier, and tiers that match whole lines one to one.

Each returns all its occurrences in order. Differences between search text and file are tolerated in
the context only, see `transplant`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from agent.patching.tiers.indentation import Shift, shift_between
from agent.patching.tiers.lines import (
    MAX_OCCURRENCES,
    Normal,
    Page,
    Wanted,
    end_stripped,
    ends_stripped,
    is_blank,
    plain_punctuation,
    spaceless,
    typed,
)
from agent.patching.tiers.transplant import (
    Window,
    transplant,
    transplant_characters,
    written_lines,
)

# Lines of all occurrences of one search text that are compared. The rest is ignored.
_MAX_LINES = 200_000


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Replace `text[start:end]` by what `make` returns; None if the new text is not certain."""

    start: int
    end: int
    make: Callable[[], str | None]


Find = Callable[[Page, Wanted], Sequence[Occurrence]]


def occurrences(text: str, search: str) -> Sequence[tuple[int, int]]:
    """Return start and end of all occurrences, including overlapping ones.

    A search text that ends with a line feed also matches a last line without one, since the model
    cannot see the difference.
    """
    haystack = text
    if search.endswith("\n") and not text.endswith("\n"):
        haystack = text + "\n"
    found: list[tuple[int, int]] = []
    start = haystack.find(search)
    while start >= 0 and len(found) < MAX_OCCURRENCES:
        found.append((start, min(start + len(search), len(text))))
        start = haystack.find(search, start + 1)
    return found


def exact(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match the search text as it is. A final line feed that the file lacks is not added."""

    def place(start: int, end: int) -> Occurrence:
        past_end = end - start < len(wanted.search)
        new = wanted.replace.removesuffix("\n") if past_end else wanted.replace
        return Occurrence(start, end, lambda: new)

    return [place(*span) for span in occurrences(page.text, wanted.search)]


def trailing_space(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match lines that differ in white space at their ends only."""
    return list(_matches(page, wanted, end_stripped, _is_same))


def indentation(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match lines that are all shifted by the same indentation."""
    return list(_matches(page, wanted, ends_stripped, _is_uniform))


def tabs(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match lines with tabs for blanks or blanks for tabs, in the same columns up to one shift."""
    return list(_matches(page, wanted, ends_stripped, _is_regular))


def white_space(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match lines that differ in white space only, with any indentation."""
    return list(_matches(page, wanted, spaceless, lambda _: True))


def punctuation(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match quotes, dashes, spaces and ellipses that are typographic on one side only."""
    found = _punctuated_text(page, wanted)
    return found or list(_matches(page, wanted, typed, _is_regular))


def region(
    page: Page, first: int, last: int, lines: Callable[[], Sequence[str] | None]
) -> Occurrence:
    """Replace lines `first`..`last` (indices, inclusive) by what `lines` returns."""
    start, end = page.starts[first], page.starts[last + 1]
    has_end = page.text.endswith("\n", start, end)

    def make() -> str | None:
        new = lines()
        if new is None:
            return None
        text = "".join(f"{line}\n" for line in new)
        return text if has_end else text.removesuffix("\n")

    return Occurrence(start, end, make)


# ----------------------------------------------------------------------------- matching whole lines

_Holds = Callable[[Shift | None], bool]


def _is_same(shift: Shift | None) -> bool:
    return shift is not None and shift.same


def _is_uniform(shift: Shift | None) -> bool:
    return shift is not None and not shift.tabs and not shift.irregular


def _is_regular(shift: Shift | None) -> bool:
    return shift is not None and not shift.irregular


def _matches(page: Page, wanted: Wanted, normal: Normal, holds: _Holds) -> Iterator[Occurrence]:
    size = len(wanted.old)
    written = written_lines(wanted)
    starts = page.letters(normal).occurrences([normal(line) for line in wanted.old])
    for start in starts[: max(2, _MAX_LINES // max(1, size))]:
        window = Window(page.lines[start : start + size], range(size), page.uses_tabs)
        shift = shift_between(window.pairs(wanted), written, page_uses_tabs=page.uses_tabs)
        if holds(shift):
            make = functools.partial(transplant, wanted, window)
            yield region(page, start, start + size - 1, make)


def _punctuated_text(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match running text, whole lines or not, that differs in single characters only."""

    def place(start: int, end: int) -> Occurrence:
        old, new = wanted.search, wanted.replace
        if end - start < len(old):
            old, new = old[: end - start], new.removesuffix("\n")

        def make() -> str | None:
            return transplant_characters(old, new, page.text[start:end])

        return Occurrence(start, end, make)

    return [place(*span) for span in occurrences(page.plain, plain_punctuation(wanted.search))]


# ------------------------------------------------------------------------------------ applied edits

# A replacement, or the text that it adds, proves nothing in the file if it has fewer characters
# without white space: `return None` occurs everywhere.
_MIN_REPLACEMENT = 24
_MIN_ADDED = 12
# A replacement that shares no line with its search text must be this similar to it (percent).
# Otherwise the text in the file may be another place that happens to read like the replacement.
_ALIKE = 70.0
_COMPARED = 5_000


def already_applied(page: Page, wanted: Wanted) -> int | None:
    """Return the offset of the replacement in the file, if it seems to be applied already."""
    if _weight(wanted.replace) < _MIN_REPLACEMENT or not _related(wanted):
        return None
    if _weight("".join(written_lines(wanted))) < _MIN_ADDED:
        return None  # after a deletion the rest stands in the file either way
    found = occurrences(page.text, wanted.replace)
    return found[0][0] if len(found) == 1 else None


def already_added(page: Page, wanted: Wanted, start: int) -> bool:
    """Whether the text that the replacement adds around the search text at `start` is there."""
    old, new = wanted.search, wanted.replace
    if not old or len(new) <= len(old) or _weight(new) - _weight(old) < _MIN_ADDED:
        return False
    if new.startswith(old) and page.text.startswith(new, start):
        return True
    before = len(new) - len(old)
    return new.endswith(old) and start >= before and page.text.startswith(new, start - before)


def _related(wanted: Wanted) -> bool:
    kept = (
        line
        for step in wanted.steps
        if step.equal
        for line in wanted.old[step.a_start : step.a_end]
    )
    if any(not is_blank(line) for line in kept):
        return True
    return fuzz.ratio(wanted.search[:_COMPARED], wanted.replace[:_COMPARED]) >= _ALIKE


def _weight(text: str) -> int:
    return len("".join(text.split()))
