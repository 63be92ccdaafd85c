"""Texts that leave lines out by `...`: search texts with their replacements, and whole files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.tiers.basic import Find, Occurrence
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
# Comments that can only stand for omitted code; `...` alone may be Python syntax.
_SURE = re.compile(
    rf"\s*{_SIGN}\s*(?:"
    rf"{_DOTS}\s*{_WHAT}\s*{_DOTS}?|{_WHAT}\s*{_DOTS}"
    r"|(?:the )?(?:rest|remainder) of (?:the |this )?(?:\w+ )?(?:code|file|function|method|class"
    r"|body|implementation|module|logic)(?: (?:remains|stays|is|as|goes)[\w ]{0,40})?\.?"
    r"|(?:the )?existing (?:code|implementation|logic)(?: (?:here|remains|stays)[\w ]{0,40})?\.?"
    rf")\s*{_CLOSE}\s*",
    re.IGNORECASE,
)
# A text without one of these has no line that matches `_SURE`.
_HINT = re.compile(rf"{_DOTS}|(?:rest|remainder)\sof\s|existing\s", re.IGNORECASE)
_MAX_LINE = 200

# Number of parts between elisions.
_MAX_SEGMENTS = 12


def is_elision(line: str) -> bool:
    """Whether a line may stand for omitted lines."""
    return len(line) <= _MAX_LINE and _ELISION.fullmatch(line) is not None


def abbreviates(wanted: Wanted) -> str | None:
    """Return a line of the replacement, not in the search text, that stands for omitted lines."""
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


def elision(page: Page, wanted: Wanted, finds: Sequence[Find]) -> Sequence[Occurrence]:
    """Match search texts with `...`; `finds` are the tiers that may match a part.

    Both sides must omit the same number of runs of lines. A part that changes must have one
    occurrence, or one within the block that the first part opens. Lines between the parts stay.
    """
    parts = _parts(wanted)
    if parts is None:
        return []
    found: list[tuple[_Part, Occurrence]] = []
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
    # An elision at either end only means that the file goes on there.
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
    """Drop the blank lines that both sides begin or end with: they belong to the elision."""
    while old and new and is_blank(old[0]) and is_blank(new[0]):
        old, new = old[1:], new[1:]
    while old and new and is_blank(old[-1]) and is_blank(new[-1]):
        old, new = old[:-1], new[:-1]
    return old, new


def _places(page: Page, part: _Part, finds: Sequence[Find]) -> Sequence[Occurrence]:
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
    before: Sequence[tuple[_Part, Occurrence]],
    finds: Sequence[Find],
) -> Occurrence | None:
    places = [place for place in _places(page, part, finds) if place.start >= position]
    if len(places) <= 1 or not before:
        return places[0] if len(places) == 1 else None
    limit = _block_end(page, before[0][1])
    inside = [place for place in places if place.end <= limit]
    if len(inside) == 1:
        return inside[0]
    return None


def _block_end(page: Page, place: Occurrence) -> int:
    """Return the end of the block that the first line opens: a line that is indented no deeper."""
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


def _joined(page: Page, found: Sequence[tuple[_Part, Occurrence]]) -> Occurrence:
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

    return Occurrence(start, end, make)


# -------------------------------------------------------------------------------------- whole files

# A whole file must have at least this share of the non-blank lines of the old one. A shorter one is
# an excerpt, and writing it would delete the rest.
_MIN_SIZE = 0.5
# A version of a file must keep this share of its lines, unless the file is small.
_MIN_KEPT = 0.2
_SMALL = 10


def not_whole(old: str, new: str) -> str | None:
    """Return why `new` is refused as the whole new text of a file with the text `old`, or None."""
    before, after = _lines(old), _lines(new)
    size, kept = before.total(), (before & after).total()
    gap = _gap(new, before)
    if gap is not None:
        return (
            f"the reply's whole file leaves lines out ({gap!r}): that would delete them; write "
            "every line, or give search and replace texts for what changes"
        )
    if size <= _SMALL:
        return None
    if after.total() < size * _MIN_SIZE:
        return (
            f"the reply shows {after.total()} lines as the whole file, which has {size}: that "
            "would delete the rest; give search and replace texts for what changes"
        )
    if kept < size * _MIN_KEPT:
        return (
            f"the reply's whole file keeps {kept} of the file's {size} lines: it seems to be "
            "another file; give search and replace texts for what changes"
        )
    return None


def _gap(new: str, before: Counter[str]) -> str | None:
    """Return a line that stands for others and is no body of a definition (`def f(self): ...`)."""
    last = ""
    for line in new.split("\n"):
        stripped = line.strip()
        if is_elision(line) and stripped not in before and not last.endswith(":"):
            return stripped
        last = stripped or last
    return None


def is_version_of(old: str, new: str) -> bool:
    """Whether `new` has at least half of the lines of `old`."""
    before, after = _lines(old), _lines(new)
    return 2 * (before & after).total() >= before.total() > 0


def _lines(text: str) -> Counter[str]:
    return Counter(line.strip() for line in text.split("\n") if line.strip())
