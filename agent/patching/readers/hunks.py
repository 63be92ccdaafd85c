"""Hunks as models write them: runs of lines that begin with a space, `-` or `+`.

Line numbers are hints only, since models count badly. Context lines may lack their leading space,
where the other lines show whether it is missing everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.repository.unified_diff import RANGE
from agent.types import SearchReplace

_RUN = re.compile(r"(?:[ +-][^\n]*+(?:\n|\Z))++")
_FILE_HEADER = re.compile(r"--- [^\n]*\n\+\+\+ [^\n]*\n")
_ENDS = re.compile(
    r"@@|diff --git |--- [^\n]*\n\+\+\+ |Index: |\*\*\* |index [0-9a-f]{4,}"
    r"|(?:new|deleted) file mode |`{3}|~{3}|(?:EOF|PATCH)(?:\n|\Z)"
)
_OLD = re.compile(rf"-{RANGE}(?![\w.])")
_NEW = re.compile(rf"\+{RANGE}(?![\w.])")
_NO_NAME = re.compile(r"(?:[-+\d\s?,.…@XN#*]|\blines?\b)*", re.IGNORECASE)

# Lines without a prefix that one hunk may have.
_MAX_BARE = 5_000


@dataclass(slots=True)
class Cursor:
    """A position in a text that is read line by line up to `end`."""

    text: str
    pos: int
    end: int

    def more(self) -> bool:
        """Whether a line is left."""
        return self.pos < self.end

    def peek(self) -> str:
        """Return the current line without its line break."""
        stop = self.text.find("\n", self.pos, self.end)
        return self.text[self.pos : self.end if stop < 0 else stop]

    def skip(self) -> None:
        """Go to the next line."""
        stop = self.text.find("\n", self.pos, self.end)
        self.pos = self.end if stop < 0 else stop + 1


@dataclass(frozen=True, slots=True)
class HunkHeader:
    """The numbers between the `@@` and the text after them, which names the enclosing code."""

    start: int | None = None
    old_count: int | None = None
    new_count: int | None = None
    within: str = ""


def read_header(line: str) -> HunkHeader:
    """Read a line that begins with `@@`."""
    inner = line.lstrip("@")
    ranges, closed, after = inner.partition("@@")
    old, new = _OLD.search(ranges), _NEW.search(ranges)
    named = after if old or (closed and after.strip()) else ranges
    within = "" if _NO_NAME.fullmatch(named[:300]) else named.strip(" @")
    if old is None:
        return HunkHeader(within=within)
    return HunkHeader(
        int(old[1]),
        int(old[2]) if old[2] else 1,
        int(new[2]) if new and new[2] else 1 if new else None,
        within,
    )


@dataclass(frozen=True, slots=True)
class Hunk:
    """The texts before and after. `line`: number of the first old line, if the header gives it.

    `changes`: whether any line is added or removed. `short`: fewer lines than the header says.
    `counted`: whether the header gives numbers of lines.
    """

    offset: int
    old: str
    new: str
    line: int | None
    within: str
    changes: bool
    short: bool
    counted: bool
    inserts_after: int | None = None  # a line, where only the header locates the hunk


def read_hunk(cursor: Cursor, header: HunkHeader, *, fenced: bool) -> Hunk | str:
    """Read the lines of a hunk, or return why they cannot be read.

    `fenced`: every line up to the end of the cursor belongs to the diff.
    """
    offset = cursor.pos
    lines = _read_lines(cursor, header, fenced=fenced)
    if lines is None:
        return f"more than {_MAX_BARE} lines of a hunk begin with neither a space nor - nor +"
    while lines and lines[-1] == "":
        lines.pop()
    first = next((i for i, line in enumerate(lines) if line), 0)
    del lines[:first]
    if any(line[:1] not in " +-\\" for line in lines):
        problem = _restore_prefixes(lines)
        if problem:
            return problem
    old, new = _side(lines, "-"), _side(lines, "+")
    changes = any(line[:1] in ("+", "-") for line in lines)
    sizes = old.count("\n") + first, new.count("\n") + first
    short, counted = False, header.old_count is not None and header.new_count is not None
    if header.old_count is not None and header.new_count is not None:
        short = sizes[0] < header.old_count or sizes[1] < header.new_count
    line = header.start + first if header.start else None
    after = header.start if header.old_count == 0 and not old else None
    return Hunk(offset, old, new, line, header.within, changes, short, counted, after)


@dataclass(slots=True)
class _Body:
    """The lines read so far, and how many belong to each side."""

    lines: list[str] = field(default_factory=list)
    old: int = 0
    new: int = 0

    def add(self, lines: list[str]) -> None:
        self.lines.extend(lines)
        heads = [line[:1] for line in lines]
        added, removed, notes = heads.count("+"), heads.count("-"), heads.count("\\")
        self.old += len(lines) - added - notes
        self.new += len(lines) - removed - notes

    def may_end(self, line: str, header: HunkHeader) -> bool:
        """Whether a line without a prefix may be prose after the hunk."""
        counts = (header.old_count, header.new_count)
        return counts == (self.old, self.new) or (
            bool(line) and (not self.lines or self.lines[-1] == "")
        )


def _read_lines(cursor: Cursor, header: HunkHeader, *, fenced: bool) -> list[str] | None:
    """Return the lines with their prefixes; None if too many lack one."""
    body = _Body()
    bare = 0
    while cursor.more():
        run = _RUN.match(cursor.text, cursor.pos, cursor.end)
        if run:
            text = _before_file_header(cursor, run[0])
            cursor.pos += len(text)
            if text:
                body.add(text.removesuffix("\n").split("\n"))
            if len(text) < len(run[0]):
                break
            continue
        if _ENDS.match(cursor.text, cursor.pos, cursor.end):
            break
        line = cursor.peek()
        if not fenced and not line.startswith("\\") and body.may_end(line, header):
            break
        body.add([line])
        cursor.skip()
        bare += 1
        if bare > _MAX_BARE:
            return None
    return body.lines


def _before_file_header(cursor: Cursor, run: str) -> str:
    """Cut off `---` and `+++` lines at the end that a hunk follows: they are a file header."""
    if not cursor.text.startswith("@@", cursor.pos + len(run)):
        return run
    last = run.rfind("\n--- ", 0, -1) + 1
    start = last if last else 0
    return run[:start] if _FILE_HEADER.fullmatch(run, start) else run


def _restore_prefixes(lines: list[str]) -> str | None:
    """Add missing leading spaces to context lines, in place. Return why that would be a guess."""
    spaced = [line for line in lines if line[:1] == " " and line.strip()]
    odd = {(len(line) - len(line.lstrip(" "))) % 2 for line in spaced}
    if len(odd) > 1:
        return "some context lines lack their leading space; begin every line with a space, - or +"
    everywhere = odd == {0}
    for index, line in enumerate(lines):
        if line[:1] not in (" ", "+", "-", "\\") or (everywhere and line[:1] == " "):
            lines[index] = f" {line}"
    return None


def _side(lines: list[str], sign: str) -> str:
    """Return the text of one side, without its last line break if the diff says so."""
    other = "+" if sign == "-" else "-"
    kept: list[str] = []
    last, ends_open = " ", False
    for line in lines:
        head = line[:1]
        if head == "\\":
            ends_open = ends_open or last != other
            continue
        last = head
        if head != other:
            kept.append(line[1:])
    text = "\n".join(kept)
    return text if ends_open or not kept else text + "\n"


def hunk_edit(path: str, hunk: Hunk) -> SearchReplace | str | None:
    """Return the edit of a hunk; None if it changes nothing."""
    if not hunk.changes or hunk.old == hunk.new:
        return None
    if hunk.old:
        return SearchReplace(path, hunk.old, hunk.new, hunk.line, hunk.within)
    if hunk.inserts_after is None:
        return "a hunk that shows no line of the file; add unchanged lines around what is added"
    return SearchReplace(path, "", hunk.new, hunk.inserts_after + 1, hunk.within)
