"""SEARCH/REPLACE blocks, as the models of many editors write them.

    path/of/file.py
    <<<<<<< SEARCH
    old lines
    =======
    new lines
    >>>>>>> REPLACE

Markers have 5 to 9 signs. The path stands on the line above the block or above its code fence, in
the info string of the fence, or after SEARCH. Otherwise it is the only path that the line above
mentions, or that of the previous block. An empty search part means a new file. A block with two
possible readings fails the whole reply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.readers.reply import (
    Outcome,
    Reading,
    Reply,
    Trouble,
    looks_like_path,
    malformed,
    path_above,
    path_on_line,
    truncated,
)
from agent.patching.schema import MAX_EDITS
from agent.types import PatchProposal, SearchReplace

_SHAPE = "SEARCH/REPLACE blocks"
_SEARCH = re.compile(r"^[ \t]{0,12}<{5,9} ?SEARCH\b", re.MULTILINE)
_MARKER = re.compile(r"^([ \t]{0,12})(<{5,9}|={5,9}|>{5,9})(?: ?(\w[^\n]{0,299}|)|>)$", re.M)
_HEAD_WORD = re.compile(r"SEARCH>?(?:\s+block)?(?![\w/])\s*:?\s*(.*)", re.DOTALL)
_TAIL_WORD = re.compile(r"REPLACE(?!\w)")

# A block with more dividers is not a block. The limit keeps the work on hostile replies small.
_MAX_DIVIDERS = 50

# Lines of `=====`, `-----` and the like, including underlined headings of prose.
_MAX_MARKERS = 100_000


@dataclass(frozen=True, slots=True)
class _Marker:
    start: int  # of its line
    body: int  # of the line after it
    indent: str
    length: int
    sign: str
    word: str


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    end: int
    search: str
    replace: str
    path: str | None  # where the head names it


def read_blocks(reply: Reply) -> Outcome:
    """Read all blocks of a reply in order."""
    if "SEARCH" not in reply.text or not _SEARCH.search(reply.text):
        return None
    blocks = _find_blocks(reply)
    if isinstance(blocks, Trouble):
        return blocks
    if not blocks:
        return None
    whole = (blocks[0].start, blocks[-1].end)
    if reply.cut_off:
        what = "the reply was cut off at the output limit; further blocks may be missing"
        return Trouble(truncated(what), whole)
    edits: list[SearchReplace] = []
    floor, previous = 0, ""
    for number, block in enumerate(blocks, start=1):
        # A wrong guess for a new file would not be noticed.
        infer = bool(block.search)
        path = block.path or path_above(reply.text, block.start, floor, previous, infer=infer)
        if path is None:
            what = (
                f"block {number} has no file; the line above <<<<<<< SEARCH must be the path of "
                "the file and nothing else"
            )
            return Trouble(malformed(reply, _SHAPE, block.start, what), whole)
        edits.append(SearchReplace(path, block.search, block.replace))
        floor, previous = block.end, path
    spans = tuple((block.start, block.end) for block in blocks)
    return Reading(PatchProposal(tuple(edits), reader="search-replace"), spans)


# ----------------------------------------------------------------------------------------- markers


def _find_blocks(reply: Reply) -> list[_Block] | Trouble:
    blocks: list[_Block] = []
    inside: list[_Marker] = []
    for count, match in enumerate(_MARKER.finditer(reply.text)):
        marker = _marker(match)
        if count > _MAX_MARKERS:
            return _trouble(reply, marker, f"more than {_MAX_MARKERS} lines of markers")
        if inside and marker.indent != inside[0].indent:
            continue  # content that shows a block
        if marker.sign == "<" and _HEAD_WORD.match(marker.word):
            done = _bare_end(reply, inside, marker) if inside else None
            inside = [marker]
        elif marker.sign == ">" and _TAIL_WORD.match(marker.word):
            if not inside:
                return _trouble(reply, marker, "a >>>>>>> REPLACE without its <<<<<<< SEARCH")
            done = _block(reply, inside, marker)
            inside = []
        else:
            done = None
            if inside and len(inside) <= _MAX_DIVIDERS:
                inside.append(marker)
        if isinstance(done, Trouble):
            return done
        if done is not None:
            blocks.append(done)
        if len(blocks) > MAX_EDITS:
            return _trouble(reply, marker, f"more than {MAX_EDITS} blocks")
    last = _bare_end(reply, inside, None) if inside else None
    if isinstance(last, Trouble):
        return last
    return [*blocks, last] if last else blocks


def _marker(match: re.Match[str]) -> _Marker:
    signs = match[2]
    return _Marker(
        match.start(), match.end() + 1, match[1], len(signs), signs[0], (match[3] or "").strip()
    )


def _bare_end(
    reply: Reply, inside: Sequence[_Marker], following: _Marker | None
) -> _Block | Trouble:
    """Close a block whose last line lacks its word, if only one line can be the last one."""
    head = inside[0]
    dividers = [m for m in inside[1:] if m.sign == "=" and m.length == head.length]
    ends = [
        m
        for m in inside[1:]
        if m.sign == ">" and m.length == head.length and dividers and m.start > dividers[0].start
    ]
    if len(ends) == 1 and len(dividers) == 1 and not ends[0].word:
        return _block(reply, [head, *dividers], ends[0])
    if following:
        return _trouble(reply, following, "a second <<<<<<< SEARCH before >>>>>>> REPLACE")
    what = (
        f"{_SHAPE}: the text ends inside the block of line {reply.line(head.start)}: "
        ">>>>>>> REPLACE is missing"
    )
    return Trouble(truncated(what), (head.start, len(reply.text)))


def _block(reply: Reply, inside: Sequence[_Marker], tail: _Marker) -> _Block | Trouble:
    """Cut a block at its divider. Underlined headings look like dividers of another length."""
    head = inside[0]
    dividers = [m for m in inside[1:] if m.sign == "=" and not m.word]
    meant = [m for m in dividers if m.length == head.length] or dividers
    if len(meant) != 1:
        return _trouble(
            reply, head, f"a block needs one ======= line, this one has {len(meant)}", tail.body
        )
    middle = meant[0]
    search = _content(reply.text, head.body, middle.start, head.indent)
    replace = _content(reply.text, middle.body, tail.start, head.indent)
    named = _HEAD_WORD.match(head.word)
    path = path_on_line(named[1]) if named and named[1] else None
    return _Block(
        head.start,
        min(tail.body, len(reply.text)),
        "" if not search.strip() else search,
        replace,
        path if path and looks_like_path(path) else None,
    )


def _content(text: str, start: int, end: int, indent: str) -> str:
    """Return the lines between two markers without the indentation that they share with them."""
    body = text[start:end]
    if not indent or not body:
        return body
    lines = body.split("\n")
    if all(line.startswith(indent) or not line.strip() for line in lines):
        return "\n".join(line[len(indent) :] for line in lines)
    return body


def _trouble(reply: Reply, marker: _Marker, what: str, end: int | None = None) -> Trouble:
    what += "; copy the markers exactly, or give the edits as JSON"
    span = (marker.start, min(end or marker.body, len(reply.text)))
    return Trouble(malformed(reply, _SHAPE, marker.start, what), span)
