"""Finds JSON objects in a reply: as the whole text, in a code fence, or in prose."""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from agent.patching.tolerant_json import Fault, Parsed, Work, parse_at

# Failed attempts may read the text this many times in total. More means that it is hostile.
_MAX_REREADING = 8

# Braces that are tried as the start of an object. Prose about code has dozens.
_MAX_ATTEMPTS = 5_000

# An object begins with a quoted key, a comment, or ends at once; `{x}` in prose does not, unless x
# is a key that replies have. A list is of objects.
_START = re.compile(
    r"\{(?=\s*+(?:[\"'“}]|//|/\*|#|\Z|(?:edits|thought|path|file|command|action)\s*:))"
    r"|\[(?=\s*+\{)"
)
_FENCE_OPENS = re.compile(r"^[ \t]*+(?:`{3,}+|~{3,}+)[^\n`]*+\n\s*+(?=[\[{])", re.MULTILINE)

# Levels of wrapping objects ({"arguments": {"edits": ...}}) that are searched.
_MAX_WRAPPING = 2


@dataclass(frozen=True, slots=True)
class Found:
    """A JSON value in a text.

    `whole`: only white space stands around it. `fenced`: it begins a code fence. `slips` names the
    deviations from JSON that were accepted.
    """

    value: Any
    start: int
    end: int
    whole: bool
    fenced: bool
    slips: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokenObject:
    """An object that cannot be read. `ours`: it has a key that only a reply has."""

    fault: Fault
    ours: bool
    start: int


@dataclass(frozen=True, slots=True)
class Scan:
    """All values of a text. `found` are objects with a wanted key, `others` the rest."""

    text: str
    found: tuple[Found, ...]
    faults: tuple[BrokenObject, ...]
    others: tuple[Found, ...]


def scan(text: str, wanted: Set[str], is_ours: Callable[[frozenset[str]], bool]) -> Scan:
    """Find the objects that have a `wanted` key, in linear time.

    A broken object is kept as a fault if it begins the text or a fence, or if `is_ours` accepts its
    keys. In the last case the search ends, since the rest lies inside a broken reply.
    """
    fences = frozenset(match.end() for match in _FENCE_OPENS.finditer(text))
    first = len(text) - len(text.lstrip("\ufeff \t\r\n"))
    found: list[Found] = []
    faults: list[BrokenObject] = []
    others: list[Found] = []
    work, reread, position = Work(), 0, 0
    for _ in range(_MAX_ATTEMPTS):
        match = _START.search(text, position)
        if match is None or reread > _MAX_REREADING * len(text):
            break
        start = match.start()
        outcome = parse_at(text, start, work)
        if isinstance(outcome, Parsed):
            position = outcome.end
            inner = _unwrapped(outcome.value, wanted)
            value = outcome.value if inner is None else inner
            kind = others if inner is None else found
            kind.append(_found(text, start, outcome, value, fenced=start in fences))
            continue
        ours = is_ours(frozenset(outcome.keys)) and not _is_ellipsis(text, outcome)
        if ours or start == first or start in fences:
            faults.append(BrokenObject(outcome, ours, start))
        if ours:
            break
        position = start + 1
        reread += outcome.reached - start
    ranked = sorted(faults, key=lambda broken: (not broken.ours, broken.fault.offset))
    return Scan(text, tuple(found), tuple(ranked), tuple(others))


def _found(text: str, start: int, parsed: Parsed, inner: Any, *, fenced: bool) -> Found:
    whole = not text[:start].strip("\ufeff \t\r\n") and not text[parsed.end :].strip()
    slips = parsed.slips if inner is parsed.value else (*parsed.slips, "wrapped")
    return Found(inner, start, parsed.end, whole, fenced, slips)


def _unwrapped(value: Any, wanted: Set[str], depth: int = 0) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    if not wanted.isdisjoint(value):
        return value
    if depth < _MAX_WRAPPING:
        for inner in value.values():
            found = _unwrapped(inner, wanted, depth + 1)
            if found is not None:
                return found
    return None


def _is_ellipsis(text: str, fault: Fault) -> bool:
    """Whether the object is `{"edits": [...]}` in prose, which describes the format."""
    return text.startswith(("...", "…"), fault.offset)
