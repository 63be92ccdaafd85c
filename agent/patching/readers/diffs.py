"""Unified diffs as models write them: with right, wrong or no line numbers, fenced or bare.

Each hunk becomes one edit, and its line number is a hint. Where `---` and `+++` name different
files without a line about renaming, the old name counts: models make up new ones like
`patched_x.c`. Hunks without file headers belong to the file named above them. Well-formed diffs
that do not come from a model are read by `agent.repository.unified_diff`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.patching.readers.hunks import Cursor, Hunk, HunkHeader, read_header, read_hunk
from agent.patching.readers.reply import (
    Outcome,
    Reading,
    Reply,
    Trouble,
    find_fences,
    malformed,
    path_above,
    path_of_info,
    path_on_line,
    truncated,
)
from agent.types import CreateFile, DeleteFile, Edit, ParseFailure, PatchProposal, RenameFile

_SHAPE = "unified diff"
_NOWHERE = "/dev/null"
_START = re.compile(
    r"^(?:diff --git \S|--- \S[^\n]*\n\+\+\+ \S|@@(?=[ \t]*(?:\n|[-.…@\w]))"
    r"|(?:`{3,}|~{3,})(?:diff|patch)[ \t]*\n(?=[ +-]))",
    re.MULTILINE,
)
_INDENTED = re.compile(
    r"^[ \t]{1,12}(?:diff --git \S|--- \S[^\n]*\n[ \t]{1,12}\+\+\+ \S)", re.MULTILINE
)
_TIME = re.compile(
    r"(?:\t.*|\s+\d{4}-\d\d-\d\d[ T].*|\s+\((?:original|modified|updated|new|old)\))$"
)
_GIT_PATHS = re.compile(r'diff --git (?:"?a/(.+?)"?) (?:"?b/(.+?)"?)$')
_NOISE = re.compile(r"\s*$|index |similarity index |dissimilarity index |={20,}|Index: ")
_DIFF_FENCES = frozenset({"", "diff", "patch", "udiff", "text", "txt", "git", "plaintext"})
_OTHER_MARKERS = re.compile(r"[ \t]*(?:<{5,9} ?\w|\*\*\* )")
# Copies, binary patches, changes of mode, and modes of symbolic links and submodules.
_UNSUPPORTED = re.compile(
    r"copy (?:from|to) |GIT binary patch|Binary files |(?:old|new) mode |new file mode (?:12|16)"
)


def read_diffs(reply: Reply) -> Outcome:
    """Read all diffs of a reply as one proposal."""
    text = reply.text
    edits: list[Edit] = []
    spans: list[tuple[int, int]] = []
    position, path = 0, ""
    while start := _START.search(text, position):
        region = _region(text, start, position)
        if region.of_code and start[0].endswith("@@"):
            position = max(region.outer_end, start.end())  # a decorator's line, say
            continue
        above = path_above(text, region.outer, position, path, infer=True)
        diff = _Diff(reply, region, above or "", Cursor(text, region.start, region.end))
        trouble = diff.read()
        if trouble is not None:
            return trouble
        end = region.outer_end if region.fenced else diff.cursor.pos
        position = max(end, start.end())
        if diff.last or diff.edits:
            spans.append((region.outer, end))
        if diff.edits:
            path = diff.edits[-1].path
        edits.extend(diff.edits)
    ends = [0, *(offset for span in spans for offset in span), len(text)]
    gaps = zip(ends[::2], ends[1::2], strict=True)
    indented = next(filter(None, (_INDENTED.search(text, *gap) for gap in gaps)), None)
    if indented:
        what = "the diff is indented; begin its lines at the margin"
        return Trouble(malformed(reply, _SHAPE, indented.start(), what), indented.span())
    if not spans:
        return None
    around = (spans[0][0], spans[-1][1])
    if reply.cut_off:
        what = "the reply was cut off at the output limit; further hunks may be missing"
        return Trouble(truncated(what), around)
    if not edits:
        what = f"{_SHAPE}, {reply.place(around[0])}: no hunk of it changes anything"
        return Trouble(ParseFailure("no-edit", what), around)
    return Reading(PatchProposal(tuple(edits), reader="unified-diff"), tuple(spans))


@dataclass(frozen=True, slots=True)
class _Region:
    """The part of a reply that holds a diff; `outer` and `outer_end` include the fence.

    `of_code`: the info string of the fence names another language than a diff.
    """

    start: int
    end: int
    outer: int
    outer_end: int
    fenced: bool = False
    closed: bool = True
    of_code: bool = False


def _region(text: str, start: re.Match[str], floor: int) -> _Region:
    first = start.start()
    before = find_fences(text[floor : start.end() if start[0][0] in "`~" else first])
    if not before or before[-1].closed:
        return _Region(first, len(text), first, len(text))  # prose may follow
    fence = before[-1]
    of_code = fence.info.split(" ")[0].lower() not in _DIFF_FENCES and not path_of_info(fence.info)
    body, outer = floor + fence.body, floor + fence.start
    sign = text[outer + fence.indent] * 3
    close = re.compile(rf"^[ \t]{{0,{fence.indent}}}{sign}+[ \t]*$", re.MULTILINE)
    match = close.search(text, max(body, first))
    end, outer_end = match.span() if match else (len(text), len(text))
    return _Region(body, end, outer, outer_end, True, match is not None, of_code)


@dataclass(slots=True)
class _File:
    """The file that the hunks being read belong to. `headers`: of its --- and +++ lines."""

    old: str = ""
    new: str = ""
    created: bool = False
    deleted: bool = False
    renamed: bool = False
    headers: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    def awaits(self, old: str, new: str) -> bool:
        """Whether `---` and `+++` lines with these names belong to this git header."""
        one_side = _NOWHERE in (old, new) and (self.old == old or self.new == new)
        one_side = one_side and not self.renamed
        return (
            not self.headers and not self.hunks and (one_side or (self.old, self.new) == (old, new))
        )

    @property
    def path(self) -> str:
        """The path of the file in the repository, or of the new file."""
        made_up = self.old in ("", _NOWHERE, f"{self.new}.orig")
        return self.new if made_up else self.old


@dataclass(slots=True)
class _Diff:
    """A region that is read line by line. `last`: the last hunk."""

    reply: Reply
    region: _Region
    above: str
    cursor: Cursor
    file: _File | None = None
    edits: list[Edit] = field(default_factory=list)
    last: Hunk | None = None

    def read(self) -> Trouble | None:
        while self.cursor.more():
            at = self.cursor.pos
            problem = self.line(self.cursor.peek())
            if problem is not None:
                return self.trouble(at, problem)
            if self.cursor.pos == at:
                break  # prose after a diff without a fence
        problem = self.finish_file()
        if problem is not None:
            return self.trouble(self.cursor.pos, problem)
        ended = self.last is None or (self.last.complete and self.reply.text[-1:] == "\n")
        if not self.region.closed and not ended:
            what = f"{_SHAPE}: the text ends inside a hunk and an open code fence"
            return Trouble(truncated(what), (self.region.outer, len(self.reply.text)))
        return None

    def trouble(self, at: int, what: str) -> Trouble:
        end = self.region.outer_end if self.region.fenced else at + 1
        return Trouble(malformed(self.reply, _SHAPE, at, what), (self.region.outer, end))

    def line(self, line: str) -> str | None:
        """Read the next lines; return what is wrong. Nothing is read where the diff ends."""
        in_hunk = self.region.fenced and line[:1] in (" ", "+", "-", "\\")
        if line.startswith("@@"):
            self.cursor.skip()
            return self.hunk(read_header(line))
        if line.startswith("diff --git "):
            return self.git_header(line)
        if line.startswith(("--- ", "+++ ")):
            return self.file_header(line)
        if _UNSUPPORTED.match(line):
            return (
                "copies, links, modes and binary patches are not taken; give the text of the file"
            )
        if _NOISE.match(line) or self.extended_header(line):
            self.cursor.skip()
            return None
        if in_hunk and self.region.of_code and self.file is None:
            return "code above the header of a diff; put code and diff into fences of their own"
        if in_hunk:
            return self.hunk(HunkHeader())
        return self.words(line) if self.region.fenced else None

    def words(self, line: str) -> str | None:
        """Read a line of a fence that belongs to no diff. It may be the path of the next one."""
        if _OTHER_MARKERS.match(line):
            self.cursor.pos = self.cursor.end
            return None
        self.cursor.skip()
        path = path_on_line(line)
        if path and (self.file is None or not self.file.headers):
            self.above = path
        elif self.file is not None or self.edits:
            return (
                "a line that is no part of a diff; begin every line of a hunk with a space, - or +"
            )
        return None

    def git_header(self, line: str) -> str | None:
        problem = self.finish_file()
        self.cursor.skip()
        paths = _GIT_PATHS.match(line)
        self.file = _File(_unquoted(paths[1]), _unquoted(paths[2])) if paths else _File()
        return problem

    def file_header(self, line: str) -> str | None:
        following = self.cursor.text.startswith("+++ ", self.cursor.pos + len(line) + 1)
        self.cursor.skip()
        old = new = _path(line)
        if line.startswith("--- ") and following:
            new = _path(self.cursor.peek())
            self.cursor.skip()
        old, new = _without_prefixes(old, new)
        problem = None
        if self.file is None or not self.file.awaits(old, new):
            problem = self.finish_file()
            self.file = _File()
        self.file.old, self.file.new, self.file.headers = old, new, True
        self.file.created |= old == _NOWHERE
        self.file.deleted |= new == _NOWHERE
        return problem

    def extended_header(self, line: str) -> bool:
        file = self.file
        if file is None or file.headers:
            return False
        if line.startswith("new file mode"):
            file.created = True
        elif line.startswith("deleted file mode"):
            file.deleted = True
        elif line.startswith("rename from "):
            file.old = _unquoted(line.removeprefix("rename from ").strip())
        elif line.startswith("rename to "):
            file.new, file.renamed = _unquoted(line.removeprefix("rename to ").strip()), True
        else:
            return False
        return True

    def hunk(self, header: HunkHeader) -> str | None:
        if self.file is None:
            if not self.above:
                return 'a hunk without its file; put "--- a/path" and "+++ b/path" above it'
            self.file = _File(self.above, self.above)
        hunk = read_hunk(self.cursor, header, fenced=self.region.fenced)
        if isinstance(hunk, str):
            return hunk
        self.last = hunk
        self.file.hunks.append(hunk)
        return None

    def finish_file(self) -> str | None:
        """Turn the file read so far into edits; return why that is impossible."""
        file, self.file = self.file, None
        if file is None:
            return None
        if file.deleted:
            self.edits.append(DeleteFile(file.old))
            return None
        if file.created and any(hunk.old for hunk in file.hunks):
            return f"{file.new}: a new file has no old lines; every line of it begins with +"
        if file.created:
            self.edits.append(CreateFile(file.new, "".join(hunk.new for hunk in file.hunks)))
            return None
        for hunk in file.hunks:
            edit = hunk.edit(file.path)
            if isinstance(edit, str):
                return f"{file.path}: {edit}"
            if edit is not None:
                self.edits.append(edit)
        if file.renamed:
            self.edits.append(RenameFile(file.old, file.new))
        return None


def _path(line: str) -> str:
    """Return the path of a `---` or `+++` line."""
    return _unquoted(_TIME.sub("", line[4:].strip()).strip())


_PLAIN = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def _unquoted(path: str) -> str:
    """Undo the C-style quotes that git puts around unusual names."""
    bare = path.strip("`")
    if len(bare) < 2 or bare[0] != '"' or bare[-1] != '"':
        return bare.removesuffix('"') if '"' not in bare[:-1] else bare
    raw = re.sub(
        r"\\([0-7]{3}|.)",
        lambda m: chr(int(m[1], 8) & 0xFF) if m[1].isdigit() else _PLAIN.get(m[1], m[1]),
        bare[1:-1].encode("utf-8", "surrogatepass").decode("latin-1"),
    )
    return raw.encode("latin-1").decode("utf-8", "replace")


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Drop the prefixes a/ and b/ if both sides have them, or the only side that is a path."""
    a, b = old.startswith("a/"), new.startswith("b/")
    if (a or old == _NOWHERE) and (b or new == _NOWHERE):
        return old[2:] if a else old, new[2:] if b else new
    if a and old[2:] == new:
        return new, new
    if b and new[2:] == old:
        return old, old
    return old, new
