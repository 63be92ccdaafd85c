"""Small repairs of a reply without another call. Each has a name and can be switched off.

A repair is made only where the reply would certainly fail or be wrong, and where its own words
leave one way to correct it. The repair and the failure that it prevented are reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from agent.errors import ConfigurationError
from agent.patching.tiers.basic import Occurrence
from agent.patching.tiers.lines import Page, Wanted, indent_of, is_blank
from agent.types import MatchTier, Repair

REPAIRS: Mapping[str, str] = MappingProxyType(
    {
        "path": "a path that names one file in another spelling, or a file that has moved",
        "indentation": "a replacement indented otherwise than the text that it replaces",
        "final-newline": "a replacement without the line feed that its search text ends with",
        "missing-import": "an import that the reply speaks of and its new code needs",
        "unclosed-fence": "a code fence that is not closed",
    }
)
"""Name and description of each repair. The parser of replies makes `unclosed-fence`."""

_TIERS = frozenset(tier.value for tier in MatchTier) - {
    "exact",
    "symbol",
    "created",
    "deleted",
    "renamed",
    "already-applied",
}


def switched_off(names: Collection[str]) -> frozenset[str]:
    """Return the names of repairs and lenient tiers; `all` stands for every one.

    Raises ConfigurationError for an unknown name.
    """
    known = {*REPAIRS, *_TIERS}
    unknown = sorted(set(names) - known - {"all"})
    if unknown:
        raise ConfigurationError(
            f"--no-repair {unknown[0]}: no such repair or tier; known are all, "
            f"{', '.join(sorted(known))}"
        )
    return frozenset(known) if "all" in names else frozenset(names)


# ------------------------------------------------------------------------ repairs of an exact match

# Lines that mostly stand at the left margin of a module.
_OUTERMOST = re.compile(r"(?:async def|def|class|@|if __name__|from|import)\b")


def mend_exact(
    page: Page,
    wanted: Wanted,
    place: Occurrence,
    literal: str,
    intact: Callable[[str], bool],
    off: Collection[str],
) -> tuple[str, tuple[Repair, ...]]:
    """Return the replacement for an exact match, with slips repaired that its surroundings show."""
    text, repairs = literal, []
    if "final-newline" not in off and _joins_lines(page, wanted, place):
        text += "\n"
        note = "the replacement's last line would have run into the next one"
        repairs.append(Repair("final-newline", note, "broken-syntax"))
    if "indentation" not in off:
        mended = _indented(page, wanted, place, text, intact)
        if mended is not None:
            text = mended
            note = "the replacement was indented as the text that it replaces"
            repairs.append(Repair("indentation", note, "broken-syntax"))
    return text, tuple(repairs)


def _joins_lines(page: Page, wanted: Wanted, place: Occurrence) -> bool:
    """Whether the line feed between the replacement and the next line is missing."""
    return (
        wanted.search.endswith("\n")
        and bool(wanted.replace)
        and not wanted.replace.endswith("\n")
        and place.end < len(page.text)
    )


def _indented(
    page: Page, wanted: Wanted, place: Occurrence, text: str, intact: Callable[[str], bool]
) -> str | None:
    margin = _margin(page, place)
    if margin and len(wanted.old) == 1 and _hangs(wanted, margin):
        # The search text is one line without its indentation, and so are all new ones.
        return _shifted(text, lambda line: margin + line, first=False)
    ways = [way for way in _ways(wanted, text, margin) if way != text]
    if not ways or intact(text):
        return None  # in nearly all cases there is no other way, and nothing is parsed
    return next((way for way in ways if intact(way)), None)


def _margin(page: Page, place: Occurrence) -> str:
    """Return the indentation before the match, "" if other text stands there."""
    line = page.text[page.text.rfind("\n", 0, place.start) + 1 : place.start]
    return line if line and is_blank(line) else ""


def _hangs(wanted: Wanted, margin: str) -> bool:
    """Whether the new lines after the first are indented relative to the search text."""
    depth = indent_of(wanted.old[0])
    rest = [line for line in wanted.new[1:] if not is_blank(line)]
    if not rest or indent_of(wanted.new[0]) != depth:
        return False
    if any(_OUTERMOST.match(line) for line in rest):
        return False  # may be meant for the margin
    return all(indent_of(line).startswith(depth) for line in rest) and not all(
        indent_of(line).startswith(margin + depth) for line in rest
    )


def _ways(wanted: Wanted, text: str, margin: str) -> Iterator[str]:
    """Return the replacement indented like the first or least indented line of the search text."""
    old = [indent_of(line) for line in wanted.old if not is_blank(line)]
    new = [indent_of(line) for line in text.split("\n") if not is_blank(line)]
    if not old or not new:
        return
    pairs = [(new[0], old[0]), (min(new, key=len), min(old, key=len)), (new[0], margin + old[0])]
    for have, want in dict.fromkeys(pairs):
        if have != want and all(indent.startswith(have) for indent in new):
            yield _shifted(text, lambda line, h=have, w=want: w + line[len(h) :])  # type: ignore[misc]
    if margin and len(new) > 1 and new[0] == margin + old[0]:
        # The first line brings the indentation that already stands before the match.
        yield text[len(margin) :]


def _shifted(text: str, move: Callable[[str], str], *, first: bool = True) -> str:
    lines = text.split("\n")
    start = 0 if first else 1
    return "\n".join(
        line if index < start or is_blank(line) else move(line) for index, line in enumerate(lines)
    )
