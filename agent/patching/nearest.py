"""What a search text that does not match may have meant: the closest regions, and what differs.

Votes instead of comparing everywhere: each line of the search text that stands somewhere in the
file votes for the region that would begin there; rare lines count more. Only the few regions with
most votes are compared as texts, so that a file of 100,000 lines takes a fraction of a second.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rapidfuzz import fuzz, process

from agent.types import Candidate

MAX_CANDIDATES = 3

# Below this a region has little to do with the search text; showing it would mislead.
MIN_SIMILARITY = 0.5

# A line that stands at more places than this ("return None", blank) tells nothing about the place.
_RARE = 50

# Regions compared as texts; the comparison costs the product of their lengths.
_COMPARED = 12
_COMPARED_CHARACTERS = 20_000

# Lines of the search text looked up by similarity when none stands in the file as it is.
_FUZZY_LINES = 4
_FUZZY_CUTOFF = 60.0
_FUZZY_CHARACTERS = 400

_SHOWN = 120
_ELLIPSIS = re.compile(r"\s*(?:#|//)?\s*(?:\.\.\.|…).{0,40}")


def nearest_regions(path: str, text: str, search: str) -> tuple[Candidate, ...]:
    """At most three regions of `text` like `search`, most similar first, none overlapping."""
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
    """The first line in which the search text and a region differ, in words for a model."""
    wanted = search.removesuffix("\n").split("\n")
    have = candidate.text.split("\n")
    for number, line in enumerate(wanted):
        found = have[number] if number < len(have) else None
        if line != found:
            return _difference(number + 1, line, candidate.start + number, found)
    return f"closest are lines {candidate.start}-{candidate.end}"


def elided(search: str, text: str) -> bool:
    """Whether the search text abbreviates with `...` on a line that the file does not have."""
    lines = (line for line in search.split("\n") if _ELLIPSIS.fullmatch(line))
    return any(line.strip() not in text for line in lines)


def _difference(number: int, line: str, place: int, found: str | None) -> str:
    if found is None:
        return f"the file ends before line {number} of your search text, {_quoted(line)}"
    what = f"line {number} of your search text: expected {_quoted(line)}"
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
    """Line indices at which a region like `wanted` may begin, most votes first."""
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
