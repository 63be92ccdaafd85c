"""Tiers that match lines in order, but not one to one: blank lines differ, or some lines do."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz import fuzz

from agent.patching.nearest import likely_starts
from agent.patching.tiers.basic import Place, region
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
from agent.patching.tiers.merging import merged
from agent.patching.tiers.transplant import Window, transplant, written_lines

# Non-blank lines and characters that a search text needs at least before it may be matched by
# likeness: shorter ones are like too much.
_NEAR_LINES = 3
_NEAR_CHARACTERS = 60

# Share of the search text's characters that must stand in the file as quoted; and how much of it
# any other place may have at most, as a share of that.
_NEAR_SHARE = 0.6
_NEAR_RIVAL = 0.7

# Lines beyond that: comparing costs the product of lines, and a search text that long is no quote.
_NEAR_MAX_LINES = 400

# Lines of the file beyond either end of a likely place that are looked at: a share of the search
# text's own, plus a few.
_SLACK_SHARE = 0.5
_SLACK_LINES = 12

# Lines that it may pass over in all (a docstring, a branch): so many, or that share of its own.
_PASSED = 10
_PASSED_SHARE = 0.5

# From here on a line counts as misquoted, below as another line.
_LIKE = 60.0

_COMPARED = 8


def blank_lines(page: Page, wanted: Wanted) -> Sequence[Place]:
    """Lines that agree once blank ones are left out, under one shift of the indentation."""
    old = [(index, line) for index, line in enumerate(wanted.old) if not is_blank(line)]
    letters = page.letters(ends_stripped, blanks=False)
    places: list[Place] = []
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
    """A window from the lines that agree; blank ones between two of them are paired in order."""
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
class _Likeness:
    """How a search text lies on a place. `same`: lines that agree; `like`: misquoted ones."""

    same: dict[int, int]
    like: dict[int, int]
    weight: int  # characters of the lines that agree

    @property
    def first(self) -> int:
        return min((*self.same.values(), *self.like.values()))

    @property
    def last(self) -> int:
        return max((*self.same.values(), *self.like.values()))


def near(page: Page, wanted: Wanted) -> Sequence[Place]:
    """The one place that most of the search text's lines agree with, if none other comes close.

    What the model misquoted must be context: a line that it changes, and a line next to it, must
    stand in the file as quoted (white space and punctuation apart), or the change must merge with
    what the file has there. Otherwise nobody knows what it means.
    """
    if not _long_enough(wanted):
        return []
    best = _best(page, wanted)
    if best is None or not _sound(page, wanted, best):
        return []
    window = _aligned(page, wanted, best.same | best.like)
    return [region(page, best.first, best.last, functools.partial(transplant, wanted, window))]


def _best(page: Page, wanted: Wanted) -> _Likeness | None:
    """The likeness that holds enough of the search text, and far more than any other does."""
    starts = likely_starts(page.lines, wanted.old)[:_COMPARED]
    reach = int(len(wanted.old) * _SLACK_SHARE) + _SLACK_LINES
    spans = [(max(0, s - reach), min(len(page.lines), s + len(wanted.old) + reach)) for s in starts]
    found = [one for one in (_likeness(page, wanted, *span) for span in spans) if one]
    best = max(found, key=lambda one: (one.weight, -one.first), default=None)
    if best is None or best.weight < sum(map(_weight, wanted.old)) * _NEAR_SHARE:
        return None
    rivals = (
        _likeness(page, wanted, low, high)
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


def _passed_over(page: Page, likeness: _Likeness) -> int:
    """Non-blank lines between its first and last that the search text does not have."""
    lines = page.lines[likeness.first : likeness.last + 1]
    return sum(not is_blank(line) for line in lines) - len(likeness.same) - len(likeness.like)


def _weight(line: str) -> int:
    return len(line.strip())


def _long_enough(wanted: Wanted) -> bool:
    said = [line.strip() for line in wanted.old if not is_blank(line)]
    return (
        len(said) >= _NEAR_LINES
        and len(wanted.old) <= _NEAR_MAX_LINES
        and sum(map(len, said)) >= _NEAR_CHARACTERS
    )


def _likeness(page: Page, wanted: Wanted, low: int, high: int) -> _Likeness | None:
    """How the search text lies on lines `low:high`; None if no line agrees."""
    keys = [_key(line) for line in wanted.old]
    # Blank lines agree with all others of their kind and would pull the rest apart.
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
    return _Likeness(same, like, sum(_weight(wanted.old[i]) for i in same))


def _key(line: str) -> str:
    return spaceless(typed(line))


def _alike(a: str, b: str) -> bool:
    return fuzz.ratio(a.strip(), b.strip()) >= _LIKE


def _placed(wanted: Wanted, at: dict[int, int]) -> bool:
    """Whether no blank line that differs makes a change mean two things.

    New lines could go before such a blank line or behind it; lines that replace others stand where
    those do, but not across it.
    """
    return all(step.equal or _is_level(wanted, at, step) for step in wanted.steps)


def _is_level(wanted: Wanted, at: dict[int, int], step: Step) -> bool:
    around = _around(wanted, step)
    inside = [index for index in around if step.a_start <= index < step.a_end]
    return all(_level(at, i, j) for i, j in pairwise(inside or around))


def _sound(page: Page, wanted: Wanted, likeness: _Likeness) -> bool:
    """Whether no quoted line is made up, and each change touches and adjoins lines that agree.

    Lines of the file may have been passed over, but not next to a change: what they are there for
    is what the change did not consider.
    """
    at = likeness.same | likeness.like
    if any(index not in at for index, line in enumerate(wanted.old) if not is_blank(line)):
        return False
    return all(
        step.equal or _change_is_sound(page, wanted, likeness, step) for step in wanted.steps
    )


def _change_is_sound(page: Page, wanted: Wanted, likeness: _Likeness, step: Step) -> bool:
    around = _around(wanted, step)
    inside = [index for index in around if step.a_start <= index < step.a_end]
    sure = likeness.same | _mergeable(page, wanted, likeness, step)
    if any(index not in sure for index in inside) or not _is_level(wanted, sure, step):
        return False
    outside = [index for index in around if index not in inside]
    at = likeness.same | likeness.like
    return any(index in likeness.same for index in outside) and all(
        _adjoin(page, at[i], at[j]) for i, j in pairwise(around)
    )


def _adjoin(page: Page, first: int, second: int) -> bool:
    """Whether only blank lines lie between two lines of the file."""
    return all(is_blank(line) for line in page.lines[first + 1 : second])


def _mergeable(page: Page, wanted: Wanted, likeness: _Likeness, step: Step) -> dict[int, int]:
    """Misquoted lines of a change that their one new line can be merged into."""
    if step.a_end - step.a_start != step.b_end - step.b_start:
        return {}
    new = dict(zip(range(step.a_start, step.a_end), range(step.b_start, step.b_end), strict=True))
    return {
        i: k
        for i, k in likeness.like.items()
        if i in new
        and merged(wanted.old[i].strip(), wanted.new[new[i]].strip(), page.lines[k].strip())
        is not None
    }


def _around(wanted: Wanted, step: Step) -> list[int]:
    """The non-blank lines of a change, with the nearest one on either side."""
    before, after = _said(wanted, step.a_start, -1), _said(wanted, step.a_end, 1)
    inside = [i for i in range(step.a_start, step.a_end) if not is_blank(wanted.old[i])]
    ends = ([] if before is None else [before], [] if after is None else [after])
    return [*ends[0], *inside, *ends[1]]


def _said(wanted: Wanted, index: int, direction: int) -> int | None:
    """The nearest non-blank line before (-1) or from (1) an index on."""
    indices = range(index - 1, -1, -1) if direction < 0 else range(index, len(wanted.old))
    return next((i for i in indices if not is_blank(wanted.old[i])), None)


def _level(at: dict[int, int], first: int, second: int) -> bool:
    """Whether two lines are as far apart in the file as in the search text."""
    return first in at and second in at and at[second] - at[first] == second - first
