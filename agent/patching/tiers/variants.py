"""Forms that a search text may be taken in: as it is, without numbers, without outer blanks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.patching.tiers.lines import Wanted, is_blank
from agent.patching.tiers.numbers import without_numbers
from agent.types import MatchTier


@dataclass(frozen=True, slots=True)
class Variant:
    """A search text and its replacement, and the tier that taking it in this form amounts to.

    `line`: the line that the reply's own numbers give, None without any.
    """

    tier: MatchTier
    wanted: Wanted
    line: int | None = None


def variants(wanted: Wanted) -> Iterator[Variant]:
    """The forms, strictest first; each is made of the one before."""
    latest = Variant(MatchTier.EXACT, wanted)
    yield latest
    numbered = without_numbers(latest.wanted)
    if numbered is not None:
        latest = Variant(MatchTier.LINE_NUMBERS, *numbered)
        yield latest
    trimmed = _without_outer_blanks(latest.wanted)
    if trimmed is not None:
        yield Variant(MatchTier.OUTER_BLANKS, trimmed, latest.line)


def _without_outer_blanks(wanted: Wanted) -> Wanted | None:
    """Blank lines at the ends dropped; from the replacement as many as it has in common."""
    head, tail = _blanks(wanted.old), _blanks(wanted.old[::-1])
    if not (head or tail) or head == len(wanted.old):
        return None
    new_head = min(head, _blanks(wanted.new))
    new_tail = min(tail, _blanks(wanted.new[new_head:][::-1]))
    return Wanted.of_lines(
        wanted.old[head : len(wanted.old) - tail],
        wanted.new[new_head : len(wanted.new) - new_tail],
    )


def _blanks(lines: Sequence[str]) -> int:
    return next((index for index, line in enumerate(lines) if not is_blank(line)), len(lines))
