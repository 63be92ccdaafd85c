"""Where in a file an edit belongs. Tiers are tried in order; a stricter one that finds several
places ends the search, since a more lenient one could only find more.

A tier is a function from text and edit to matches; a more lenient tier is one more entry of `TIERS`
(with a `MatchTier` of its own), and adapts the replacement to what it matched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.patching.filetext import FileText, plain, shown
from agent.patching.nearest import MAX_CANDIDATES, elided, nearest_regions, what_differs
from agent.types import ApplyKind, Candidate, MatchTier, SearchReplace

# A `line` hint selects the occurrence that starts nearest, if within this many lines: models count
# from the header of the excerpt and are off by a few; beyond that the hint means another place.
LINE_TOLERANCE = 5

# Occurrences that are looked for; more are all the same reason to refuse.
MAX_OCCURRENCES = 1000

# Line numbers listed in a reason, and lines shown around an ambiguous place so that the model can
# lengthen its search text.
_LISTED = 20
_CONTEXT = 2


@dataclass(frozen=True, slots=True)
class Match:
    """Replace `text[start:end]` by `replacement`."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Located:
    """The one place of an edit and the tier that found it."""

    tier: MatchTier
    match: Match


@dataclass(frozen=True, slots=True)
class Miss:
    """Why an edit has no place of its own."""

    kind: ApplyKind
    reason: str
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Tier:
    """One way to find places. `find` gives all of them (at most MAX_OCCURRENCES), in order."""

    name: MatchTier
    find: Callable[[str, str, str], Sequence[Match]]


def find_exact(text: str, search: str, replacement: str) -> Sequence[Match]:
    """All occurrences, overlapping ones too.

    A search text that ends with a line feed also matches a last line that has none: the model
    cannot see the difference. The file is then left without a final line feed.
    """
    haystack = text
    if search.endswith("\n") and not text.endswith("\n"):
        haystack = text + "\n"
    matches: list[Match] = []
    start = haystack.find(search)
    while start >= 0 and len(matches) < MAX_OCCURRENCES:
        end = start + len(search)
        past_end = end > len(text)
        new = replacement.removesuffix("\n") if past_end else replacement
        matches.append(Match(start, min(end, len(text)), new))
        start = haystack.find(search, start + 1)
    return matches


TIERS: Sequence[Tier] = (Tier(MatchTier.EXACT, find_exact),)


def locate(file: FileText, edit: SearchReplace) -> Located | Miss:
    """Find the one place that an edit means. `file` must be the state that the edit sees."""
    search, replacement = plain(edit.search), plain(edit.replace)
    if search == replacement:
        return Miss("no-change", "search and replace are the same text (apart from line ends)")
    if not search and file.text:
        return Miss(
            "no-match", "the search text is empty, but the file is not: quote the text to replace"
        )
    for tier in TIERS:
        matches = tier.find(file.text, search, replacement)
        if matches:
            chosen = _unique(file, matches, edit.line)
            return Located(tier.name, chosen) if chosen else _ambiguous(file, edit, matches)
    return _no_match(file, edit.path, search, replacement)


def _unique(file: FileText, matches: Sequence[Match], hint: int | None) -> Match | None:
    if len(matches) == 1:
        return matches[0]
    if hint is None or len(matches) == MAX_OCCURRENCES:
        return None
    ranked = sorted((abs(file.line_at(m.start) - hint), m.start, m) for m in matches)
    (nearest, _, chosen), (runner_up, _, _) = ranked[:2]
    return chosen if nearest <= LINE_TOLERANCE and nearest < runner_up else None


def _ambiguous(file: FileText, edit: SearchReplace, matches: Sequence[Match]) -> Miss:
    lines = [file.line_at(match.start) for match in matches[:_LISTED]]
    more = len(matches) - len(lines)
    places = ", ".join(map(str, lines)) + (f" and {more} more" if more else "")
    times = f"{len(matches)} times" if len(matches) < MAX_OCCURRENCES else f"{len(matches)}+ times"
    reason = f"the search text occurs {times}, at lines {places}"
    if edit.line is None:
        reason += '; lengthen it by neighbouring lines until it is unique, or add "line"'
    else:
        reason += (
            f'; not exactly one of them starts nearest to "line" {edit.line} '
            f"(within {LINE_TOLERANCE} lines)"
        )
    places_shown = tuple(
        _surroundings(file, edit.path, match) for match in matches[:MAX_CANDIDATES]
    )
    return Miss("ambiguous", reason, places_shown)


def _surroundings(file: FileText, path: str, match: Match) -> Candidate:
    lines = file.text.split("\n")
    first = file.line_at(match.start)
    last = first + file.text[match.start : match.end].removesuffix("\n").count("\n")
    start, end = max(1, first - _CONTEXT), min(len(lines), last + _CONTEXT)
    return Candidate(path, start, end, shown("\n".join(lines[start - 1 : end])), 1.0)


def _no_match(file: FileText, path: str, search: str, replacement: str) -> Miss:
    applied = find_exact(file.text, replacement, "") if replacement.strip() else ()
    if len(applied) == 1:
        line = file.line_at(applied[0].start)
        return Miss(
            "no-match",
            f"the search text is not in the file, but the replacement already is, at line {line}: "
            "the edit seems to be applied; leave it out",
        )
    candidates = nearest_regions(path, shown(file.text), search)
    reason = "the search text is not in the file"
    if candidates:
        reason += f"; {what_differs(search, candidates[0])}"
    if elided(search, file.text):
        reason += '; do not abbreviate with "...", quote every line'
    if "\ufffd" in search:
        reason += "; U+FFFD stands for bytes that are no text: quote lines without it"
    return Miss("no-match", reason, candidates)
