"""SEARCH/REPLACE blocks, as aider's models write them.

    path/of/file.py
    <<<<<<< SEARCH
    old lines
    =======
    new lines
    >>>>>>> REPLACE

Markers are 5 to 9 signs long; the path stands on the line above the block, or above its code fence,
or on the fence's first line; a block that directly follows another needs none. An empty search part
means a new file. A block that can be read in two ways fails the whole reply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.types import ParseFailure, SearchReplace

_HEAD = re.compile(r"(<{5,9}) ?SEARCH>?\s*")
_DIVIDER = re.compile(r"={5,9}\s*")
_TAIL = re.compile(r">{5,9} ?REPLACE\s*")
_FENCE = re.compile(
    r"\s*(?:(?:`{3,}|~{3,})|</?(?:source|sourcecode|code|codeblock|pre)>)[\w+.#-]*\s*"
)

# Decoration that models put around a path: headings, comment signs, list marks, bold, "File:".
_LEADING = re.compile(r"^(?:#+|//|--|/\*|[-*] )?\s*(?:\*\*)?(?:file(?:name| ?path)?:\s*)?", re.I)
_TRAILING = re.compile(r"\s*(?:\*/)?[\s:*]*$")

# No path is longer; the patterns above must not be run on a line of megabytes.
_MAX_LINE = 1024

# Lines above a block among which its path is looked for.
_LOOK_BACK = 4


@dataclass(frozen=True, slots=True)
class _Block:
    start: int  # index of the head line
    end: int  # index after the tail line
    search: str
    replace: str


def has_blocks(text: str) -> bool:
    """Whether the text has at least one block marker on a line of its own."""
    return "SEARCH" in text and any(_HEAD.fullmatch(line) for line in text.split("\n"))


def read_blocks(text: str) -> tuple[SearchReplace, ...] | ParseFailure:
    """All blocks of a text that `has_blocks`, in order, or why they cannot be read."""
    lines = text.replace("\r\n", "\n").split("\n")
    blocks = _find_blocks(lines)
    if isinstance(blocks, ParseFailure):
        return blocks
    edits: list[SearchReplace] = []
    previous_end, previous_path = 0, ""
    for number, block in enumerate(blocks, start=1):
        path = _path_above(lines, previous_end, block.start, previous_path)
        if path is None:
            return ParseFailure(
                "malformed",
                f"block {number} (line {block.start + 1}): the line above <<<<<<< SEARCH must be "
                "the path of the file and nothing else",
            )
        edits.append(SearchReplace(path, block.search, block.replace))
        previous_end, previous_path = block.end, path
    return tuple(edits)


def _find_blocks(lines: Sequence[str]) -> list[_Block] | ParseFailure:
    blocks: list[_Block] = []
    index = 0
    while index < len(lines):
        if _HEAD.fullmatch(lines[index]):
            block = _read_block(lines, index)
            if isinstance(block, ParseFailure):
                return block
            blocks.append(block)
            index = block.end
        elif _TAIL.fullmatch(lines[index]):
            return _malformed(index, "a >>>>>>> REPLACE without its <<<<<<< SEARCH")
        else:
            index += 1
    return blocks


def _read_block(lines: Sequence[str], start: int) -> _Block | ParseFailure:
    dividers: list[int] = []
    for index in range(start + 1, len(lines)):
        line = lines[index]
        if _HEAD.fullmatch(line):
            return _malformed(index, "a second <<<<<<< SEARCH before >>>>>>> REPLACE")
        if _DIVIDER.fullmatch(line):
            dividers.append(index)
        elif _TAIL.fullmatch(line):
            return _split_block(lines, start, dividers, index)
    return ParseFailure(
        "truncated",
        f"the text ends inside the block of line {start + 1}: >>>>>>> REPLACE is missing",
    )


def _split_block(
    lines: Sequence[str], start: int, dividers: Sequence[int], end: int
) -> _Block | ParseFailure:
    """Underlines of headings look like dividers: the one as long as the head's marker is meant."""
    head = _HEAD.fullmatch(lines[start])
    length = len(head[1]) if head else 0
    same = [index for index in dividers if len(lines[index].rstrip()) == length]
    meant = same or dividers
    if len(meant) != 1:
        return _malformed(start, f"a block needs one ======= line, this one has {len(meant)}")
    return _Block(
        start, end + 1, _joined(lines[start + 1 : meant[0]]), _joined(lines[meant[0] + 1 : end])
    )


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _malformed(index: int, what: str) -> ParseFailure:
    return ParseFailure("malformed", f"line {index + 1}: {what}; give the edits as JSON instead")


def _path_above(lines: Sequence[str], floor: int, head: int, previous: str) -> str | None:
    """The path named above a block; the previous block's if nothing but fences lies between."""
    for index in range(head - 1, max(floor, head - _LOOK_BACK) - 1, -1):
        line = lines[index]
        if line.strip() and not _FENCE.fullmatch(line):
            return _as_path(line)
    nothing_between = head - floor <= _LOOK_BACK and floor > 0
    return previous if nothing_between and previous else None


def _as_path(line: str) -> str | None:
    if len(line) > _MAX_LINE:
        return None
    bare = _TRAILING.sub("", _LEADING.sub("", line.strip(), count=1))
    quoted = len(bare) > 2 and bare[0] == bare[-1] and bare[0] in "`\"'"
    path = bare[1:-1] if quoted else bare
    if not path or (not quoted and re.search(r"\s", path)):
        return None
    return path
