"""Failure values that say why an edit does not match, so that one repair call can fix it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from agent.patching.file_text import shown
from agent.patching.lines import MAX_OCCURRENCES, Page, Wanted
from agent.patching.near import fuzzy_votes, likely_starts
from agent.shared.secrets import MASK, mask_secrets
from agent.types import ApplyKind, Candidate, MatchTier, SearchReplace

# A `line` hint selects the nearest occurrence within this many lines. Models count from the header
# of an excerpt and are off by a few. A larger distance means another place.
LINE_TOLERANCE = 5

_MAX_CANDIDATES = 3

# A region less similar than this has little to do with the search text and would mislead.
_MIN_SIMILARITY = 0.5

# Number of regions compared as texts. A comparison costs the product of the lengths.
_COMPARED = 12
_COMPARED_CHARACTERS = 20_000

_SHOWN = 120
_ELLIPSIS = re.compile(r"\s*(?:#|//)?\s*(?:\.\.\.|…).{0,40}")

# Line numbers listed in a reason, and lines shown around each of several matches so that the model
# can lengthen its search text.
_LISTED = 20
_CONTEXT = 2

# Lines of one match that are shown. Its ends make it unique.
_MAX_SHOWN = 40

# Lines around a region that may show that it holds a secret. A private key has fewer.
_AROUND_SECRETS = 320

# Two characters that belong to one word.
_INSIDE = re.compile(r"\w\w")

_LIBERTY = {
    MatchTier.TRAILING_SPACE: "white space at line ends",
    MatchTier.WHITE_SPACE: "white space",
    MatchTier.PUNCTUATION: "typographic characters",
    MatchTier.LINE_NUMBERS: "line numbers",
    MatchTier.ELISION: "the lines left out",
    MatchTier.BLANK_LINES: "blank lines",
    MatchTier.NEAR: "a few lines",
}


@dataclass(frozen=True, slots=True)
class Miss:
    """Why an edit cannot be applied. `advice` is only for the model."""

    kind: ApplyKind
    reason: str
    candidates: tuple[Candidate, ...] = ()
    advice: str = ""


def ambiguous(
    page: Page,
    edit: SearchReplace,
    starts: Sequence[int],
    spans: Sequence[tuple[int, int]],
    tier: MatchTier,
) -> Miss:
    """Return the failure of an edit that matches at all `starts`; `spans` are shown."""
    lines = [page.line_of(start) for start in starts[:_LISTED]]
    more = len(starts) - len(lines)
    listed = ", ".join(map(str, lines)) + (f" and {more} more" if more else "")
    times = f"{len(starts)} times" if len(starts) < MAX_OCCURRENCES else f"{len(starts)}+ times"
    but = f" (apart from {_LIBERTY[tier]})" if tier in _LIBERTY else ""
    reason = f"the search text occurs {times}{but}, at lines {listed}"
    advice = ""
    if edit.line is None:
        advice = 'lengthen it by neighbouring lines until it is unique, or add "line"'
    else:
        reason += (
            f'; not exactly one of them starts nearest to "line" {edit.line} '
            f"(within {LINE_TOLERANCE} lines)"
        )
    around = tuple(_surroundings(page, edit.path, *span) for span in spans[:_MAX_CANDIDATES])
    return Miss("ambiguous", reason, around, advice)


def splits_word(page: Page, edit: SearchReplace, start: int, end: int) -> Miss | None:
    """Refuse one line that occurs only inside a longer word (`x = 1` in `max = 1`)."""
    match = page.text[start:end]
    if "\n" in edit.search.strip("\r\n") or not match:
        return None
    before, after = page.text[start - 1 : start] + match[0], match[-1] + page.text[end : end + 1]
    if not (_INSIDE.fullmatch(before) or _INSIDE.fullmatch(after)):
        return None
    reason = f"the search text occurs only inside a longer word, at line {page.line_of(start)}"
    shown_lines = (_surroundings(page, edit.path, start, end),)
    return Miss("no-match", reason, shown_lines, "quote whole lines")


def no_match(
    page: Page,
    path: str,
    wanted: Wanted,
    applied: int | None,
    *,
    left_out: str | None,
    broken: tuple[MatchTier, int] | None,
) -> Miss:
    """Return the failure of an edit without a match.

    `applied`: the offset of the replacement in the file. `broken`: the tier and offset of a match
    with which the file would not parse.
    """
    if broken is not None:
        tier, offset = broken
        return Miss(
            "broken-syntax",
            f"the search text matches at line {page.line_of(offset)} only if {_LIBERTY[tier]} may "
            "differ, and with the replacement there the file no longer parses",
            _nearest(page, path, wanted),
            "copy the search text byte for byte and indent the replacement alike",
        )
    if left_out is not None:
        return Miss(
            "no-match",
            f"the replacement leaves code out ({left_out!r}), which would delete it",
            advice="write every line, or quote only the lines that change",
        )
    if applied is not None:
        reason = f"the replacement is in the file already, at line {page.line_of(applied)}"
        return Miss("no-change", reason, advice="the edit seems to be applied; leave it out")
    candidates = _nearest(page, path, wanted)
    reason = "the search text is not in the file"
    if candidates:
        reason += f"; {_what_differs(wanted.search, candidates[0])}"
    return Miss("no-match", reason, candidates, _how_to_quote(wanted.search, page.text))


def _how_to_quote(search: str, text: str) -> str:
    advice = []
    if MASK in search and MASK not in text:
        advice.append(f'"{MASK}" stands for a value that is not shown: quote lines without it')
    dots = (line.strip() for line in search.split("\n") if _ELLIPSIS.fullmatch(line))
    if any(line not in text for line in dots):
        advice.append('do not abbreviate with "...", quote every line')
    if "\ufffd" in search:
        advice.append("U+FFFD stands for bytes that are not text: quote lines without it")
    return "; ".join(advice)


def _surroundings(page: Page, path: str, start: int, end: int) -> Candidate:
    first = page.line_of(start)
    last = first + page.text[start:end].removesuffix("\n").count("\n")
    top, bottom = max(1, first - _CONTEXT), min(len(page.lines), last + _CONTEXT)
    bottom = min(bottom, top + _MAX_SHOWN - 1)
    return Candidate(path, top, bottom, _showable(page, top, bottom), 1.0)


def _nearest(page: Page, path: str, wanted: Wanted) -> tuple[Candidate, ...]:
    """Return at most three regions like the search text, most similar first, not overlapping."""
    lines = shown(page.text).split("\n")
    search = wanted.search.removesuffix("\n").split("\n")
    if not any(line.strip() for line in search):
        return ()
    starts = likely_starts(lines, search)[:_COMPARED]
    if len(starts) < _MAX_CANDIDATES:
        starts.extend(start for start, _ in fuzzy_votes(lines, search) if 0 <= start < len(lines))
    compared = (_candidate(page, path, lines, start, search) for start in dict.fromkeys(starts))
    chosen: list[Candidate] = []
    for candidate in sorted(compared, key=lambda c: (-c.similarity, c.start)):
        apart = all(candidate.end < c.start or c.end < candidate.start for c in chosen)
        if candidate.similarity >= _MIN_SIMILARITY and apart:
            chosen.append(candidate)
    return tuple(chosen[:_MAX_CANDIDATES])


def _candidate(
    page: Page, path: str, lines: Sequence[str], start: int, search: Sequence[str]
) -> Candidate:
    region = "\n".join(lines[start : start + len(search)])
    ratio = fuzz.ratio(region[:_COMPARED_CHARACTERS], "\n".join(search)[:_COMPARED_CHARACTERS])
    end = min(len(lines), start + len(search))
    return Candidate(path, start + 1, end, _showable(page, start + 1, end), round(ratio / 100, 3))


def _what_differs(search: str, candidate: Candidate) -> str:
    """Describe the first line in which the search text and a region differ."""
    have = candidate.text.split("\n")
    for k, line in enumerate(search.removesuffix("\n").split("\n")):
        what = f"line {k + 1} of the search text"
        if k >= len(have):
            return f"the file ends before {what}, {_quoted(line)}"
        if line != have[k]:
            space = " (only white space differs)" if line.split() == have[k].split() else ""
            place = f"file has {_quoted(have[k])} at line {candidate.start + k}"
            return f"{what}: expected {_quoted(line)}, {place}{space}"
    return f"closest are lines {candidate.start}-{candidate.end}"


def _quoted(line: str) -> str:
    cut = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
    return json.dumps(cut, ensure_ascii=False).encode(errors="replace").decode()


def _showable(page: Page, start: int, end: int) -> str:
    """Return the lines from `start` to `end` with secrets masked, judged with their neighbours."""
    first = max(1, start - _AROUND_SECRETS)
    text = "\n".join(page.lines[first - 1 : end + _AROUND_SECRETS])
    return shown("\n".join(mask_secrets(text).text.split("\n")[start - first : end - first + 1]))
