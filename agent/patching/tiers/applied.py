"""Recognises edits that the file already holds."""

from __future__ import annotations

from rapidfuzz import fuzz

from agent.patching.tiers.basic import occurrences
from agent.patching.tiers.lines import Page, Wanted, is_blank
from agent.patching.tiers.transplant import written_lines

# Characters other than white space that a replacement, or what it adds, needs before finding it in
# the file means anything: `return None` stands everywhere.
_MIN_REPLACEMENT = 24
_MIN_ADDED = 12

# How like its search text a replacement must be (percent) that shares no line with it: otherwise
# the text found may be another place that happens to read like the replacement.
_ALIKE = 70.0
_COMPARED = 5_000


def already_applied(page: Page, wanted: Wanted) -> int | None:
    """Where the replacement stands, if the search text is gone; its offset."""
    if _weight(wanted.replace) < _MIN_REPLACEMENT or not _related(wanted):
        return None
    if _weight("".join(written_lines(wanted))) < _MIN_ADDED:
        return None  # what is left after a deletion stands in the file either way
    found = occurrences(page.text, wanted.replace)
    return found[0][0] if len(found) == 1 else None


def already_added(page: Page, wanted: Wanted, start: int) -> bool:
    """Whether what the replacement adds around the search text (at `start`) is there already."""
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
