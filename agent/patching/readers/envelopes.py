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

from agent.patching.readers.hunks import Cursor, HunkHeader, hunk_edit, read_header, read_hunk
from agent.patching.readers.reply import Outcome, Reading, Reply, Trouble, malformed, truncated
from agent.patching.schema import MAX_EDITS
from agent.types import CreateFile, DeleteFile, Edit, ParseFailure, PatchProposal, RenameFile

_SHAPE = "apply_patch envelope"
_FIRST = re.compile(
    r"^[ \t]*\*\*\* ?(?:Begin Patch|(?:Update|Add|Delete) File: ?\S)[^\n]*$", re.MULTILINE
)
_BEGIN = re.compile(r"[ \t]*\*\*\* ?Begin Patch\s*")
_END = re.compile(r"[ \t]*\*\*\* ?End Patch\s*")
_FILE = re.compile(r"[ \t]*\*\*\* ?(Update|Add|Delete) File: ?(.*)")
_MOVE = re.compile(r"\*\*\* ?Move to: ?(.*)")
_END_OF_FILE = re.compile(r"\*\*\* ?End of File\s*")
# Lines that close the text around an envelope. They prove that the model had finished it.
_CLOSED = re.compile(r"(?:`{3,}|~{3,}|EOF|PATCH|END)['\"]?\)?\s*")
_UNIFIED = re.compile(r"(?:--- |\+\+\+ )(?:/dev/null|\"?[ab]?/?[\w.])")


def read_envelopes(reply: Reply) -> Outcome:
    """Read all envelopes of a reply as one proposal."""
    if "*** " not in reply.text and "***Begin" not in reply.text:
        return None
    edits: list[Edit] = []
    spans: list[tuple[int, int]] = []
    position = 0
    while first := _FIRST.search(reply.text, position):
        envelope = _Envelope(reply, first.start())
        problem = envelope.read()
        position = max(envelope.cursor.pos, first.end())
        span = (first.start(), position)
        if problem is not None:
            return Trouble(problem, span)
        edits.extend(envelope.edits)
        spans.append(span)
        if len(edits) > MAX_EDITS:
            what = f"more than {MAX_EDITS} edits"
            return Trouble(malformed(reply, _SHAPE, first.start(), what), span)
    if not edits:
        return None
    return Reading(PatchProposal(tuple(edits), reader="apply-patch"), tuple(spans))


class _Envelope:
    def __init__(self, reply: Reply, start: int) -> None:
        self.reply = reply
        self.cursor = Cursor(reply.text, start, len(reply.text))
        self.edits: list[Edit] = []

    def read(self) -> ParseFailure | None:
        if _BEGIN.fullmatch(self.cursor.peek()):
            self.cursor.skip()
        while self.cursor.more():
            line = self.cursor.peek()
            at = self.cursor.pos
            file = _FILE.fullmatch(line)
            if file:
                self.cursor.skip()
                problem = self.section(file[1], file[2].strip().strip("`"))
                if problem is not None:
                    return malformed(self.reply, _SHAPE, at, problem)
            elif _END.fullmatch(line):
                self.cursor.skip()
                return None
            elif _CLOSED.fullmatch(line):
                return self.cut() if self.reply.cut_off else None
            elif line.strip():
                what = 'expected "*** Update File: path" or "*** End Patch"'
                return malformed(self.reply, _SHAPE, at, what)
            else:
                self.cursor.skip()
        return self.cut()

    def cut(self) -> ParseFailure:
        return truncated(f'{_SHAPE}: the text ends before "*** End Patch"')

    def section(self, verb: str, path: str) -> str | None:
        match verb:
            case "Delete":
                self.edits.append(DeleteFile(path))
                return None
            case "Add":
                return self.add(path)
            case _:
                return self.update(path)

    def add(self, path: str) -> str | None:
        hunk = read_hunk(self.cursor, HunkHeader(), fenced=True)
        if isinstance(hunk, str) or hunk.old.strip():
            return f"Add File {path}: every line of a new file begins with +"
        self.edits.append(CreateFile(path, hunk.new))
        return None

    def update(self, path: str) -> str | None:
        move = _MOVE.fullmatch(self.cursor.peek())
        if move:
            self.cursor.skip()
        before = len(self.edits)
        while self.cursor.more():
            anchors = self.anchors()
            if _UNIFIED.match(self.cursor.peek()) and not anchors:
                self.cursor.skip()  # file headers of a unified diff repeat the path
                continue
            if self.ends():
                break
            problem = self.hunk(path, anchors)
            if problem is not None:
                return problem
            if _END_OF_FILE.fullmatch(self.cursor.peek()):
                self.cursor.skip()
        if move:
            self.edits.append(RenameFile(path, move[1].strip()))
        if len(self.edits) == before:
            return f"Update File {path}: no line is added or removed"
        return None

    def hunk(self, path: str, anchors: list[HunkHeader]) -> str | None:
        start = self.cursor.pos
        within = "\n".join(anchor.within for anchor in anchors if anchor.within)
        line = next((anchor.start for anchor in anchors if anchor.start), None)
        hunk = read_hunk(self.cursor, HunkHeader(line, within=within), fenced=True)
        if isinstance(hunk, str):
            return f"Update File {path}: {hunk}"
        if self.cursor.pos == start:
            return f"Update File {path}: begin every line of a hunk with a space, - or +"
        edit = hunk_edit(path, hunk)
        if isinstance(edit, str):
            return f"Update File {path}: {edit}"
        if edit is not None:
            self.edits.append(edit)
        return None

    def anchors(self) -> list[HunkHeader]:
        """Read the `@@` lines at this point, outermost first."""
        found: list[HunkHeader] = []
        while self.cursor.more() and self.cursor.peek().startswith("@@"):
            found.append(read_header(self.cursor.peek()))
            self.cursor.skip()
        return found

    def ends(self) -> bool:
        line = self.cursor.peek()
        if line.startswith("*** ") or _CLOSED.fullmatch(line):
            return True
        if not line.strip() and self.cursor.more():
            rest = Cursor(self.cursor.text, self.cursor.pos, self.cursor.end)
            while rest.more() and not rest.peek().strip():
                rest.skip()
            ended = not rest.more() or rest.peek().startswith("*** ")
            if ended:
                self.cursor.pos = rest.pos
            return ended
        return not self.cursor.more()
