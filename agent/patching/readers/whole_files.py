"""Whole files in code fences that name them. The name stands in the info string of the fence, on a
line of its own just above, or in a comment on the first line inside. A fence that leaves code out
or numbers its lines is not a whole file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.patching.lines import surely_elided
from agent.patching.readers.reply import (
    Fence,
    Outcome,
    Reply,
    Trouble,
    lines_above,
    malformed,
    path_alone,
    paths_on_line,
    read_edits,
    truncated,
)
from agent.types import CreateFile, PatchProposal

_SHAPE = "whole file in a code fence"
_COMMENT = re.compile(r"\s*(?:#|//|--|;|/\*|<!--|%)")
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
    """Read all fences that name their file. The applier finds out whether it is new."""
    edits: list[CreateFile] = []
    spans: list[tuple[int, int]] = []
    floor = 0
    other: Fence | None = None  # names a file, but seems to hold edits of it
    for index, fence in enumerate(reply.fences):
        path = _path(reply.text, fence, floor)
        floor = fence.end
        if path is None:
            continue
        if _OTHER_SHAPE.search(reply.text, fence.body, fence.body_end):
            other = other or fence
            continue
        edit = _whole_file(reply, fence, path, reply.fences[index + 1 :])
        if isinstance(edit, Trouble):
            return edit
        edits.append(edit)
        spans.append((fence.start, fence.end))
    if not edits:
        return None
    if other is not None:
        what = "beside whole files, a fence that names a file has marks of edits in it"
        return malformed(reply, _SHAPE, (other.start, other.end), what)
    return read_edits(reply, PatchProposal(tuple(edits), reader="whole-files"), spans)


def _path(text: str, fence: Fence, floor: int) -> str | None:
    named = paths_on_line(fence.info)
    if len(named) == 1:
        return named[0]
    if fence.info.split(" ")[0].lower() in _NO_FILES:
        return None
    above = next(filter(str.strip, lines_above(text, fence.start, floor, 2)), "")
    first = text[fence.body : min(fence.body + 300, fence.body_end)].split("\n")[0]
    comment = path_alone(first) if _COMMENT.match(first) else None
    # A bare name in a comment often heads a snippet. A name with a folder is a path.
    return path_alone(above) or (comment if comment and "/" in comment else None)


def _whole_file(
    reply: Reply, fence: Fence, path: str, following: Sequence[Fence]
) -> CreateFile | Trouble:
    content, span = fence.content(reply.text), (fence.start, fence.end)
    if not fence.closed:
        what = f"{_SHAPE}: the text ends inside {path} (line {reply.line(fence.start)})"
        return Trouble(truncated(what), (span,))
    elided = next(filter(surely_elided, content.split("\n")), None)
    if elided is not None:
        what = (
            f"{path} leaves code out ({elided.strip()[:60]!r}); give edits with search and "
            "replace, or every line"
        )
        return malformed(reply, _SHAPE, span, what)
    if _NUMBERED.match(content):
        what = f"the lines of {path} are numbered; give them without numbers"
        return malformed(reply, _SHAPE, span, what)
    if path.lower().endswith(_MARKDOWN) and any(not later.info for later in following):
        what = f"{path} ends at an unclear place, since it holds fences; use a fence of four ````"
        return malformed(reply, _SHAPE, span, what)
    return CreateFile(path, content, replace_existing=True)
