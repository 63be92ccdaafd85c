"""Reads sloppy diffs and blocks as a careful person would, independently of the code under test.

It shares nothing with `agent.patching`: one rule, no tiers. The lines that a hunk shows as old,
without blank lines and white space, must stand together at exactly one place of the file. Anything
less clear is left undecided, to be read by a person.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_HEADER = re.compile(
    r"^(?:diff --git|index [0-9a-f]+\.\.|--- |\+\+\+ |new file|similarity|rename )"
)
_BLOCK = re.compile(
    r"^<{5,9} ?SEARCH[^\n]*\n(?P<old>.*?)^={5,9}[ \t]*\n(?P<new>.*?)^>{5,9} ?REPLACE",
    re.MULTILINE | re.DOTALL,
)

Marked = tuple[str, str]  # sign (" ", "-", "+") and text


@dataclass(frozen=True, slots=True)
class Reading:
    """The file as the hunks mean it to be; `text` is None where that is not clear."""

    text: str | None
    why: str = ""


def read_diff(diff: str) -> list[list[Marked]]:
    """The hunks of a diff whose numbers are not believed; everything outside hunks is dropped."""
    hunks: list[list[Marked]] = []
    inside = False
    for line in diff.split("\n"):
        if line.startswith("@@"):
            hunks.append([])
            inside = True
        elif _HEADER.match(line) or line.startswith("```"):
            inside = False
        elif inside and not line.startswith("\\"):
            sign = line[:1] if line[:1] in ("+", "-", " ") else " "
            hunks[-1].append((sign, line[1:] if line[:1] == sign else line))
    return [hunk for hunk in hunks if hunk]


def read_blocks(reply: str) -> list[tuple[str, str]]:
    """Search and replace texts of well-formed blocks, in order."""
    return [(m["old"], m["new"]) for m in _BLOCK.finditer(reply)]


def intended(text: str, hunks: Sequence[Sequence[Marked]]) -> Reading:
    """The file after all hunks, each seeing the ones before; undecided if one has not one place."""
    if not hunks:
        return Reading(None, "no hunk")
    for number, hunk in enumerate(hunks, start=1):
        places = _places(text.split("\n"), hunk)
        if len(places) != 1:
            if _changes_nothing(hunk):
                continue
            return Reading(None, f"hunk {number} has {len(places)} places")
        text = _edited(text.split("\n"), hunk, places[0])
    return Reading(text)


def _changes_nothing(hunk: Sequence[Marked]) -> bool:
    """Models repeat lines as removed and added: wherever that is, nothing is lost without it."""
    old = [line.rstrip() for sign, line in hunk if sign != "+"]
    return old == [line.rstrip() for sign, line in hunk if sign != "-"]


def _key(line: str) -> str:
    return "".join(line.split())


def _places(lines: Sequence[str], hunk: Sequence[Marked]) -> list[list[int]]:
    """The line numbers (0-based) of the hunk's old non-blank lines, for each place."""
    kept = [index for index, line in enumerate(lines) if line.strip()]
    keys = [_key(lines[index]) for index in kept]
    wanted = [_key(line) for sign, line in hunk if sign != "+" and line.strip()]
    if not wanted:
        return []
    size = len(wanted)
    return [
        kept[at : at + size]
        for at in range(len(keys) - size + 1)
        if keys[at] == wanted[0] and keys[at : at + size] == wanted
    ]


def _edited(lines: Sequence[str], hunk: Sequence[Marked], place: Sequence[int]) -> str:
    removed: set[int] = set()
    added: dict[int, list[str]] = {}
    position = place[0] - 1  # new lines go after this one
    old = iter(place)
    for sign, line in hunk:
        if sign == "+":
            added.setdefault(position, []).append(line)
        elif line.strip():
            position = next(old)
            if sign == "-":
                removed.add(position)
    result = list(added.get(-1, ()))
    for index, line in enumerate(lines):
        if index not in removed:
            result.append(line)
        result.extend(added.get(index, ()))
    return "\n".join(result)
