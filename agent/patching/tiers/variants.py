"""Variants of a search text: as it is, without line numbers, without outer blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.patching.tiers.lines import Wanted, is_blank
from agent.types import MatchTier


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a search text and its replacement, and the tier that it counts as.

    `line`: the line that the numbers in the reply give, None without numbers.
    """

    tier: MatchTier
    wanted: Wanted
    line: int | None = None


def variants(wanted: Wanted) -> Iterator[Variant]:
    """Return the variants, strictest first. Each is made from the one before."""
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
    """Drop blank lines at the ends, and as many of the replacement as it shares."""
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


# ------------------------------------------------------------------------------------- line numbers

# A number and its separator from the line: `12: x`, `12| x`, `L12 x`, `cat -n`. Where the blank
# after a separator is missing, all lines are shifted by one column, which other tiers handle.
_FORMS = tuple(
    re.compile(form)
    for form in (
        r" *(\d{1,7})\t(.*)",  # cat -n
        r" *(\d{1,7}) ?[:|\u2502] ?(.*)",
        r" *(\d{1,7}) ?[:|\u2502](.*)",
        r" *L(\d{1,7})[:|]? ?(.*)",
        r" *\[(\d{1,7})\] ?(.*)",
        r" *(\d{1,7})(?:->|\u2192)(.*)",
        r" *(\d{1,7}) (.*)",
    )
)


def without_numbers(wanted: Wanted) -> tuple[Wanted, int] | None:
    """Remove line numbers and return the number of the first line too; None without numbers.

    Every line of the search text must have a number, one more than the line before; blank lines may
    lack theirs. The replacement must have numbers on all lines or on none.
    """
    for form in _FORMS:
        old = _read(wanted.old, form)
        if old is None or not _in_sequence([number for number, _ in old]):
            continue
        new = _read(wanted.new, form)
        if new is None and any(form.fullmatch(line) for line in wanted.new):
            continue
        texts = [text for _, text in old]
        lines = _unnumbered(wanted, texts) if new is None else [text for _, text in new]
        first = next(n - i for i, (n, _) in enumerate(old) if n is not None)
        return Wanted.of_lines(texts, lines), first
    return None


def _unnumbered(wanted: Wanted, old: Sequence[str]) -> Sequence[str]:
    """Return the lines of the replacement where only the search text is numbered.

    If the search text ends with a number without a text or line feed, its last line is blank. The
    text after the last line feed of the replacement is then a blank line too.
    """
    ends_blank = not wanted.search.endswith("\n") and is_blank(old[-1])
    return [*wanted.new, ""] if ends_blank and wanted.replace.endswith("\n") else wanted.new


def _read(lines: Sequence[str], form: re.Pattern[str]) -> list[tuple[int | None, str]] | None:
    read: list[tuple[int | None, str]] = []
    for line in lines:
        found = form.fullmatch(line) or form.fullmatch(f"{line} ")
        if found:
            read.append((int(found[1]), found[2]))
        elif is_blank(line):
            read.append((None, line))
        else:
            return None
    return read if any(number is not None for number, _ in read) else None


def _in_sequence(numbers: Sequence[int | None]) -> bool:
    """Whether the numbers count up by one, including missing ones."""
    firsts = {number - index for index, number in enumerate(numbers) if number is not None}
    return len(firsts) == 1
