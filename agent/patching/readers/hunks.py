"""Hunks as models write them: runs of lines that begin with a space, `-` or `+`.

Line numbers are hints only, since models count badly. Context lines may lack their leading space,
where the other lines show whether it is missing everywhere.

Envelopes of the tool `apply_patch`, also inside a here-document of a shell.

    *** Begin Patch
    *** Update File: path        *** Add File: path        *** Delete File: path
    *** Move to: new/path        +line
    @@ class X:
    @@ def method
     context
    -old
    +new
    *** End Patch

Lines after `@@` name the definitions around the hunk. Source of the grammar: the tool's own
description in openai/codex, codex-rs/apply-patch/apply_patch_tool_instructions.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.patching.readers.reply import Outcome, Reading, Reply, Trouble, malformed, truncated
from agent.repository.unified_diff import RANGE
from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    ParseFailure,
    PatchProposal,
    RenameFile,
    SearchReplace,
)

_RUN = re.compile(r"(?:[ +-][^\n]*+(?:\n|\Z))++")
_FILE_HEADER = re.compile(r"--- [^\n]*\n\+\+\+ [^\n]*\n")
_ENDS = re.compile(
    r"@@|diff --git |Index: |\*\*\* |index [0-9a-f]{4,}"
    r"|(?:new|deleted) file mode |`{3}|~{3}|(?:EOF|PATCH)(?:\n|\Z)"
)
_OLD = re.compile(rf"-{RANGE}(?![\w.])")
_NEW = re.compile(rf"\+{RANGE}(?![\w.])")
_NO_NAME = re.compile(r"(?:[-+\d\s?,.…@XN#*]|\blines?\b)*", re.IGNORECASE)


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
    counts: tuple[int, int] | None = None
    within: str = ""


def read_header(line: str) -> HunkHeader:
    """Read a line that begins with `@@`."""
    ranges, closed, after = line.lstrip("@").partition("@@")
    old, new = _OLD.search(ranges), _NEW.search(ranges)
    named = after if old or (closed and after.strip()) else ranges
    within = "" if _NO_NAME.fullmatch(named[:300]) else named.strip(" @")
    counts = (int(old[2] or 1), int(new[2] or 1)) if old and new else None
    return HunkHeader(int(old[1]) if old else None, counts, within)


@dataclass(frozen=True, slots=True)
class Hunk:
    """The texts before and after.

    `line`: number of the first old line, or for a hunk without old lines of the line before which
    it inserts. `complete`: it has all the lines that its header promises.
    """

    old: str
    new: str
    line: int | None
    within: str
    complete: bool

    def edit(self, path: str) -> SearchReplace | str | None:
        """Return the edit, or why there is none; None if nothing changes."""
        if self.old == self.new:
            return None
        if not self.old and self.line is None:
            return "a hunk that shows no line of the file; add unchanged lines around what is added"
        return SearchReplace(path, self.old, self.new, self.line, self.within)


def read_hunk(cursor: Cursor, header: HunkHeader, *, fenced: bool) -> Hunk | str:
    """Read the lines of a hunk, or return why they cannot be read.

    `fenced`: every line up to the end of the cursor belongs to the diff.
    """
    lines = _read_lines(cursor, header, fenced=fenced)
    while lines and lines[-1] == "":
        lines.pop()
    first = next((i for i, line in enumerate(lines) if line), 0)
    del lines[:first]
    problem = _restore_prefixes(lines)
    if problem:
        return problem
    old, new = _side(lines, "-"), _side(lines, "+")
    sizes = old.count("\n") + first, new.count("\n") + first
    counts = header.counts
    complete = counts is not None and sizes[0] >= counts[0] and sizes[1] >= counts[1]
    line = header.start + first if header.start else None
    if not old:
        inserts = header.start is not None and counts is not None and counts[0] == 0
        line = header.start + 1 if inserts and header.start is not None else None
    return Hunk(old, new, line, header.within, complete)


def _read_lines(cursor: Cursor, header: HunkHeader, *, fenced: bool) -> list[str]:
    """Return the lines with their prefixes."""
    lines: list[str] = []
    old = new = 0
    while cursor.more():
        run = _RUN.match(cursor.text, cursor.pos, cursor.end)
        line = cursor.peek()
        if run:
            text = _before_file_header(cursor, run[0])
            cursor.pos += len(text)
            added = text.removesuffix("\n").split("\n") if text else []
        elif _ENDS.match(cursor.text, cursor.pos, cursor.end):
            break
        elif (
            not fenced
            and not line.startswith("\\")
            and (header.counts == (old, new) or (line and (not lines or lines[-1] == "")))
        ):
            break  # prose after the hunk
        else:
            added = [line]
            cursor.skip()
        lines += added
        old += sum(line[:1] not in ("+", "\\") for line in added)
        new += sum(line[:1] not in ("-", "\\") for line in added)
        if run and len(text) < len(run[0]):
            break
    return lines


def _before_file_header(cursor: Cursor, run: str) -> str:
    """Cut off `---` and `+++` lines at the end that a hunk follows: they are a file header."""
    if not cursor.text.startswith("@@", cursor.pos + len(run)):
        return run
    start = run.rfind("\n--- ", 0, -1) + 1
    return run[:start] if _FILE_HEADER.fullmatch(run, start) else run


def _restore_prefixes(lines: list[str]) -> str | None:
    """Add missing leading spaces to context lines, in place. Return why that would be a guess."""
    if all(line[:1] in " +-\\" for line in lines):
        return None
    spaced = [line for line in lines if line[:1] == " " and line.strip()]
    odd = {(len(line) - len(line.lstrip(" "))) % 2 for line in spaced}
    if len(odd) > 1:
        return "some context lines lack their leading space; begin every line with a space, - or +"
    for index, line in enumerate(lines):
        if not line or line[0] not in " +-\\" or (odd == {0} and line[0] == " "):
            lines[index] = f" {line}"
    return None


def _side(lines: list[str], sign: str) -> str:
    """Return the text of one side, without its last line break if the diff says so."""
    other = "+" if sign == "-" else "-"
    side: list[str] = []
    last, ends_open = " ", False
    for line in lines:
        head = line[:1]
        if head == "\\":
            ends_open = ends_open or last != other
            continue
        last = head
        if head != other:
            side.append(line[1:])
    text = "\n".join(side)
    return text if ends_open or not side else text + "\n"


# ------------------------------------------------------------------- envelopes of `apply_patch`

_SHAPE = "apply_patch envelope"
_FIRST = re.compile(
    r"^[ \t]*\*\*\* ?(?:Begin Patch|(?:Update|Add|Delete) File: ?\S)[^\n]*$", re.MULTILINE
)
_SKIPPED = re.compile(r"\s*|[ \t]*\*\*\* ?Begin Patch\s*")
_END = re.compile(r"[ \t]*\*\*\* ?End Patch\s*")
_FILE = re.compile(r"[ \t]*\*\*\* ?(Update|Add|Delete) File: ?(.*)")
_MOVE = re.compile(r"\*\*\* ?Move to: ?(.*)")
# Lines that close the text around an envelope. They prove that the model had finished it.
_CLOSED = re.compile(r"(?:`{3,}|~{3,}|EOF|PATCH|END)['\"]?\)?\s*")
# File headers of a unified diff, which repeat the path, and the end of a file.
_REPEATED = re.compile(r"(?:--- |\+\+\+ )(?:/dev/null|\"?[ab]?/?[\w.]).*|\*\*\* ?End of File\s*")


def read_envelopes(reply: Reply) -> Outcome:
    """Read all envelopes of a reply as one proposal."""
    edits: list[Edit] = []
    spans: list[tuple[int, int]] = []
    position = 0
    while first := _FIRST.search(reply.text, position):
        envelope = _Envelope(reply, Cursor(reply.text, first.start(), len(reply.text)), edits)
        problem = envelope.read()
        position = max(envelope.cursor.pos, first.end())
        spans.append((first.start(), position))
        if problem is not None:
            return Trouble(problem, spans[-1])
    if not edits:
        return None
    return Reading(PatchProposal(tuple(edits), reader="apply-patch"), tuple(spans))


@dataclass(slots=True)
class _Envelope:
    reply: Reply
    cursor: Cursor
    edits: list[Edit]

    def read(self) -> ParseFailure | None:
        while self.cursor.more():
            line, at = self.cursor.peek(), self.cursor.pos
            if _CLOSED.fullmatch(line) and not self.reply.cut_off:
                return None
            if _CLOSED.fullmatch(line):
                break
            self.cursor.skip()
            if _END.fullmatch(line):
                return None
            file = _FILE.fullmatch(line)
            problem = None
            if file:
                problem = self.section(file[1], file[2].strip().strip("`"))
            elif not _SKIPPED.fullmatch(line):
                problem = 'expected "*** Update File: path" or "*** End Patch"'
            if problem is not None:
                return malformed(self.reply, _SHAPE, at, problem)
        return truncated(f'{_SHAPE}: the text ends before "*** End Patch"')

    def section(self, verb: str, path: str) -> str | None:
        """Read what follows the line that names a file; return what is wrong."""
        if verb == "Update":
            return self.update(path)
        if verb == "Delete":
            self.edits.append(DeleteFile(path))
            return None
        hunk = read_hunk(self.cursor, HunkHeader(), fenced=True)
        if isinstance(hunk, str) or hunk.old.strip():
            return f"Add File {path}: every line of a new file begins with +"
        self.edits.append(CreateFile(path, hunk.new))
        return None

    def update(self, path: str) -> str | None:
        cursor, before = self.cursor, len(self.edits)
        move = _MOVE.fullmatch(cursor.peek())
        if move:
            cursor.skip()
        while cursor.more():
            header = self.anchors()
            if _REPEATED.fullmatch(cursor.peek()) and header == HunkHeader():
                cursor.skip()
                continue
            if self.ends():
                break
            start = cursor.pos
            hunk = read_hunk(cursor, header, fenced=True)
            edit = hunk if isinstance(hunk, str) else hunk.edit(path)
            if cursor.pos == start:
                edit = "begin every line of a hunk with a space, - or +"
            if isinstance(edit, str):
                return f"Update File {path}: {edit}"
            if edit is not None:
                self.edits.append(edit)
        if move:
            self.edits.append(RenameFile(path, move[1].strip()))
        if len(self.edits) == before:
            return f"Update File {path}: no line is added or removed"
        return None

    def anchors(self) -> HunkHeader:
        """Read the `@@` lines at this point, outermost first."""
        headers: list[HunkHeader] = []
        while self.cursor.more() and self.cursor.peek().startswith("@@"):
            headers.append(read_header(self.cursor.peek()))
            self.cursor.skip()
        within = "\n".join(header.within for header in headers if header.within)
        return HunkHeader(next((h.start for h in headers if h.start), None), within=within)

    def ends(self) -> bool:
        """Whether the section ends here, after blank lines perhaps, which are skipped then."""
        rest = Cursor(self.cursor.text, self.cursor.pos, self.cursor.end)
        while rest.more() and not rest.peek().strip():
            rest.skip()
        blank = rest.pos > self.cursor.pos
        line = rest.peek()
        if rest.more() and not line.startswith("*** ") and (blank or not _CLOSED.fullmatch(line)):
            return False
        self.cursor.pos = rest.pos
        return True
