"""Failure values: why an edit has no place of its own, in words that let one repair call fix it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.patching.filetext import shown
from agent.patching.nearest import MAX_CANDIDATES, elided, nearest_regions, what_differs
from agent.patching.tiers.applied import already_applied
from agent.patching.tiers.basic import Place
from agent.patching.tiers.hints import LINE_TOLERANCE, line_of
from agent.patching.tiers.lines import MAX_OCCURRENCES, Page, Wanted
from agent.secrets.masking import MASK, mask_secrets
from agent.types import ApplyKind, Candidate, MatchTier, SearchReplace

# Line numbers listed in a reason, and lines shown around an ambiguous place so that the model can
# lengthen its search text.
_LISTED = 20
_CONTEXT = 2

# Lines of one place that are shown; what makes an edit unique stands at its ends.
_MAX_SHOWN = 40

# Lines around a shown region that may tell that it holds a secret: a private key has fewer.
_AROUND_SECRETS = 320

# Two characters that belong to one word.
_INSIDE = re.compile(r"\w\w")

_LIBERTY = {
    MatchTier.TRAILING_SPACE: "white space at line ends",
    MatchTier.INDENTATION: "indentation",
    MatchTier.TABS: "tabs",
    MatchTier.WHITE_SPACE: "white space",
    MatchTier.PUNCTUATION: "typographic characters",
    MatchTier.LINE_NUMBERS: "line numbers",
    MatchTier.OUTER_BLANKS: "blank lines around it",
    MatchTier.ELISION: "the lines left out",
    MatchTier.BLANK_LINES: "blank lines",
    MatchTier.NEAR: "a few lines",
}


@dataclass(frozen=True, slots=True)
class Miss:
    """Why an edit has no place of its own."""

    kind: ApplyKind
    reason: str
    candidates: tuple[Candidate, ...] = ()


def ambiguous(page: Page, edit: SearchReplace, places: Sequence[Place], tier: MatchTier) -> Miss:
    """Several places, and nothing decides."""
    lines = [line_of(page, place.start) for place in places[:_LISTED]]
    more = len(places) - len(lines)
    listed = ", ".join(map(str, lines)) + (f" and {more} more" if more else "")
    times = f"{len(places)} times" if len(places) < MAX_OCCURRENCES else f"{len(places)}+ times"
    but = f" (apart from {_LIBERTY[tier]})" if tier in _LIBERTY else ""
    reason = f"the search text occurs {times}{but}, at lines {listed}"
    if edit.line is None:
        reason += '; lengthen it by neighbouring lines until it is unique, or add "line"'
    else:
        reason += (
            f'; not exactly one of them starts nearest to "line" {edit.line} '
            f"(within {LINE_TOLERANCE} lines)"
        )
    around = tuple(_surroundings(page, edit.path, place) for place in places[:MAX_CANDIDATES])
    return Miss("ambiguous", reason, around)


def splits_word(page: Page, edit: SearchReplace, place: Place) -> Miss | None:
    """Refuses one line that stands only inside a longer word (`x = 1` in `max = 1`)."""
    found = page.text[place.start : place.end]
    if "\n" in edit.search.strip("\r\n") or not found:
        return None
    before = page.text[place.start - 1 : place.start] + found[0]
    after = found[-1] + page.text[place.end : place.end + 1]
    if not (_INSIDE.fullmatch(before) or _INSIDE.fullmatch(after)):
        return None
    line = line_of(page, place.start)
    return Miss(
        "no-match",
        f"the search text stands only inside a longer word, at line {line}; quote whole lines",
        (_surroundings(page, edit.path, place),),
    )


def no_match(
    page: Page,
    path: str,
    wanted: Wanted,
    *,
    left_out: str | None,
    broken: tuple[MatchTier, int] | None,
) -> Miss:
    """No place that may be taken. `broken`: the tier and offset of one that would not parse."""
    if broken is not None:
        tier, offset = broken
        line = line_of(page, offset)
        return Miss(
            "broken-syntax",
            f"the search text matches at line {line} only if {_LIBERTY[tier]} may differ, and with "
            "the replacement there the file no longer parses; copy the search text byte for byte "
            "and indent the replacement alike",
            _nearest(page, path, wanted),
        )
    if left_out is not None:
        return Miss(
            "no-match",
            f"the replacement leaves code out ({left_out!r}), which would delete it; "
            "write every line, or quote only the lines that change",
        )
    applied = already_applied(page, wanted)
    if applied is not None:
        return Miss("no-change", _is_applied(line_of(page, applied)))
    candidates = _nearest(page, path, wanted)
    reason = "the search text is not in the file"
    if MASK in wanted.search and MASK not in page.text:
        reason += f'; "{MASK}" stands for a value that is not shown: quote lines without it'
    if candidates:
        reason += f"; {what_differs(wanted.search, candidates[0])}"
    if elided(wanted.search, page.text):
        reason += '; do not abbreviate with "...", quote every line'
    if "\ufffd" in wanted.search:
        reason += "; U+FFFD stands for bytes that are no text: quote lines without it"
    return Miss("no-match", reason, candidates)


def all_applied(line: int) -> str:
    """The reason of a proposal that is wholly applied already."""
    return _is_applied(line)


def _is_applied(line: int) -> str:
    return (
        f"the replacement already is in the file, at line {line}: the edit seems to be applied; "
        "leave it out"
    )


def _surroundings(page: Page, path: str, place: Place) -> Candidate:
    first = line_of(page, place.start)
    last = first + page.text[place.start : place.end].removesuffix("\n").count("\n")
    start, end = max(1, first - _CONTEXT), min(len(page.lines), last + _CONTEXT)
    end = min(end, start + _MAX_SHOWN - 1)
    return Candidate(path, start, end, _showable(page, start, end), 1.0)


def _nearest(page: Page, path: str, wanted: Wanted) -> tuple[Candidate, ...]:
    return tuple(
        replace(found, text=_showable(page, found.start, found.end))
        for found in nearest_regions(path, shown(page.text), wanted.search)
    )


def _showable(page: Page, start: int, end: int) -> str:
    """The lines from `start` to `end` without their secrets, which their neighbours may tell."""
    first = max(1, start - _AROUND_SECRETS)
    text = "\n".join(page.lines[first - 1 : end + _AROUND_SECRETS])
    return shown("\n".join(mask_secrets(text).text.split("\n")[start - first : end - first + 1]))
