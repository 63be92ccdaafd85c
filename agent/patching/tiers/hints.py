"""Decides between several occurrences of one search text by what the reply and the prompt say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.tiers.basic import Occurrence
from agent.patching.tiers.lines import MAX_OCCURRENCES, Page, indent_of, is_blank

# A `line` hint selects the nearest occurrence within this many lines. Models count from the header
# of an excerpt and are off by a few. A larger distance means another place.
LINE_TOLERANCE = 5

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Hints:
    """What may decide. `line` is 1-based, in the present text.

    `within`: enclosing lines, outermost first. `shown`: inclusive line ranges that the model saw,
    empty if unknown.
    """

    line: int | None = None
    within: str = ""
    shown: Ranges = ()


def choose(page: Page, places: Sequence[Occurrence], hints: Hints) -> Occurrence | None:
    """Return the only occurrence, or the only one that a hint selects; None if ambiguous."""
    if len(places) == 1:
        return places[0]
    if len(places) >= MAX_OCCURRENCES:
        return None
    inside = _inside(page, places, hints.within)
    if len(inside) == 1:
        return inside[0]
    left = inside or places
    return _nearest(page, left, hints.line) or _only_shown(page, left, hints.shown)


def line_of(page: Page, offset: int) -> int:
    """Return the 1-based line of an offset."""
    return page.text.count("\n", 0, offset) + 1


def _nearest(page: Page, places: Sequence[Occurrence], hint: int | None) -> Occurrence | None:
    if hint is None:
        return None
    ranked = sorted(
        (abs(line_of(page, place.start) - hint), place.start, index)
        for index, place in enumerate(places)
    )
    (nearest, _, chosen), (runner_up, _, _) = ranked[:2]
    return places[chosen] if nearest <= LINE_TOLERANCE and nearest < runner_up else None


def _only_shown(page: Page, places: Sequence[Occurrence], shown: Ranges) -> Occurrence | None:
    """Return the one occurrence whose lines the model has all seen: it cannot quote another."""
    seen = []
    for place in places:
        first, last = line_of(page, place.start), line_of(page, max(place.start, place.end - 1))
        if any(start <= first and last <= end for start, end in shown):
            seen.append(place)
    return seen[0] if len(seen) == 1 else None


def _inside(page: Page, places: Sequence[Occurrence], within: str) -> Sequence[Occurrence]:
    """Return the occurrences inside the named lines, or else those after the innermost one."""
    headers = [line.strip() for line in within.split("\n") if not is_blank(line)]
    if not headers:
        return []
    inside = [place for place in places if _is_inside(page, place, headers)]
    if inside:
        return inside
    at = [index for index, line in enumerate(page.lines) if _is_header(line, headers[-1])]
    if len(at) != 1:
        return []
    return [place for place in places if place.start >= page.starts[at[0]]]


def _is_inside(page: Page, place: Occurrence, headers: Sequence[str]) -> bool:
    """Whether the headers, outermost first, are among the lines that enclose the occurrence."""
    pending = list(headers)
    for line in _enclosing(page, place):
        if pending and _is_header(line, pending[-1]):
            pending.pop()
    return not pending


def _enclosing(page: Page, place: Occurrence) -> Sequence[str]:
    """Return the first line and the ever less indented lines above it, innermost first."""
    index = line_of(page, place.start) - 1
    while index < len(page.lines) - 1 and is_blank(page.lines[index]):
        index += 1
    if index >= len(page.lines):
        return []
    found = [page.lines[index]]
    depth = _depth(found[0])
    for line in reversed(page.lines[:index]):
        if depth == 0:
            break
        if not is_blank(line) and _depth(line) < depth:
            depth = _depth(line)
            found.append(line)
    return found


def _depth(line: str) -> int:
    return len(indent_of(line).expandtabs())


def _is_header(line: str, wanted: str) -> bool:
    """Whether a line begins like a header, which may be cut off or lack the rest of a signature."""
    return line.strip().startswith(wanted)
