"""JSON: the object with "edits" that the prompt asks for, and edits with the keys of other tools.

Only unambiguous words are taken for the schema's keys. An edit that uses two of them for one key
with different values is left unchanged, and the schema reports the problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.patching.readers.reply import (
    SHOWN,
    Outcome,
    Reading,
    Reply,
    Trouble,
    excerpt,
    truncated,
)
from agent.patching.schema import to_proposal, unknown_keys
from agent.patching.tolerant_json import Fault, Found, Scan
from agent.types import ParseFailure

# Levels of objects and lists ({"edits": [{"file": ..., "changes": [...]}]}) that are searched.
_MAX_NESTING = 4

_WORDS = {
    "path": "path file filename file_name filepath file_path target_file",
    "search": "search old old_str old_string old_text old_code original original_code before find"
    " code_snippet_to_be_modified original_snippet",
    "replace": "replace new new_str new_string new_text new_code updated updated_code after"
    " replacement replace_with edited_code_snippet edited_snippet modified_code",
    "content": "content contents file_content new_content",
    "line": "line line_number start_line",
    "edits": "edits changes hunks replacements modifications edited_code",
    "create": "create file_text",  # `file_text` makes a new file and never replaces one
    "delete": "delete",
    "rename": "rename to new_path",
}
_CANONICAL = {word: key for key, words in _WORDS.items() for word in words.split()}
_WORD_BREAKS = re.compile(r"[\s\-]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

# A longer key belongs to no format.
_MAX_KEY = 40


def read_json(reply: Reply) -> Outcome:
    """Read the one object with "edits", or else the objects that are certainly edits."""
    chosen = choose(reply, reply.json)
    if chosen is None:
        return _read_loose(reply)
    if isinstance(chosen, Trouble):
        return chosen
    loose = _read_loose(reply)
    if isinstance(loose, Trouble):
        return loose
    value, foreign = chosen.value, unknown_keys(chosen.value)
    if foreign:
        value = {**value, "edits": list(_flattened(value["edits"], _canonical(value).get("path")))}
    name = "json-lenient" if foreign or chosen.lenient else "json"
    proposal = to_proposal(value, name, reply.earlier)
    span = (chosen.start, chosen.end)
    if isinstance(proposal, ParseFailure):
        return Trouble(proposal, span)
    if loose is not None and loose.proposal.edits != proposal.edits:
        what = 'the reply holds edits outside the object with "edits" that differ from those in it'
        return Trouble(ParseFailure("malformed", what), span)
    return Reading(proposal, (span,))


def choose(reply: Reply, result: Scan) -> Found | Trouble | None:
    """Return the one object that is meant. Broken or competing objects fail the reply."""
    if result.ours is not None:
        return fault_trouble(reply, result.ours)
    meaningful = [found for found in result.found if found.value.get("edits") != []]
    rivals = [f for f in meaningful[1:] if f.value != meaningful[0].value]
    if not rivals:
        return next(iter([*meaningful, *result.found]), None)
    where = ", ".join(str(reply.line(f.start)) for f in [meaningful[0], *rivals][:5])
    failure = ParseFailure(
        "malformed",
        f"the reply holds several different JSON objects (at lines {where})",
        advice="give exactly one that has everything",
    )
    return Trouble(failure, (meaningful[0].start, rivals[-1].end))


def fault_trouble(reply: Reply, fault: Fault) -> Trouble:
    """Turn a broken object into a failure: cut off, or malformed and where."""
    place = reply.place(fault.offset)
    span = (fault.start, max(fault.reached, fault.start + 1))
    if fault.truncated:
        return Trouble(truncated(f"{fault.message} ({place})"), span)
    shown = excerpt(reply.text, max(0, fault.offset - SHOWN // 2))
    what = f"not valid JSON at {place} (near {shown}): {fault.message}"
    return Trouble(ParseFailure("malformed", what), span)


# -------------------------------------------------------------------------- keys of other tools


def _read_loose(reply: Reply) -> Outcome:
    """Read objects that are edits but not in the "edits" of a reply."""
    edits: list[Any] = []
    spans: list[tuple[int, int]] = []
    for found in reply.json.others:
        inner = [one for one in _flattened(found.value) if _is_edit(one, alone=found.alone)]
        if inner:
            edits += inner
            spans.append((found.start, found.end))
    if not edits:
        return None
    around = (spans[0][0], spans[-1][1])
    if reply.cut_off:
        what = "the reply was cut off at the output limit; further edits may be missing"
        return Trouble(truncated(what), around)
    if reply.json.cut is not None and reply.json.cut < around[1]:
        what = f"the text ends inside the JSON value of line {reply.line(reply.json.cut)}"
        return Trouble(truncated(what), (reply.json.cut, around[1]))
    revised = _revised(edits)
    if revised:
        what = (
            f"two edits of {revised} replace the same text differently; give the one that is meant"
        )
        return Trouble(ParseFailure("malformed", what), around)
    proposal = to_proposal({"edits": edits}, "json-edits")
    if isinstance(proposal, ParseFailure):
        return Trouble(proposal, around)
    return Reading(proposal, tuple(spans))


def _flattened(value: Any, path: Any = None, depth: int = 0) -> Iterator[Any]:
    """Return the edits in a value with the schema's keys; `path` is that of the object around."""
    if isinstance(value, list) and depth < _MAX_NESTING:
        for one in value:
            yield from _flattened(one, path, depth + 1)
        return
    edit = _canonical(value) if isinstance(value, dict) else value
    if not isinstance(edit, dict):
        yield edit
    elif isinstance(edit.get("edits"), list) and "search" not in edit and depth < _MAX_NESTING:
        yield from _flattened(edit["edits"], edit.get("path", path), depth + 1)
    else:
        yield edit if path is None else {"path": path, **edit}


def _canonical(edit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edit with the keys of the schema; unknown keys stay."""
    result: dict[str, Any] = {}
    for key, value in edit.items():
        word = _WORD_BREAKS.sub("_", _CAMEL.sub("_", key.strip())).lower()
        name = _CANONICAL.get(word, key) if len(key) <= _MAX_KEY else key
        if value is None:
            continue
        if name in result and result[name] != value:
            return dict(edit)
        result[name] = value
    return result


def _is_edit(edit: Any, *, alone: bool) -> bool:
    """Whether an object is certainly an edit. One in the middle of prose needs a search text."""
    if not isinstance(edit, dict) or not isinstance(edit.get("path"), str):
        return False
    kinds = ("create", "delete", "content", "rename")
    return {"search", "replace"} <= edit.keys() or (alone and any(key in edit for key in kinds))


def _revised(edits: Sequence[Any]) -> str | None:
    """Return the path of an edit that contradicts an earlier one."""
    seen: dict[tuple[str, str], Any] = {}
    for edit in edits:
        key = (str(edit["path"]), str(edit.get("search", "")))
        if key[1] and seen.setdefault(key, edit.get("replace")) != edit.get("replace"):
            return key[0]
    return None
