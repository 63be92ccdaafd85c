"""Edits written out in every shape that is read: what a model would write, without its slips."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from agent.types import CreateFile, DeleteFile, Edit, RenameFile, SearchReplace

Shape = Callable[[Sequence[Edit]], str]


def as_json(edits: Sequence[Edit]) -> str:
    def one(edit: Edit) -> dict[str, object]:
        match edit:
            case SearchReplace(path, search, new, line):
                hint = {"line": line} if line else {}
                return {"path": path, "search": search, "replace": new, **hint}
            case CreateFile(path, content):
                return {"path": path, "create": content}
            case DeleteFile(path):
                return {"path": path, "delete": True}
            case RenameFile(path, to):
                return {"path": path, "rename": to}

    return json.dumps({"edits": [one(edit) for edit in edits]}, ensure_ascii=False)


def as_blocks(edits: Sequence[Edit]) -> str:
    def one(edit: Edit) -> str:
        assert isinstance(edit, SearchReplace)
        return (
            f"{edit.path}\n```\n<<<<<<< SEARCH\n{edit.search}=======\n{edit.replace}"
            ">>>>>>> REPLACE\n```\n"
        )

    return "\n".join(one(edit) for edit in edits)


def _prefixed(sign: str, text: str) -> str:
    return (
        "".join(f"{sign}{line}\n" for line in text.removesuffix("\n").split("\n")) if text else ""
    )


def as_diff(edits: Sequence[Edit]) -> str:
    def one(edit: Edit) -> str:
        match edit:
            case SearchReplace(path, search, new, line):
                ranges = f"-{line},9 +{line},9" if line else "..."
                head = f"--- a/{path}\n+++ b/{path}\n@@ {ranges} @@\n"
                return head + _prefixed("-", search) + _prefixed("+", new)
            case CreateFile(path, content):
                return f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n" + _prefixed("+", content)
            case DeleteFile(path):
                return f"--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
            case RenameFile(path, to):
                return f"diff --git a/{path} b/{to}\nrename from {path}\nrename to {to}\n"

    return "```diff\n" + "".join(one(edit) for edit in edits) + "```\n"


def as_envelope(edits: Sequence[Edit]) -> str:
    def one(edit: Edit) -> str:
        match edit:
            case SearchReplace(path, search, new):
                body = _prefixed("-", search) + _prefixed("+", new)
                return f"*** Update File: {path}\n@@\n{body}"
            case CreateFile(path, content):
                return f"*** Add File: {path}\n" + _prefixed("+", content)
            case DeleteFile(path):
                return f"*** Delete File: {path}\n"
            case RenameFile(path, to):
                return f"*** Update File: {path}\n*** Move to: {to}\n"

    return "*** Begin Patch\n" + "".join(one(edit) for edit in edits) + "*** End Patch\n"


def as_whole_files(edits: Sequence[Edit]) -> str:
    def one(edit: Edit) -> str:
        assert isinstance(edit, CreateFile)
        return f"**{edit.path}**\n\n````python\n{edit.content}````\n"

    return "\n".join(one(edit) for edit in edits)


SHAPES: Mapping[str, Shape] = {
    "json": as_json,
    "search-replace": as_blocks,
    "unified-diff": as_diff,
    "apply-patch": as_envelope,
    "whole-files": as_whole_files,
}
