"""Decides between several places of one search text, where the reply or the prompt says enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.tiers.basic import Place
from agent.patching.tiers.lines import MAX_OCCURRENCES, Page, indent_of, is_blank

# A `line` hint selects the occurrence that starts nearest, if within this many lines: models count
# from the header of the excerpt and are off by a few; beyond that the hint means another place.
LINE_TOLERANCE = 5

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Hints:
    """What may decide. `line` is 1-based, in the text at hand.

    `within`: enclosing lines, outermost first. `shown`: inclusive line ranges that the model saw,
    empty where that is not known.
    """

    line: int | None = None
    within: str = ""
    shown: Ranges = ()


def choose(page: Page, places: Sequence[Place], hints: Hints) -> Place | None:
    """The only place; or of several the only one that a hint points at. None: ambiguous."""
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
    """The 1-based line of a character."""
    return page.text.count("\n", 0, offset) + 1


def _nearest(page: Page, places: Sequence[Place], hint: int | None) -> Place | None:
    if hint is None:
        return None
    ranked = sorted(
        (abs(line_of(page, place.start) - hint), place.start, index)
        for index, place in enumerate(places)
    )
    (nearest, _, chosen), (runner_up, _, _) = ranked[:2]
    return places[chosen] if nearest <= LINE_TOLERANCE and nearest < runner_up else None


def _only_shown(page: Page, places: Sequence[Place], shown: Ranges) -> Place | None:
    """The one place whose lines the model has all seen: it cannot have quoted another."""
    seen = []
    for place in places:
        first, last = line_of(page, place.start), line_of(page, max(place.start, place.end - 1))
        if any(start <= first and last <= end for start, end in shown):
            seen.append(place)
    return seen[0] if len(seen) == 1 else None


def _inside(page: Page, places: Sequence[Place], within: str) -> Sequence[Place]:
    """The places whose enclosing lines include those named; failing that, those that come after."""
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


def _is_inside(page: Page, place: Place, headers: Sequence[str]) -> bool:
    """Whether the headers stand, outermost first, among the lines that enclose the place."""
    pending = list(headers)
    for line in _enclosing(page, place):
        if pending and _is_header(line, pending[-1]):
            pending.pop()
    return not pending


def _enclosing(page: Page, place: Place) -> Sequence[str]:
    """The place's first line, and those above it that are indented ever less, innermost first."""
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
    """Hunk headings are cut off, and anchors often leave the rest of a signature out."""
    return line.strip().startswith(wanted)
