"""Envelopes of the tool `apply_patch`, also inside a here-document of a shell.

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

from agent.patching.readers.hunks import Cursor, HunkHeader, read_header, read_hunk
from agent.patching.readers.reply import Outcome, Reading, Reply, Trouble, malformed, truncated
from agent.types import CreateFile, DeleteFile, Edit, ParseFailure, PatchProposal, RenameFile

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
