"""Failure values that say why an edit does not match, so that one repair call can fix it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rapidfuzz import fuzz, process

from agent.patching.file_text import shown
from agent.patching.tiers.basic import Occurrence, already_applied
from agent.patching.tiers.hints import LINE_TOLERANCE, line_of
from agent.patching.tiers.lines import MAX_OCCURRENCES, Page, Wanted
from agent.shared.secrets import MASK, mask_secrets
from agent.types import ApplyKind, Candidate, MatchTier, SearchReplace

MAX_CANDIDATES = 3

# A region less similar than this has little to do with the search text and would mislead.
MIN_SIMILARITY = 0.5

# A line that occurs more often than this ("return None", blank) says nothing about the place.
_RARE = 50

# Number of regions compared as texts. A comparison costs the product of the lengths.
_COMPARED = 12
_COMPARED_CHARACTERS = 20_000

# Lines of the search text that are looked up by similarity when none occurs in the file.
_FUZZY_LINES = 4
_FUZZY_CUTOFF = 60.0
_FUZZY_CHARACTERS = 400

_SHOWN = 120
_ELLIPSIS = re.compile(r"\s*(?:#|//)?\s*(?:\.\.\.|…).{0,40}")


def nearest_regions(path: str, text: str, search: str) -> tuple[Candidate, ...]:
    """Return at most three regions of `text` like `search`, most similar first, not overlapping."""
    lines = text.split("\n")
    wanted = search.removesuffix("\n").split("\n")
    if not any(line.strip() for line in wanted):
        return ()
    starts = likely_starts(lines, wanted)[:_COMPARED]
    if len(starts) < MAX_CANDIDATES:
        starts.extend(start for start, _ in _fuzzy_votes(lines, wanted) if 0 <= start < len(lines))
    compared = (_candidate(path, lines, start, wanted) for start in dict.fromkeys(starts))
    chosen: list[Candidate] = []
    for candidate in sorted(compared, key=lambda c: (-c.similarity, c.start)):
        apart = all(candidate.end < c.start or c.end < candidate.start for c in chosen)
        if candidate.similarity >= MIN_SIMILARITY and apart:
            chosen.append(candidate)
    return tuple(chosen[:MAX_CANDIDATES])


def what_differs(search: str, candidate: Candidate) -> str:
    """Describe the first line in which the search text and a region differ."""
    wanted = search.removesuffix("\n").split("\n")
    have = candidate.text.split("\n")
    for number, line in enumerate(wanted):
        found = have[number] if number < len(have) else None
        if line != found:
            return _difference(number + 1, line, candidate.start + number, found)
    return f"closest are lines {candidate.start}-{candidate.end}"


def elided(search: str, text: str) -> bool:
    """Whether the search text has a line with `...` that the file lacks."""
    lines = (line for line in search.split("\n") if _ELLIPSIS.fullmatch(line))
    return any(line.strip() not in text for line in lines)


def _difference(number: int, line: str, place: int, found: str | None) -> str:
    if found is None:
        return f"the file ends before line {number} of the search text, {_quoted(line)}"
    what = f"line {number} of the search text: expected {_quoted(line)}"
    has = f"file has {_quoted(found)} at line {place}"
    if line.split() == found.split():
        return f"{what}, {has} (only white space differs)"
    return f"{what}, {has}"


def _quoted(line: str) -> str:
    cut = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
    return json.dumps(cut, ensure_ascii=False).encode(errors="replace").decode()


def _candidate(path: str, lines: Sequence[str], start: int, wanted: Sequence[str]) -> Candidate:
    region = "\n".join(lines[start : start + len(wanted)])
    ratio = fuzz.ratio(region[:_COMPARED_CHARACTERS], "\n".join(wanted)[:_COMPARED_CHARACTERS])
    end = min(len(lines), start + len(wanted))
    return Candidate(path, start + 1, end, region, round(ratio / 100, 3))


def likely_starts(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return line indices at which a region like `wanted` may begin, most votes first."""
    votes: Counter[int] = Counter()
    for start, weight in _votes(lines, wanted):
        votes[min(max(start, 0), len(lines) - 1)] += weight
    if not votes:
        votes.update(dict(_fuzzy_votes(lines, wanted)))
    return sorted(votes, key=lambda start: (-votes[start], start))


def _votes(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    keys = {"".join(line.split()) for line in wanted} - {""}
    for index, line in enumerate(lines):
        key = "".join(line.split())
        if key in keys:
            places[key].append(index)
    for number, line in enumerate(wanted):
        found = places.get("".join(line.split()), [])
        if 0 < len(found) <= _RARE:
            for index in found:
                yield index - number, 1 + _RARE // len(found)


def _fuzzy_votes(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
    numbered = [(line.strip()[:_FUZZY_CHARACTERS], number) for number, line in enumerate(wanted)]
    longest = sorted(numbered, key=lambda pair: (-len(pair[0]), pair[1]))[:_FUZZY_LINES]
    choices = [line.strip()[:_FUZZY_CHARACTERS] for line in lines]
    for line, number in longest:
        hits = process.extract(
            line, choices, scorer=fuzz.ratio, limit=_COMPARED, score_cutoff=_FUZZY_CUTOFF
        )
        for _, score, index in sorted(hits, key=lambda hit: (-hit[1], hit[2])):
            yield index - number, int(score)


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
    """Why an edit cannot be applied. `advice` is only for the model."""

    kind: ApplyKind
    reason: str
    candidates: tuple[Candidate, ...] = ()
    advice: str = ""


def ambiguous(
    page: Page, edit: SearchReplace, places: Sequence[Occurrence], tier: MatchTier
) -> Miss:
    """Return the failure of an edit with several matches."""
    lines = [line_of(page, place.start) for place in places[:_LISTED]]
    more = len(places) - len(lines)
    listed = ", ".join(map(str, lines)) + (f" and {more} more" if more else "")
    times = f"{len(places)} times" if len(places) < MAX_OCCURRENCES else f"{len(places)}+ times"
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
    around = tuple(_surroundings(page, edit.path, place) for place in places[:MAX_CANDIDATES])
    return Miss("ambiguous", reason, around, advice)


def splits_word(page: Page, edit: SearchReplace, place: Occurrence) -> Miss | None:
    """Refuse one line that occurs only inside a longer word (`x = 1` in `max = 1`)."""
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
        f"the search text occurs only inside a longer word, at line {line}",
        (_surroundings(page, edit.path, place),),
        "quote whole lines",
    )


def no_match(
    page: Page,
    path: str,
    wanted: Wanted,
    *,
    left_out: str | None,
    broken: tuple[MatchTier, int] | None,
) -> Miss:
    """Return the failure of an edit without a match.

    `broken`: the tier and offset of a match with which the file would not parse.
    """
    if broken is not None:
        tier, offset = broken
        line = line_of(page, offset)
        return Miss(
            "broken-syntax",
            f"the search text matches at line {line} only if {_LIBERTY[tier]} may differ, and with "
            "the replacement there the file no longer parses",
            _nearest(page, path, wanted),
            "copy the search text byte for byte and indent the replacement alike",
        )
    if left_out is not None:
        return Miss(
            "no-match",
            f"the replacement leaves code out ({left_out!r}), which would delete it",
            advice="write every line, or quote only the lines that change",
        )
    applied = already_applied(page, wanted)
    if applied is not None:
        line = line_of(page, applied)
        reason = f"the replacement is in the file already, at line {line}"
        return Miss("no-change", reason, advice="the edit seems to be applied; leave it out")
    candidates = _nearest(page, path, wanted)
    reason = "the search text is not in the file"
    if candidates:
        reason += f"; {what_differs(wanted.search, candidates[0])}"
    return Miss("no-match", reason, candidates, _how_to_quote(wanted.search, page.text))


def _how_to_quote(search: str, text: str) -> str:
    advice = []
    if MASK in search and MASK not in text:
        advice.append(f'"{MASK}" stands for a value that is not shown: quote lines without it')
    if elided(search, text):
        advice.append('do not abbreviate with "...", quote every line')
    if "\ufffd" in search:
        advice.append("U+FFFD stands for bytes that are not text: quote lines without it")
    return "; ".join(advice)


def _surroundings(page: Page, path: str, place: Occurrence) -> Candidate:
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
    """Return the lines from `start` to `end` with secrets masked, judged with their neighbours."""
    first = max(1, start - _AROUND_SECRETS)
    text = "\n".join(page.lines[first - 1 : end + _AROUND_SECRETS])
    return shown("\n".join(mask_secrets(text).text.split("\n")[start - first : end - first + 1]))
