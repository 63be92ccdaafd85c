"""Maps the keys that models use in an edit to those of the schema.

Only unambiguous words are mapped. An edit that uses two of them for one key with different values
is left unchanged, and the schema reports the problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_PATH = (
    "path file filename file_name filepath file_path target_file relative_path filepath_relative"
)
_SEARCH = (
    "search old old_str old_string old_text old_code old_content original original_code before find"
    " search_text search_block original_text code_snippet_to_be_modified original_snippet"
    " code_to_be_modified original_code_snippet old_snippet search_string"
)
_REPLACE = (
    "replace new new_str new_string new_text new_code updated updated_code after replacement"
    " replace_with replace_text replace_block replacement_text edited_code_snippet edited_snippet"
    " modified_code modified edited_code new_snippet updated_text patched replacement_code"
    " modified_code_snippet updated_code_snippet"
)
_CONTENT = "content contents file_text file_content file_contents full_content new_file_content"
_LINE = "line line_number start_line line_start lineno"
_TO = "rename to new_path rename_to move_to target_path destination"
_VERB = "command action op operation type kind change_type edit_type"

_CANONICAL = {
    word: key
    for key, words in (
        ("path", _PATH),
        ("search", _SEARCH),
        ("replace", _REPLACE),
        ("content", _CONTENT),
        ("line", _LINE),
        ("rename", _TO),
        ("verb", _VERB),
        ("create", "create"),
        ("delete", "delete remove deleted"),
        ("insert_line", "insert_line insert_after"),
        ("edits", "edits changes hunks replacements modifications blocks"),
    )
    for word in words.split()
}
_CREATES = frozenset({"create", "create_file", "new", "add", "new_file", "add_file"})
_DELETES = frozenset({"delete", "remove", "delete_file", "remove_file"})
_LOOKS = frozenset({"view", "undo_edit", "read", "open", "search", "list", "run_tests", "finish"})
_WORD_BREAKS = re.compile(r"[\s\-]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

# A longer key belongs to no format.
_MAX_KEY = 40


def canonical(edit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edit with the keys of the schema; unknown keys stay."""
    result: dict[str, Any] = {}
    for key, value in edit.items():
        name = _canonical_key(key)
        if value is None:
            continue
        if name in result and result[name] != value:
            return dict(edit)
        result[name] = value
    return _as_its_verb_says(result)


def _canonical_key(key: str) -> str:
    if len(key) > _MAX_KEY:
        return key
    word = _WORD_BREAKS.sub("_", _CAMEL.sub("_", key.strip())).lower()
    return _CANONICAL.get(word, key)


def _as_its_verb_says(edit: dict[str, Any]) -> dict[str, Any]:
    """Resolve `{"command": "create", "file_text": ...}`, `{"action": "delete"}` and the like."""
    verb = str(edit.get("verb", "")).lower()
    rest = {key: value for key, value in edit.items() if key != "verb"}
    if verb in _CREATES and "create" not in rest:
        text = rest.pop("content", None) or rest.pop("replace", None) or rest.pop("code", "")
        rest.pop("search", None)
        return {**rest, "create": text}
    known = rest.keys() <= {"path", "search", "replace", "content", "delete"}
    if verb in _DELETES and known and not rest.get("search"):
        return {"path": rest.get("path"), "delete": True}
    if "insert_line" in rest and "search" not in rest:
        after = rest.pop("insert_line")
        text = rest.pop("replace", None) or rest.pop("content", None)
        line = after + 1 if isinstance(after, int) else after
        return {**rest, "search": "", "replace": _as_lines(text), "line": line}
    return rest


def _as_lines(text: Any) -> Any:
    return text + "\n" if isinstance(text, str) and not text.endswith("\n") else text


def is_edit(value: Any, *, explicit: bool = False) -> bool:
    """Whether an object is certainly an edit. `explicit`: a path and one text are enough."""
    if not isinstance(value, dict):
        return False
    edit = canonical(value)
    if not isinstance(edit.get("path"), str):
        return False
    if "search" in edit and "replace" in edit:
        return True
    return explicit and any(key in edit for key in ("create", "delete", "content", "rename"))


def is_look(value: Any) -> bool:
    """Whether an object is a tool call that changes nothing."""
    return isinstance(value, dict) and str(value.get("command", "")).lower() in _LOOKS


def looks_like_keys(keys: frozenset[str]) -> bool:
    """Whether these are the keys of an edit; the last one may be missing."""
    names = {_canonical_key(key) for key in keys}
    return "path" in names and not names.isdisjoint({"search", "replace"})


def flattened(edits: Any) -> Any:
    """Return a flat list of edits; those inside an object with a path get this path."""
    if isinstance(edits, dict):
        edits = [edits] if is_edit(edits, explicit=True) else edits
    if not isinstance(edits, list):
        return edits
    return [one for item in edits for one in _flattened_one(item)]


def _flattened_one(item: Any) -> Iterator[Any]:
    if not isinstance(item, dict):
        yield item
        return
    edit = canonical(item)
    inner = edit.get("edits")
    if not isinstance(inner, list) or "search" in edit or not isinstance(edit.get("path"), str):
        yield edit
        return
    for one in inner:
        yield {"path": edit["path"], **canonical(one)} if isinstance(one, dict) else one
