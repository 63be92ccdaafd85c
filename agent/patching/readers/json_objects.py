"""JSON: the reply that the prompt asks for, and edits in other JSON shapes.

The prompt asks for an object with "edits". Without one, objects that are certainly edits are read:
with the keys of other tools, as a list, one on a line, one in a fence, or as arguments of tool
calls. Objects that hold a patch as a string are read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.patching.conversion import to_proposal, unknown_keys
from agent.patching.json_scanning import BrokenObject, Found, Scan
from agent.patching.readers.base import (
    EDITS,
    SHOWN,
    Outcome,
    Reading,
    Reply,
    Trouble,
    excerpt,
    truncated,
)
from agent.patching.readers.diffs import read_diffs
from agent.patching.readers.edit_keys import canonical, flattened, is_edit, is_look
from agent.patching.readers.envelopes import read_envelopes
from agent.types import CreateFile, Edit, ParseFailure, PatchProposal, ReplaceSymbol, SearchReplace

# Levels of objects ({"function": {"arguments": {...}}}) that are searched.
_MAX_WRAPPING = 4

# Keys under which other tools give a patch as one string.
_PATCH_KEYS = frozenset(
    {"patch", "diff", "input", "cmd", "command", "arguments", "code_response", "content", "text"}
)


# ------------------------------------------------------------------------------ objects with edits


def json_reader(accepts: Callable[[Found], bool]) -> Callable[[Reply, str], Outcome]:
    """Return a reader of the one object with "edits", for objects that `accepts` accepts."""

    def read(reply: Reply, name: str) -> Outcome:
        result = reply.json
        chosen = choose(reply, result)
        if chosen is None or isinstance(chosen, Trouble):
            return chosen
        return _reading(chosen, name, reply.earlier) if accepts(chosen) else None

    return read


def is_clean(found: Found) -> bool:
    """Whether an object is valid JSON and has the keys of the schema only."""
    return not found.slips and not unknown_keys(found.value) and not _escaped_twice(found.value)


def choose(reply: Reply, result: Scan) -> Found | Trouble | None:
    """Return the one object that is meant. Broken or competing objects fail the reply."""
    broken = result.faults[0] if result.faults else None
    if broken is not None and broken.ours:
        return fault_trouble(reply, broken)
    meaningful = [found for found in result.found if found.value.get("edits") != []]
    rivals = [f for f in meaningful[1:] if f.value != meaningful[0].value]
    if not rivals:
        return next(iter([*meaningful, *result.found]), None)
    merged = _one_a_line(reply, meaningful)
    if merged is not None:
        return merged
    where = ", ".join(str(reply.line(f.start)) for f in [meaningful[0], *rivals][:5])
    failure = ParseFailure(
        "malformed",
        f"the reply holds several different JSON objects (at lines {where})",
        advice="give exactly one that has everything",
    )
    return Trouble(failure, (meaningful[0].start, rivals[-1].end))


def _one_a_line(reply: Reply, objects: Sequence[Found]) -> Found | None:
    """Merge objects that have nothing between them and no file in common into one reply."""
    position, paths = 0, set[str]()
    edits: list[Any] = []
    for found in objects:
        own = found.value.get("edits")
        between = reply.text[position : found.start].strip(" \t\n,")
        if between or not isinstance(own, list) or found.value.keys() != EDITS:
            return None
        named = {str(one.get("path")) for one in own if isinstance(one, dict)}
        if paths & named:
            return None
        paths |= named
        edits += own
        position = found.end
    if reply.text[position:].strip():
        return None
    slips = ("several objects", *(slip for found in objects for slip in found.slips))
    return Found({"edits": edits}, objects[0].start, position, True, False, slips)


def _reading(found: Found, name: str, earlier: PatchProposal | None) -> Reading | Trouble:
    span = (found.start, found.end)
    value = found.value
    if unknown_keys(value):
        edits = value.get("edits")
        one_file = isinstance(edits, list) and "path" in canonical(value)
        value = {**value, "edits": flattened([value] if one_file else edits)}
    proposal = to_proposal(value, name, earlier)
    if isinstance(proposal, ParseFailure):
        return Trouble(proposal, span)
    return Reading(_with_line_breaks(proposal), (span,))


def _with_line_breaks(proposal: PatchProposal) -> PatchProposal:
    edits = tuple(unescaped_twice(edit) for edit in proposal.edits)
    if edits == proposal.edits:
        return proposal
    return replace(proposal, edits=edits)


def _escaped_twice(value: Mapping[str, Any]) -> bool:
    proposal = to_proposal(value, "")
    return isinstance(proposal, PatchProposal) and _with_line_breaks(proposal) != proposal


# ------------------------------------------------------------------------------------- loose edits


def read_loose_edits(reply: Reply, name: str) -> Outcome:
    """Read objects that are edits but not in the "edits" of a reply."""
    edits: list[Any] = []
    spans: list[tuple[int, int]] = []
    for found in reply.json.others:
        alone = found.whole or found.fenced
        inner = [one for value in _looked_through(found.value) for one in _edits_in(value, alone)]
        if inner:
            edits += inner
            spans.append((found.start, found.end))
    if not edits:
        return None
    around = (spans[0][0], spans[-1][1])
    if reply.cut_off:
        what = "the reply was cut off at the output limit; further edits may be missing"
        return Trouble(truncated(what), around)
    revised = _revised(edits)
    if revised:
        what = (
            f"two edits of {revised} replace the same text differently; give the one that is meant"
        )
        return Trouble(ParseFailure("malformed", what), around)
    proposal = to_proposal({"edits": edits}, name)
    if isinstance(proposal, ParseFailure):
        return Trouble(proposal, around)
    return Reading(_with_line_breaks(proposal), tuple(spans))


def _looked_through(value: Any, depth: int = 0) -> Iterator[Any]:
    """Return the value, or the values in its lists, tool calls and arguments given as strings."""
    if isinstance(value, str):
        value = _parsed(value)
    yield_it = is_edit(value, explicit=True) or is_look(value)
    if yield_it or depth >= _MAX_WRAPPING or not isinstance(value, (dict, list)):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _looked_through(inner, depth + 1)
    elif "path" in canonical(value):
        yield value  # a file with its edits
    else:
        for inner in value.values():
            if isinstance(inner, (dict, list)) or (
                isinstance(inner, str) and inner[:1] in ("{", "[")
            ):
                yield from _looked_through(inner, depth + 1)


def _parsed(text: str) -> Any:
    """Parse the arguments of a tool call, which are a string of JSON."""
    try:
        return json.loads(text) if text.startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None


def _edits_in(value: Any, alone: bool) -> list[Any]:
    """Return the edits of an object. One in the middle of prose needs a search text."""
    if is_look(value):
        return []
    explicit = alone or (isinstance(value, dict) and "command" in value)
    return [one for one in flattened([value]) if is_edit(one, explicit=explicit)]


def _revised(edits: Sequence[Any]) -> str | None:
    """Return the path of an edit that contradicts an earlier one."""
    seen: dict[tuple[str, str], Any] = {}
    for edit in map(canonical, edits):
        if edit.get("search"):
            key = (str(edit.get("path")), str(edit.get("search")))
            if seen.setdefault(key, edit.get("replace")) != edit.get("replace"):
                return key[0]
    return None


# ------------------------------------------------------------------------------- patches in strings


def read_patch_strings(reply: Reply, name: str) -> Outcome:
    """Read objects that hold an apply_patch envelope or a unified diff as a string."""
    for found in reply.json.others:
        for text in _patch_texts(found.value):
            inner = type(reply)(text, cut_off=reply.cut_off)
            for read in (read_envelopes, read_diffs):
                outcome = read(inner, name)
                span = (found.start, found.end)
                if isinstance(outcome, Trouble):
                    return Trouble(outcome.failure, span)
                if outcome is not None:
                    return Reading(outcome.proposal, (span,))
    return None


def _patch_texts(value: Any, depth: int = 0, key: str = "patch") -> Iterator[str]:
    if isinstance(value, str):
        if key in _PATCH_KEYS and ("*** Begin Patch" in value or "\n@@" in value):
            yield value
        elif value.startswith("{") and "Patch" in value:
            yield from _patch_texts(_parsed(value), depth + 1, key)
    elif isinstance(value, list) and depth < _MAX_WRAPPING:
        for inner in value:
            yield from _patch_texts(inner, depth + 1, key)
    elif isinstance(value, dict) and depth < _MAX_WRAPPING and not is_edit(value):
        for name, inner in value.items():
            yield from _patch_texts(inner, depth + 1, name)


# ---------------------------------------------------------------------------------------- failures


def fault_trouble(reply: Reply, broken: BrokenObject) -> Trouble:
    """Turn a broken object into a failure: cut off, or malformed and where."""
    fault = broken.fault
    place = reply.place(fault.offset)
    span = (broken.start, max(fault.reached, broken.start + 1))
    if fault.truncated:
        return Trouble(truncated(f"{fault.message} ({place})"), span)
    shown = excerpt(reply.text, max(0, fault.offset - SHOWN // 2))
    what = f"not valid JSON at {place} (near {shown}): {fault.message}"
    return Trouble(ParseFailure("malformed", what), span)


# ------------------------------------------------------------------------ line breaks escaped twice

_BREAK = re.compile(r"\\n")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'")
# Beside these characters `\n` belongs to a regular expression or a format.
_NOT_AFTER = frozenset("/[(|\\^%")
_NOT_BEFORE = frozenset("/])|*+?{$%")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/", "r": "\r"}


def unescaped_twice(edit: Edit) -> Edit:
    """Return the edit with line breaks where its text has only escaped ones, outside of quotes.

    Models sometimes escape twice, so that a whole text is one line full of `\\n`. The search text
    decides for its replacement too. If the guess is wrong, it does not match.
    """
    match edit:
        case SearchReplace(search=search, replace=new) if is_one_line_of_many(search):
            fixed = new if "\n" in new else _plain(new)
            return replace(edit, search=_plain(search), replace=fixed)
        case ReplaceSymbol(replace=new) if is_one_line_of_many(new):
            return replace(edit, replace=_plain(new))
        case CreateFile(content=content) if is_one_line_of_many(content):
            return replace(edit, content=_plain(content))
        case _:
            return edit


def is_one_line_of_many(text: str) -> bool:
    """Whether a text without a line break has escaped ones that can only mean line breaks."""
    if "\\n" not in text or "\n" in text:
        return False
    masked = text
    for pair in ("\\\\", '\\"', "\\'"):
        masked = masked.replace(pair, "  ")
    outside = _QUOTED.sub(lambda match: " " * len(match[0]), masked)
    breaks = [match.start() for match in _BREAK.finditer(outside)]
    if not breaks or len(breaks) != len(_BREAK.findall(masked)):
        return False
    return all(
        outside[at - 1 : at] not in _NOT_AFTER and outside[at + 2 : at + 3] not in _NOT_BEFORE
        for at in breaks
    )


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)
