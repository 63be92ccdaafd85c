"""Merges a change into a line that was quoted wrongly: three ways, token by token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from agent.patching.tiers.lines import steps

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")

# How like the file's line the quoted one must be (percent): below, it is another line.
_ALIKE = 80.0

# A line longer than this is data; merging it token by token would say little.
_MAX_LINE = 1000


@dataclass(frozen=True, slots=True)
class _Edit:
    """Tokens `start:end` of the quoted line become `new`."""

    start: int
    end: int
    new: tuple[str, ...]


def merged(quoted: str, wanted: str, found: str) -> str | None:
    """The file's line `found` with what leads from `quoted` to `wanted`.

    None where both sides changed the same or neighbouring tokens in different ways.
    """
    if max(len(quoted), len(wanted), len(found)) > _MAX_LINE:
        return None
    if fuzz.ratio(quoted, found) < _ALIKE:
        return None
    tokens = _TOKEN.findall(quoted)
    theirs, ours = _edits(tokens, found), _edits(tokens, wanted)
    if any(_clash(one, other) for one in theirs for other in ours):
        return None
    result: list[str] = []
    done = 0
    for edit in sorted({*theirs, *ours}, key=lambda e: (e.start, e.end, e.new)):
        result.extend([*tokens[done : edit.start], *edit.new])
        done = edit.end
    return "".join([*result, *tokens[done:]])


def _edits(tokens: Sequence[str], line: str) -> list[_Edit]:
    other = _TOKEN.findall(line)
    return [
        _Edit(step.a_start, step.a_end, tuple(other[step.b_start : step.b_end]))
        for step in steps(tokens, other)
        if not step.equal
    ]


def _clash(one: _Edit, other: _Edit) -> bool:
    return one != other and one.start <= other.end and other.start <= one.end
