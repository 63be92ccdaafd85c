"""SEARCH/REPLACE blocks, as the models of many editors write them. Markers have 5 to 9 signs. The
path stands above the block, in the info string of its code fence, or after SEARCH; otherwise it is
that of the block before. An empty search part means a new file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.readers.reply import (
    Outcome,
    Reply,
    Trouble,
    malformed,
    path_above,
    paths_on_line,
    read_edits,
    truncated,
)
from agent.types import PatchProposal, SearchReplace

_SHAPE = "SEARCH/REPLACE blocks"
_MARKER = re.compile(r"^([ \t]{0,12})(<{5,9}|={5,9}|>{5,9})(?: ?(\w[^\n]{0,299}|)|>)$", re.M)
_HEAD_WORD = re.compile(r"SEARCH(?!\w)(.*)", re.DOTALL)
_TAIL_WORD = re.compile(r"REPLACE(?!\w)")


@dataclass(frozen=True, slots=True)
class _Marker:
    start: int  # of its line
    body: int  # of the line after it
    indent: str
    length: int
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
    if "SEARCH" not in reply.text:
        return None
    blocks = _find_blocks(reply)
    if isinstance(blocks, Trouble):
        return blocks
    if not blocks:
        return None
    edits: list[SearchReplace] = []
    floor, path = 0, ""
    for number, block in enumerate(blocks, start=1):
        path = block.path or path_above(reply.text, block.start, floor, path) or ""
        if not path:
            what = (
                f"block {number} has no file; the line above <<<<<<< SEARCH must be the path of "
                "the file and nothing else"
            )
            return malformed(reply, _SHAPE, (block.start, blocks[-1].end), what)
        edits.append(SearchReplace(path, block.search, block.replace))
        floor = block.end
    proposal = PatchProposal(tuple(edits), reader="search-replace")
    return read_edits(reply, proposal, [(block.start, block.end) for block in blocks])


def _find_blocks(reply: Reply) -> list[_Block] | Trouble:
    blocks: list[_Block] = []
    head: _Marker | None = None
    dividers: list[_Marker] = []
    for match in _MARKER.finditer(reply.text):
        sign, word = match[2][0], (match[3] or "").strip()
        marker = _Marker(match.start(), match.end() + 1, match[1], len(match[2]), word)
        if head and marker.indent != head.indent:
            continue  # content that shows a block
        if sign == "<" and _HEAD_WORD.match(word):
            if head:
                return _trouble(reply, marker, "a second <<<<<<< SEARCH before >>>>>>> REPLACE")
            head, dividers = marker, []
        elif sign == ">" and (_TAIL_WORD.match(word) or _is_bare_end(head, dividers, marker)):
            if not head:
                return _trouble(reply, marker, "a >>>>>>> REPLACE without its <<<<<<< SEARCH")
            block = _block(reply, head, dividers, marker)
            if isinstance(block, Trouble):
                return block
            blocks.append(block)
            head = None
        elif sign == "=" and not word:
            dividers.append(marker)
    if head:
        what = (
            f"{_SHAPE}: the text ends inside the block of line {reply.line(head.start)}: "
            ">>>>>>> REPLACE is missing"
        )
        return Trouble(truncated(what), ((head.start, len(reply.text)),))
    return blocks


def _is_bare_end(head: _Marker | None, dividers: Sequence[_Marker], marker: _Marker) -> bool:
    """Whether a `>>>>>>>` without its word ends the block."""
    sizes = [divider.length for divider in dividers]
    return head is not None and not marker.word and marker.length == head.length in sizes


def _block(
    reply: Reply, head: _Marker, dividers: Sequence[_Marker], tail: _Marker
) -> _Block | Trouble:
    """Cut a block at its divider. Underlined headings look like dividers of another length."""
    meant = [marker for marker in dividers if marker.length == head.length] or dividers
    if len(meant) != 1:
        what = f"a block needs one ======= line, this one has {len(meant)}"
        return _trouble(reply, head, what, tail.body)
    search = _content(reply.text, head.body, meant[0].start, head.indent)
    replace = _content(reply.text, meant[0].body, tail.start, head.indent)
    named = _HEAD_WORD.match(head.word)
    path = next(iter(paths_on_line(named[1]) if named else ()), None)
    end = min(tail.body, len(reply.text))
    return _Block(head.start, end, search if search.strip() else "", replace, path)


def _content(text: str, start: int, end: int, indent: str) -> str:
    """Return the lines between two markers without the indentation that they share with them."""
    body = text[start:end]
    lines = body.split("\n")
    if not indent or not all(line.startswith(indent) or not line.strip() for line in lines):
        return body
    return "\n".join(line[len(indent) :] for line in lines)


def _trouble(reply: Reply, marker: _Marker, what: str, end: int | None = None) -> Trouble:
    what += "; copy the markers exactly, or give the edits as JSON"
    span = (marker.start, min(end or marker.body, len(reply.text)))
    return malformed(reply, _SHAPE, span, what)
