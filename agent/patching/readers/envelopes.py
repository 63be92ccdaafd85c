"""Envelopes of the tool `apply_patch`, also inside a here-document of a shell. Lines `@@ def
method` between hunks name the code around them and are skipped. Grammar: openai/codex,
codex-rs/apply-patch/apply_patch_tool_instructions.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from agent.patching.readers.diffs import NO_HEADER, Cursor, problem_of, read_header, read_hunk
from agent.patching.readers.reply import Outcome, Reading, Reply, Trouble, malformed, truncated
from agent.types import CreateFile, DeleteFile, Edit, PatchProposal, RenameFile

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
        trouble = envelope.read()
        position = max(envelope.cursor.pos, first.end())
        if trouble is not None:
            return trouble
        spans.append((first.start(), position))
    return (
        Reading(PatchProposal(tuple(edits), reader="apply-patch"), tuple(spans)) if edits else None
    )


@dataclass(slots=True)
class _Envelope:
    reply: Reply
    cursor: Cursor
    edits: list[Edit]

    def read(self) -> Trouble | None:
        start = self.cursor.pos
        while self.cursor.more():
            line = self.cursor.peek()
            if _CLOSED.fullmatch(line):
                if self.reply.cut_off:
                    break
                return None
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
                return malformed(self.reply, _SHAPE, (start, self.cursor.pos), problem)
        what = f'{_SHAPE}: the text ends before "*** End Patch"'
        return Trouble(truncated(what), ((start, self.cursor.pos),))

    def section(self, verb: str, path: str) -> str | None:
        """Read what follows the line that names a file; return what is wrong."""
        if verb == "Update":
            return self.update(path)
        if verb == "Delete":
            self.edits.append(DeleteFile(path))
            return None
        hunk = read_hunk(self.cursor, NO_HEADER, fenced=True)
        if isinstance(hunk, str) or hunk.search.strip():
            return f"Add File {path}: every line of a new file begins with +"
        self.edits.append(CreateFile(path, hunk.replace))
        return None

    def update(self, path: str) -> str | None:
        cursor, before = self.cursor, len(self.edits)
        move = _MOVE.fullmatch(cursor.peek())
        if move:
            cursor.skip()
        while True:
            header = NO_HEADER
            while cursor.more() and cursor.peek().startswith("@@"):
                header = read_header(cursor.peek())
                cursor.skip()
            if self.ends():
                break
            if _REPEATED.fullmatch(cursor.peek()) and header == NO_HEADER:
                cursor.skip()
                continue
            start = cursor.pos
            hunk = read_hunk(cursor, header, fenced=True)
            problem = hunk if isinstance(hunk, str) else problem_of(hunk)
            if cursor.pos == start:
                problem = "begin every line of a hunk with a space, - or +"
            if isinstance(hunk, str) or problem is not None:
                return f"Update File {path}: {problem}"
            if hunk.search != hunk.replace:
                self.edits.append(replace(hunk, path=path))
        if move:
            self.edits.append(RenameFile(path, move[1].strip()))
        if len(self.edits) == before:
            return f"Update File {path}: no line is added or removed"
        return None

    def ends(self) -> bool:
        """Whether the section ends here, after blank lines perhaps, which are skipped then."""
        rest = Cursor(self.cursor.text, self.cursor.pos, self.cursor.end)
        while rest.more() and not rest.peek().strip():
            rest.skip()
        line, blank = rest.peek(), rest.pos > self.cursor.pos
        is_marker = line.startswith("*** ") and not _REPEATED.fullmatch(line)
        if rest.more() and not is_marker and (blank or not _CLOSED.fullmatch(line)):
            return False
        self.cursor.pos = rest.pos
        return True
