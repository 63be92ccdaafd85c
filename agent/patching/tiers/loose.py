"""Tiers that match lines in order but not one to one: blank lines or a few lines differ."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz import fuzz

from agent.patching.refusals import likely_starts
from agent.patching.tiers.basic import Occurrence, region
from agent.patching.tiers.indentation import shift_between
from agent.patching.tiers.lines import (
    Page,
    Step,
    Wanted,
    ends_stripped,
    is_blank,
    spaceless,
    steps,
    typed,
)
from agent.patching.tiers.transplant import Window, merged, transplant, written_lines

# A search text needs this many non-blank lines and characters to be matched by similarity. Shorter
# ones are similar to too many places.
_NEAR_LINES = 3
_NEAR_CHARACTERS = 60

# Share of the characters of the search text that must be in the file as quoted, and the most that
# any other place may have, as a share of that.
_NEAR_SHARE = 0.6
_NEAR_RIVAL = 0.7

# Lines of a search text. Comparing costs the product of lines, and a longer text is no quotation.
_NEAR_MAX_LINES = 400

# Lines beyond both ends of a likely place that are compared: a share of the lines of the search
# text plus a few.
_SLACK_SHARE = 0.5
_SLACK_LINES = 12

# Lines of the file that a match may skip (a docstring, a branch): this many, or this share of the
# lines of the search text.
_PASSED = 10
_PASSED_SHARE = 0.5

# A line at least this similar (percent) counts as misquoted, otherwise as another line.
_LIKE = 60.0

_COMPARED = 8


def blank_lines(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match lines that agree without blank ones, under one shift of the indentation."""
    old = [(index, line) for index, line in enumerate(wanted.old) if not is_blank(line)]
    letters = page.letters(ends_stripped, blanks=False)
    places: list[Occurrence] = []
    for start in letters.occurrences([line.strip() for _, line in old]):
        at = letters.at[start : start + len(old)]
        at_of = {i: k for (i, _), k in zip(old, at, strict=True)}
        window = _aligned(page, wanted, at_of)
        shift = shift_between(
            window.pairs(wanted), written_lines(wanted), page_uses_tabs=page.uses_tabs
        )
        if shift is not None and not shift.irregular and _placed(wanted, at_of):
            make = functools.partial(transplant, wanted, window)
            places.append(region(page, at[0], at[-1], make))
    return places


def _aligned(page: Page, wanted: Wanted, at: dict[int, int]) -> Window:
    """Return the window of the lines that agree, with blank lines between them paired in order."""
    first, last = min(at.values()), max(at.values())
    placed: list[int | None] = []
    free = first
    for index, line in enumerate(wanted.old):
        if index in at:
            free = at[index] + 1
            placed.append(at[index] - first)
        elif is_blank(line) and free <= last and is_blank(page.lines[free]):
            placed.append(free - first)
            free += 1
        else:
            placed.append(None)
    return Window(page.lines[first : last + 1], placed, page.uses_tabs)


# -------------------------------------------------------------------------------------------- near


@dataclass(frozen=True, slots=True)
class _Fit:
    """How a search text fits a place. `same`: lines that agree, `like`: misquoted lines.

    Both map indices of the search text to indices of the file.
    """

    same: dict[int, int]
    like: dict[int, int]
    weight: int  # characters of the lines that agree

    @property
    def first(self) -> int:
        return min((*self.same.values(), *self.like.values()))

    @property
    def last(self) -> int:
        return max((*self.same.values(), *self.like.values()))


def near(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match the one place with which most lines of the search text agree, if no other comes close.

    Misquoted lines must be context. A line that changes and a line next to it must be in the file
    as quoted (apart from white space and punctuation), or the change must merge with the line of
    the file. Otherwise the meaning of the change is not certain.
    """
    if not _long_enough(wanted):
        return []
    best = _best(page, wanted)
    if best is None or not _sound(page, wanted, best):
        return []
    window = _aligned(page, wanted, best.same | best.like)
    return [region(page, best.first, best.last, functools.partial(transplant, wanted, window))]


def _best(page: Page, wanted: Wanted) -> _Fit | None:
    """Return the fit that has enough of the search text and far more than any other."""
    starts = likely_starts(page.lines, wanted.old)[:_COMPARED]
    reach = int(len(wanted.old) * _SLACK_SHARE) + _SLACK_LINES
    spans = [(max(0, s - reach), min(len(page.lines), s + len(wanted.old) + reach)) for s in starts]
    found = [one for one in (_fit_of(page, wanted, *span) for span in spans) if one]
    best = max(found, key=lambda one: (one.weight, -one.first), default=None)
    if best is None or best.weight < sum(map(_weight, wanted.old)) * _NEAR_SHARE:
        return None
    rivals = (
        _fit_of(page, wanted, low, high)
        for span in spans
        for low, high in (
            (span[0], min(span[1], best.first)),
            (max(span[0], best.last + 1), span[1]),
        )
        if low < high
    )
    if any(one and one.weight > best.weight * _NEAR_RIVAL for one in rivals):
        return None
    return (
        best if _passed_over(page, best) <= max(_PASSED, len(wanted.old) * _PASSED_SHARE) else None
    )


def _passed_over(page: Page, fit: _Fit) -> int:
    """Count the non-blank lines between the first and last that the search text lacks."""
    lines = page.lines[fit.first : fit.last + 1]
    return sum(not is_blank(line) for line in lines) - len(fit.same) - len(fit.like)


def _weight(line: str) -> int:
    return len(line.strip())


def _long_enough(wanted: Wanted) -> bool:
    said = [line.strip() for line in wanted.old if not is_blank(line)]
    return (
        len(said) >= _NEAR_LINES
        and len(wanted.old) <= _NEAR_MAX_LINES
        and sum(map(len, said)) >= _NEAR_CHARACTERS
    )


def _fit_of(page: Page, wanted: Wanted, low: int, high: int) -> _Fit | None:
    """Return how the search text fits lines `low:high`; None if no line agrees."""
    keys = [_key(line) for line in wanted.old]
    # Blank lines agree with one another and would disturb the alignment.
    old = [index for index, key in enumerate(keys) if key]
    new = [index for index in range(low, high) if not is_blank(page.lines[index])]
    same: dict[int, int] = {}
    like: dict[int, int] = {}
    for step in steps([keys[i] for i in old], [_key(page.lines[k]) for k in new]):
        pairs = zip(old[step.a_start : step.a_end], new[step.b_start : step.b_end], strict=False)
        if step.equal:
            same.update(pairs)
        elif step.a_end - step.a_start == step.b_end - step.b_start:
            like.update((i, k) for i, k in pairs if _alike(wanted.old[i], page.lines[k]))
    if not same:
        return None
    return _Fit(same, like, sum(_weight(wanted.old[i]) for i in same))


def _key(line: str) -> str:
    return spaceless(typed(line))


def _alike(a: str, b: str) -> bool:
    return fuzz.ratio(a.strip(), b.strip()) >= _LIKE


def _placed(wanted: Wanted, at: dict[int, int]) -> bool:
    """Whether no differing blank line makes a change ambiguous.

    New lines could go before or after such a blank line. Lines that replace others stand where
    those do, but not across it.
    """
    return all(step.equal or _is_level(wanted, at, step) for step in wanted.steps)


def _is_level(wanted: Wanted, at: dict[int, int], step: Step) -> bool:
    around = _around(wanted, step)
    inside = [index for index in around if step.a_start <= index < step.a_end]
    return all(_level(at, i, j) for i, j in pairwise(inside or around))


def _sound(page: Page, wanted: Wanted, fit: _Fit) -> bool:
    """Whether all quoted lines exist, and each change touches and adjoins lines that agree.

    The search text may skip lines of the file, but not next to a change, which did not consider
    them.
    """
    at = fit.same | fit.like
    if any(index not in at for index, line in enumerate(wanted.old) if not is_blank(line)):
        return False
    return all(step.equal or _change_is_sound(page, wanted, fit, step) for step in wanted.steps)


def _change_is_sound(page: Page, wanted: Wanted, fit: _Fit, step: Step) -> bool:
    around = _around(wanted, step)
    inside = [index for index in around if step.a_start <= index < step.a_end]
    sure = fit.same | _mergeable(page, wanted, fit, step)
    if any(index not in sure for index in inside) or not _is_level(wanted, sure, step):
        return False
    outside = [index for index in around if index not in inside]
    at = fit.same | fit.like
    return any(index in fit.same for index in outside) and all(
        _adjoin(page, at[i], at[j]) for i, j in pairwise(around)
    )


def _adjoin(page: Page, first: int, second: int) -> bool:
    """Whether only blank lines lie between two lines of the file."""
    return all(is_blank(line) for line in page.lines[first + 1 : second])


def _mergeable(page: Page, wanted: Wanted, fit: _Fit, step: Step) -> dict[int, int]:
    """Return the misquoted lines of a change into which the new line can be merged."""
    if step.a_end - step.a_start != step.b_end - step.b_start:
        return {}
    new = dict(zip(range(step.a_start, step.a_end), range(step.b_start, step.b_end), strict=True))
    return {
        i: k
        for i, k in fit.like.items()
        if i in new
        and merged(wanted.old[i].strip(), wanted.new[new[i]].strip(), page.lines[k].strip())
        is not None
    }


def _around(wanted: Wanted, step: Step) -> list[int]:
    """Return the non-blank lines of a change with the nearest one on either side."""
    before, after = _said(wanted, step.a_start, -1), _said(wanted, step.a_end, 1)
    inside = [i for i in range(step.a_start, step.a_end) if not is_blank(wanted.old[i])]
    ends = ([] if before is None else [before], [] if after is None else [after])
    return [*ends[0], *inside, *ends[1]]


def _said(wanted: Wanted, index: int, direction: int) -> int | None:
    """Return the nearest non-blank line before an index (-1), or from it on (1)."""
    indices = range(index - 1, -1, -1) if direction < 0 else range(index, len(wanted.old))
    return next((i for i in indices if not is_blank(wanted.old[i])), None)


def _level(at: dict[int, int], first: int, second: int) -> bool:
    """Whether two lines are as far apart in the file as in the search text."""
    return first in at and second in at and at[second] - at[first] == second - first
