"""Replies without a model: the fix itself, something else, or nothing usable, by the id. Pure."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from agent.patching.parsing import parse_reply
from agent.types import CreateFile, DeleteFile, ParseFailure, SearchReplace


class Role(enum.StrEnum):
    """What is answered for an instance: a third of all ids each."""

    GOLD = "gold"
    WRONG = "wrong"
    NONE = "none"


_ROLES = tuple(Role)
_PROSE = "I would look at how the arguments are checked; the cause must lie somewhere there."
FINISH = json.dumps({"action": "finish", "thought": "Nothing to add."})
"""Ends the iterative mode at its first step."""

_REMARK = "# checked\n"


def role_of(instance_id: str) -> Role:
    """The role of an instance, by SHA-256 of its id."""
    return _ROLES[_number(instance_id) % len(_ROLES)]


def scripted_reply(
    row: Mapping[str, Any],
    call: int,
    *,
    iterative: bool,
    test: Mapping[str, str] | None = None,
) -> str:
    """What is said in the `call`-th turn of a conversation; nothing is mended after the first.

    Gold: the row's own patch as edits. Wrong: a remark before the same lines, or (every other id)
    these lines taken out. None: prose, a reply that is cut off, or one without edits. `test` is the
    reproduction test of gold and wrong.
    """
    if iterative:
        return FINISH
    name = str(row["instance_id"])
    role, variant = role_of(name), _number(name) // len(_ROLES)
    edits = gold_edits(str(row["patch"]))
    if role is Role.GOLD:
        return _reply(edits, test)
    if call > 1:
        return _PROSE
    if role is Role.WRONG:
        return _reply([_remarked(edits[0]) if variant % 2 else _emptied(edits[0])], test)
    whole = _reply(edits)
    return (_PROSE, whole[: len(whole) // 2], _reply([]))[variant % 3]


def gold_edits(patch: str) -> list[dict[str, Any]]:
    """A diff as edits of the reply format, one a hunk. Raises ValueError for an unreadable one."""
    proposal = parse_reply(f"```diff\n{patch.rstrip(chr(10))}\n```\n")
    if isinstance(proposal, ParseFailure):
        raise ValueError(proposal.reason)  # noqa: TRY004  (a value was wrong, not a type)
    return [_edit(edit) for edit in proposal.edits]


def _edit(edit: object) -> dict[str, Any]:
    if isinstance(edit, SearchReplace):
        found = {"path": edit.path, "search": edit.search, "replace": edit.replace}
        return {**found, "line": edit.line} if edit.line is not None else found
    if isinstance(edit, CreateFile):
        return {"path": edit.path, "create": edit.content}
    if isinstance(edit, DeleteFile):
        return {"path": edit.path, "delete": True}
    raise ValueError(f"no edit of a data set: {edit!r}")


def _remarked(edit: Mapping[str, Any]) -> dict[str, Any]:
    """The lines as they are, with a comment before them: nothing changes for any test."""
    if "search" not in edit:
        return {"path": edit["path"], "create": _REMARK}
    return {**edit, "replace": _REMARK + str(edit["search"])}


def _emptied(edit: Mapping[str, Any]) -> dict[str, Any]:
    """The lines taken out: most often what is left does not parse, or breaks tests."""
    return {**edit, "replace": ""} if "search" in edit else _remarked(edit)


def _reply(edits: list[dict[str, Any]], test: Mapping[str, str] | None = None) -> str:
    brought = {"reproduction_test": dict(test)} if test else {}
    return json.dumps({"thought": "Scripted.", "edits": edits, **brought})


def _number(instance_id: str) -> int:
    return int.from_bytes(hashlib.sha256(instance_id.encode()).digest()[:8], "big")
