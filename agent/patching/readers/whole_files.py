"""Whole files in code fences that name them.

The name stands in the info string of the fence, on a line of its own just above, or in a comment on
the first line inside. A fence that leaves code out (`# ... rest unchanged`) or numbers its lines is
not a whole file. The applier finds out whether the file is new or replaced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.patching.lines import surely_elided
from agent.patching.readers.reply import (
    Fence,
    Outcome,
    Reading,
    Reply,
    Trouble,
    lines_above,
    looks_like_path,
    malformed,
    path_of_info,
    path_on_line,
    truncated,
)
from agent.types import CreateFile, PatchProposal

_SHAPE = "whole file in a code fence"
_COMMENT_PATH = re.compile(
    r"(?>(?:#|//|--|;|/\*|<!--|%)+)\s*+(?:file(?:name| ?path)?:\s*+)?(\S+)\s*(?:\*/|-->)?"
)
_NUMBERED = re.compile(r"[ \t]*1[ \t]*[|:\t ][^\n]*\n[ \t]*2[ \t]*[|:\t ][^\n]*\n")
_OTHER_SHAPE = re.compile(
    r"^[ \t]*(?:(?:<{5,9}|-{5,9}) ?SEARCH\b|@@ |\*\*\* (?:Begin|Update)|diff --git |<original>)",
    re.MULTILINE,
)
_MARKDOWN = (".md", ".markdown", ".mdx", ".rst")

# Info strings of fences that are not files: output, commands, diffs.
_NO_FILES = frozenset(
    {"diff", "patch", "console", "output", "text", "shell-session", "pycon", "log"}
)


def read_whole_files(reply: Reply) -> Outcome:
    """Read all fences that name their file."""
    fences = reply.fences
    edits: list[CreateFile] = []
    spans: list[tuple[int, int]] = []
    floor = 0
    other: Fence | None = None  # names a file, but seems to hold edits of it
    for index, fence in enumerate(fences):
        path = _path(reply.text, fence, floor)
        floor = fence.end
        if path is None:
            continue
        if _OTHER_SHAPE.search(reply.text, fence.body, fence.body_end):
            other = other or fence
            continue
        edit = _whole_file(reply, fence, path, fences[index + 1 :])
        if isinstance(edit, Trouble):
            return edit
        edits.append(edit)
        spans.append((fence.start, fence.end))
    if not edits:
        return None
    if other is not None:
        what = "beside whole files, a fence that names a file has marks of edits in it"
        return _trouble(reply, other, what)
    if reply.cut_off:
        what = "the reply was cut off at the output limit; further files may be missing"
        return Trouble(truncated(what), (spans[0][0], spans[-1][1]))
    return Reading(PatchProposal(tuple(edits), reader="whole-files"), tuple(spans))


def _path(text: str, fence: Fence, floor: int) -> str | None:
    """Return the file that a fence names."""
    named = path_of_info(fence.info)
    if named:
        return named
    if fence.info.split(" ")[0].lower() in _NO_FILES:
        return None
    above = next(filter(str.strip, lines_above(text, fence.start, floor, 2)), "")
    path = path_on_line(above)
    if path and looks_like_path(path):
        return path
    first = text[fence.body : min(fence.body + 300, fence.body_end)].split("\n")[0].strip()
    comment = _COMMENT_PATH.fullmatch(first)
    # A bare name in a comment often heads a snippet. A name with a folder is a path.
    if comment and "/" in comment[1] and looks_like_path(comment[1]):
        return comment[1]
    return None


def _whole_file(
    reply: Reply, fence: Fence, path: str, following: Sequence[Fence]
) -> CreateFile | Trouble:
    content = fence.content(reply.text)
    if not fence.closed:
        what = f"{_SHAPE}: the text ends inside {path} (line {reply.line(fence.start)})"
        return Trouble(truncated(what), (fence.start, fence.end))
    lines = content.split("\n")
    left_out = next((k for k, line in enumerate(lines) if surely_elided(line)), None)
    if left_out is not None:
        what = (
            f"{path} leaves code out at line {reply.line(fence.body) + left_out} "
            f"({lines[left_out].strip()[:60]!r}); give edits with search and replace, or every line"
        )
        return _trouble(reply, fence, what)
    if _NUMBERED.match(content):
        return _trouble(
            reply, fence, f"the lines of {path} are numbered; give them without numbers"
        )
    if path.lower().endswith(_MARKDOWN) and any(not later.info for later in following):
        what = f"{path} ends at an unclear place, since it holds fences; use a fence of four ````"
        return _trouble(reply, fence, what)
    return CreateFile(path, content, replace_existing=True)


def _trouble(reply: Reply, fence: Fence, what: str) -> Trouble:
    return Trouble(malformed(reply, _SHAPE, fence.start, what), (fence.start, fence.end))
