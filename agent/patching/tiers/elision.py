"""Search texts that leave lines out by `...`, and replacements that leave out the same ones."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.tiers.basic import Find, Place
from agent.patching.tiers.lines import Page, Wanted, indent_of, is_blank

_DOTS = r"(?:\.\.\.|\u2026)"
_SIGN = r"(?:#|//|--|;|/\*|<!--|\{/\*|%)"
_CLOSE = r"(?:\*/\}?|-->)?"
_WHAT = (
    r"(?:the )?(?:rest|remainder|remaining|existing|other|unchanged|previous|same|more)\b"
    r"[\w ,'()./-]{0,80}"
)
_ELISION = re.compile(
    rf"\s*(?:{_SIGN}\s*)?[\[(]?{_DOTS}[\])]?(?:[\w ,'()./-]{{0,80}}{_DOTS}?)?\s*{_CLOSE}\s*"
    rf"|\s*{_SIGN}\s*(?:{_DOTS}\s*)?{_WHAT}\s*{_DOTS}?\s*{_CLOSE}\s*",
    re.IGNORECASE,
)
# Comments that can mean nothing but code left out; `...` alone may be Python's own.
_SURE = re.compile(
    rf"\s*{_SIGN}\s*(?:"
    rf"{_DOTS}\s*{_WHAT}\s*{_DOTS}?|{_WHAT}\s*{_DOTS}"
    r"|(?:the )?(?:rest|remainder) of (?:the |this )?(?:\w+ )?(?:code|file|function|method|class"
    r"|body|implementation|module|logic)(?: (?:remains|stays|is|as|goes)[\w ]{0,40})?\.?"
    r"|(?:the )?existing (?:code|implementation|logic)(?: (?:here|remains|stays)[\w ]{0,40})?\.?"
    rf")\s*{_CLOSE}\s*",
    re.IGNORECASE,
)
# Without one of these in the text no line of it is of `_SURE`.
_HINT = re.compile(rf"{_DOTS}|(?:rest|remainder)\sof\s|existing\s", re.IGNORECASE)
_MAX_LINE = 200

# A reply with more is no patch; combinations of places are tried one after the other.
_MAX_SEGMENTS = 12


def is_elision(line: str) -> bool:
    """Whether a line may stand for lines left out."""
    return len(line) <= _MAX_LINE and _ELISION.fullmatch(line) is not None


def abbreviates(wanted: Wanted) -> str | None:
    """A line of the replacement that stands for lines left out and is not in the search text."""
    if not _HINT.search(wanted.replace):
        return None
    own = {line.strip() for line in wanted.old}
    for line in wanted.new:
        if len(line) <= _MAX_LINE and _SURE.fullmatch(line) and line.strip() not in own:
            return line.strip()
    return None


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of lines between two elisions, on both sides."""

    wanted: Wanted

    @property
    def changed(self) -> bool:
        return any(not step.equal for step in self.wanted.steps)


def elision(page: Page, wanted: Wanted, finds: Sequence[Find]) -> Sequence[Place]:
    """Places of search texts with `...`; `finds` are the tiers that a part may be found by.

    Both sides must leave out as many runs of lines. A part that changes must have one place, or one
    within the block that the first part opens; the lines between the parts stay.
    """
    parts = _parts(wanted)
    if parts is None:
        return []
    found: list[tuple[_Part, Place]] = []
    position = 0
    for part in parts:
        place = _next_place(page, part, position, found, finds)
        if place is None:
            return []
        found.append((part, place))
        position = place.end
    if not _anchored(page, parts[0], finds):
        return []
    return [_joined(page, found)]


def _parts(wanted: Wanted) -> list[_Part] | None:
    old, new = _split(wanted.old), _split(wanted.new)
    if len(old) != len(new) or len(old) < 2 or len(old) > _MAX_SEGMENTS:
        return None
    pairs = [_trimmed(*pair) for pair in zip(old, new, strict=True)]
    # An elision at either end only says that the file goes on there.
    while pairs and not any(pairs[0]):
        pairs.pop(0)
    while pairs and not any(pairs[-1]):
        pairs.pop()
    parts = [_Part(Wanted.of_lines(o, n)) for o, n in pairs]
    if not parts or not all(part.wanted.says_something for part in parts):
        return None
    return parts if any(part.changed for part in parts) else None


def _split(lines: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if is_elision(line):
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _trimmed(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Without the blank lines that both begin or end with: they belong to the elision."""
    while old and new and is_blank(old[0]) and is_blank(new[0]):
        old, new = old[1:], new[1:]
    while old and new and is_blank(old[-1]) and is_blank(new[-1]):
        old, new = old[:-1], new[:-1]
    return old, new


def _places(page: Page, part: _Part, finds: Sequence[Find]) -> Sequence[Place]:
    for find in finds:
        places = find(page, part.wanted)
        if places:
            return places
    return []


def _anchored(page: Page, first: _Part, finds: Sequence[Find]) -> bool:
    return len(_places(page, first, finds)) == 1


def _next_place(
    page: Page,
    part: _Part,
    position: int,
    before: Sequence[tuple[_Part, Place]],
    finds: Sequence[Find],
) -> Place | None:
    places = [place for place in _places(page, part, finds) if place.start >= position]
    if len(places) <= 1 or not before:
        return places[0] if len(places) == 1 else None
    limit = _block_end(page, before[0][1])
    inside = [place for place in places if place.end <= limit]
    if len(inside) == 1:
        return inside[0]
    return None


def _block_end(page: Page, place: Place) -> int:
    """Where the block ends that the first line of a place opens: at a line indented no deeper."""
    first = page.text.count("\n", 0, place.start)
    inside = place.end
    depth = len(indent_of(page.lines[first]).expandtabs())
    for index in range(first + 1, len(page.lines)):
        line = page.lines[index]
        if page.starts[index] < inside or is_blank(line):
            continue
        if len(indent_of(line).expandtabs()) <= depth and not _closes(line):
            return page.starts[index]
    return len(page.text)


def _closes(line: str) -> bool:
    """A closing bracket ends a block and belongs to it."""
    return line.strip()[0] in ")]}"


def _joined(page: Page, found: Sequence[tuple[_Part, Place]]) -> Place:
    start, end = found[0][1].start, found[-1][1].end

    def make() -> str | None:
        pieces: list[str] = []
        position = start
        for part, place in found:
            pieces.append(page.text[position : place.start])
            text = place.make() if part.changed else page.text[place.start : place.end]
            if text is None:
                return None
            pieces.append(text)
            position = place.end
        return "".join(pieces)

    return Place(start, end, make)


def bound(finds: Sequence[Find]) -> Find:
    """The tier, with the tiers that its parts may be found by."""
    return functools.partial(elision, finds=finds)
