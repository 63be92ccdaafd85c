"""Line numbers that a reply repeats from what it was shown: `12: x`, `12| x`, `L12 x`, `cat -n`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.patching.tiers.lines import Wanted, is_blank

# Number, then what separates it from the line. The separators' own blank is part of them; where it
# is not, all lines are shifted by one column, which the other tiers see.
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
    """The same without line numbers, and the number of the first line; None if there are none.

    Every line of the search text must have one, each by one greater than that before (blank lines
    may lack theirs). The replacement must have them on all lines or on none.
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
    """The replacement's lines, where only the search text is numbered.

    If that ends in a number without a text and no line feed, its last line is a blank one, and so
    is what follows the last line feed of the replacement.
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
    """Whether they count up by one, a missing one counted too."""
    firsts = {number - index for index, number in enumerate(numbers) if number is not None}
    return len(firsts) == 1
