"""Failure values that say why an edit does not match, so that one repair call can fix it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from agent.patching.file_text import shown
from agent.patching.lines import MAX_OCCURRENCES, Page, Wanted
from agent.patching.near import likely_starts
from agent.shared.secrets import MASK, mask_secrets
from agent.types import ApplyKind, Candidate, ReplaceLines, SearchReplace

# A `line` hint selects the nearest occurrence within this many lines. Models count from the header
# of an excerpt and are off by a few. A larger distance means another place.
LINE_TOLERANCE = 5

_MAX_CANDIDATES = 3

# A region less similar than this has little to do with the search text and would mislead.
_MIN_SIMILARITY = 0.5

# Number of regions compared as texts. A comparison costs the product of the lengths.
_COMPARED = 12
_COMPARED_CHARACTERS = 20_000

_SHOWN = 120  # characters of a line
_LISTED = 20  # line numbers of occurrences
_CONTEXT = 2  # lines around each of several matches
_MAX_SHOWN = 40  # lines of one match; its ends make it unique

# Lines around a region that may show that it holds a secret. A private key has fewer.
_AROUND_SECRETS = 320


@dataclass(frozen=True, slots=True)
class Miss:
    """Why an edit cannot be applied. `advice` is only for the model."""

    kind: ApplyKind
    reason: str
    candidates: tuple[Candidate, ...] = ()
    advice: str = ""


def ambiguous(page: Page, edit: SearchReplace, spans: Sequence[tuple[int, int]]) -> Miss:
    """Return the failure of an edit that matches at all `spans`."""
    listed = ", ".join(str(page.line_of(start)) for start, _ in spans[:_LISTED])
    listed += f" and {len(spans) - _LISTED} more" if len(spans) > _LISTED else ""
    times = f"{len(spans)}+ times" if len(spans) >= MAX_OCCURRENCES else f"{len(spans)} times"
    reason = f"the search text occurs {times}, at lines {listed}"
    advice = 'lengthen it by neighbouring lines until it is unique, or add "line"'
    if edit.line is not None:
        reason += (
            f'; not exactly one of them starts nearest to "line" {edit.line} '
            f"(within {LINE_TOLERANCE} lines)"
        )
    around = tuple(_surroundings(page, edit.path, *span) for span in spans[:_MAX_CANDIDATES])
    return Miss("ambiguous", reason, around, advice)


def wrong_lines(page: Page, edit: ReplaceLines, starts: Sequence[Sequence[int]]) -> Miss:
    """Return the failure of an edit of lines whose texts stand elsewhere, at the lines `starts`."""
    count = len(page.lines)
    parts = [] if edit.last <= count else [f"the file has {count} lines"]
    for name, line, found in zip(("first", "last"), (edit.first, edit.last), starts, strict=True):
        has = f"line {line} is {_quoted(_showable(page, line, line))}, " if line <= count else ""
        listed = ", ".join(map(str, found[:_LISTED])) or "no line"
        parts.append(f'{has}the text of "{name}" is at {listed}')
    advice = "give both texts as they were shown, several lines of each if one is not unique"
    return Miss("no-match", "; ".join(parts), advice=advice)


def no_match(
    page: Page, path: str, wanted: Wanted, *, left_out: str | None, broken: int | None
) -> Miss:
    """Return the failure of an edit without a match. `broken`: the offset of a lenient match with
    which the file would not parse.
    """
    if broken is not None:
        return Miss(
            "broken-syntax",
            f"the search text matches inexactly at line {page.line_of(broken)}, and with the "
            "replacement there the file no longer parses",
            _nearest(page, path, wanted),
            "copy the search text byte for byte and indent the replacement alike",
        )
    if left_out is not None:
        return Miss(
            "no-match",
            f"the replacement leaves code out ({left_out!r}), which would delete it",
            advice="write every line, or quote only the lines that change",
        )
    candidates = _nearest(page, path, wanted)
    reason = "the search text is not in the file"
    if candidates:
        reason += f"; {_what_differs(wanted.search, candidates[0])}"
    advice = ""
    if MASK in wanted.search and MASK not in page.text:
        advice = f'"{MASK}" stands for a value that is not shown: quote lines without it'
    elif any(sign in wanted.search and sign not in page.text for sign in ("...", "…", "\ufffd")):
        advice = 'quote every line as it is; "..." and U+FFFD stand for what is not shown'
    return Miss("no-match", reason, candidates, advice)


def _surroundings(page: Page, path: str, start: int, end: int) -> Candidate:
    first = page.line_of(start)
    last = first + page.text[start:end].removesuffix("\n").count("\n")
    top, bottom = max(1, first - _CONTEXT), min(len(page.lines), last + _CONTEXT)
    bottom = min(bottom, top + _MAX_SHOWN - 1)
    return Candidate(path, top, bottom, _showable(page, top, bottom), 1.0)


def _nearest(page: Page, path: str, wanted: Wanted) -> tuple[Candidate, ...]:
    lines = shown(page.text).split("\n")
    search = wanted.search.removesuffix("\n").split("\n")
    if not any(line.strip() for line in search):
        return ()
    starts = likely_starts(lines, search)[:_COMPARED]
    compared = (_candidate(page, path, lines, start, search) for start in starts)
    chosen: list[Candidate] = []
    for candidate in sorted(compared, key=lambda c: (-c.similarity, c.start)):
        apart = all(candidate.end < c.start or c.end < candidate.start for c in chosen)
        if candidate.similarity >= _MIN_SIMILARITY and apart:
            chosen.append(candidate)
    return tuple(chosen[:_MAX_CANDIDATES])


def _candidate(
    page: Page, path: str, lines: Sequence[str], start: int, search: Sequence[str]
) -> Candidate:
    end = min(len(lines), start + len(search))
    region = "\n".join(lines[start:end])
    ratio = fuzz.ratio(region[:_COMPARED_CHARACTERS], "\n".join(search)[:_COMPARED_CHARACTERS])
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
    first = max(1, start - _AROUND_SECRETS)
    text = "\n".join(page.lines[first - 1 : end + _AROUND_SECRETS])
    return shown("\n".join(mask_secrets(text).text.split("\n")[start - first : end - first + 1]))
