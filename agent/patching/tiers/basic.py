"""Tiers that match whole lines one to one, and the exact one.

Each gives every place at which it holds, in order. What differs between search text and file is
tolerated in the context only: see `transplant`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agent.patching.tiers.indentation import Shift, shift_between
from agent.patching.tiers.lines import (
    MAX_OCCURRENCES,
    Normal,
    Page,
    Wanted,
    end_stripped,
    ends_stripped,
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

# Lines that the places of one search text may have in all before the rest are left unlooked at: so
# many places are no place.
_MAX_LINES = 200_000


@dataclass(frozen=True, slots=True)
class Place:
    """Replace `text[start:end]` by what `make` gives; None if that cannot be told here."""

    start: int
    end: int
    make: Callable[[], str | None]


Find = Callable[[Page, Wanted], Sequence[Place]]


def occurrences(text: str, search: str) -> Sequence[tuple[int, int]]:
    """Start and end of all occurrences, overlapping ones too.

    A search text that ends with a line feed also matches a last line that has none: the model
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


def exact(page: Page, wanted: Wanted) -> Sequence[Place]:
    """The search text as it is, anywhere. A final line feed that the file lacks is not added."""

    def place(start: int, end: int) -> Place:
        past_end = end - start < len(wanted.search)
        new = wanted.replace.removesuffix("\n") if past_end else wanted.replace
        return Place(start, end, lambda: new)

    return [place(*span) for span in occurrences(page.text, wanted.search)]


def trailing_space(page: Page, wanted: Wanted) -> Sequence[Place]:
    """Lines that agree apart from white space at their ends."""
    return list(_matches(page, wanted, end_stripped, _is_same))


def indentation(page: Page, wanted: Wanted) -> Sequence[Place]:
    """Lines that are all shifted by the same indentation."""
    return list(_matches(page, wanted, ends_stripped, _is_uniform))


def tabs(page: Page, wanted: Wanted) -> Sequence[Place]:
    """Lines indented by tabs for blanks or blanks for tabs, to the same columns up to one shift."""
    return list(_matches(page, wanted, ends_stripped, _is_regular))


def white_space(page: Page, wanted: Wanted) -> Sequence[Place]:
    """Lines that agree apart from white space, whatever their indentation."""
    return list(_matches(page, wanted, spaceless, lambda _: True))


def punctuation(page: Page, wanted: Wanted) -> Sequence[Place]:
    """Quotes, dashes, spaces and ellipses may be typographic on one side and plain on the other."""
    found = _punctuated_text(page, wanted)
    return found or list(_matches(page, wanted, typed, _is_regular))


def region(page: Page, first: int, last: int, lines: Callable[[], Sequence[str] | None]) -> Place:
    """Replace lines `first`..`last` (indices, inclusive) by what `lines` gives, if anything."""
    start, end = page.starts[first], page.starts[last + 1]
    has_end = page.text.endswith("\n", start, end)

    def make() -> str | None:
        new = lines()
        if new is None:
            return None
        text = "".join(f"{line}\n" for line in new)
        return text if has_end else text.removesuffix("\n")

    return Place(start, end, make)


# ------------------------------------------------------------------------------------------ pieces

_Holds = Callable[[Shift | None], bool]


def _is_same(shift: Shift | None) -> bool:
    return shift is not None and shift.same


def _is_uniform(shift: Shift | None) -> bool:
    return shift is not None and not shift.tabs and not shift.irregular


def _is_regular(shift: Shift | None) -> bool:
    return shift is not None and not shift.irregular


def _matches(page: Page, wanted: Wanted, normal: Normal, holds: _Holds) -> Iterator[Place]:
    size = len(wanted.old)
    written = written_lines(wanted)
    starts = page.letters(normal).occurrences([normal(line) for line in wanted.old])
    for start in starts[: max(2, _MAX_LINES // max(1, size))]:
        window = Window(page.lines[start : start + size], range(size), page.uses_tabs)
        shift = shift_between(window.pairs(wanted), written, page_uses_tabs=page.uses_tabs)
        if holds(shift):
            make = functools.partial(transplant, wanted, window)
            yield region(page, start, start + size - 1, make)


def _punctuated_text(page: Page, wanted: Wanted) -> Sequence[Place]:
    """Places in running text, whole lines or not, that differ in single characters only."""

    def place(start: int, end: int) -> Place:
        old, new = wanted.search, wanted.replace
        if end - start < len(old):
            old, new = old[: end - start], new.removesuffix("\n")

        def make() -> str | None:
            return transplant_characters(old, new, page.text[start:end])

        return Place(start, end, make)

    return [place(*span) for span in occurrences(page.plain, plain_punctuation(wanted.search))]
