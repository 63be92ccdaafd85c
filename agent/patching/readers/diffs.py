"""Unified diffs as models write them: with right, wrong or no line numbers, fenced or bare.

Each hunk becomes one edit, and its line number is a hint. Where `---` and `+++` name different
files without a line about renaming, the old name counts: models make up new ones like
`patched_x.c`. Hunks without file headers belong to the file named above them. Well-formed diffs
that do not come from a model are read by `agent.repository.unified_diff`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.patching.readers.hunks import Cursor, Hunk, HunkHeader, hunk_edit, read_header, read_hunk
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
from agent.patching.schema import MAX_EDITS
from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    ParseFailure,
    PatchProposal,
    RenameFile,
)

_SHAPE = "unified diff"
_NOWHERE = "/dev/null"
_START = re.compile(
    r"^[ \t]{0,12}(?:diff --git \S|--- \S[^\n]*\n[ \t]{0,12}\+\+\+ \S"
    r"|@@(?=[ \t]*(?:\n|[-.…@\w])))|^[ \t]{0,12}(?:`{3,}|~{3,})(?:diff|patch)[ \t]*\n(?=[ +-])",
    re.MULTILINE,
)
_TIME = re.compile(
    r"(?:\t.*|\s+\d{4}-\d\d-\d\d[ T].*|\s+\((?:original|modified|updated|new|old)\))$"
)
_GIT_PATHS = re.compile(r'diff --git (?:"?a/(.+?)"?) (?:"?b/(.+?)"?)$')
_NOISE = re.compile(r"(?:index |similarity index |dissimilarity index |={20,}|Index: )")
_UNSUPPORTED = re.compile(r"(copy (?:from|to) |GIT binary patch|Binary files )")
_DIFF_FENCES = frozenset({"", "diff", "patch", "udiff", "text", "txt", "git", "plaintext"})
_OTHER_MARKERS = re.compile(r"[ \t]*(?:<{5,9} ?\w|\*\*\* )")


def read_diffs(reply: Reply) -> Outcome:
    """Read all diffs of a reply as one proposal."""
    text = reply.text
    if "@@" not in text and "+++ " not in text and "diff" not in text:
        return None
    edits: list[Edit] = []
    spans: list[tuple[int, int]] = []
    position, floor, path = 0, 0, ""
    while True:
        start = _START.search(text, position)
        if start is None:
            break
        region = _region(text, start.start(), floor)
        if region.fenced and region.of_code and text[start.start() : start.end()].endswith("@@"):
            position = floor = max(region.outer_end, start.end())  # a decorator's line, say
            continue
        above = path_above(text, region.outer, floor, path, infer=True)
        outcome = _Diff(reply, region, above or "").read()
        if isinstance(outcome, Trouble):
            return outcome
        if outcome.hunks or outcome.edits:
            spans.append((region.outer, outcome.end))
        if outcome.edits:
            path = outcome.edits[-1].path
        edits.extend(outcome.edits)
        position = floor = max(outcome.end, start.end())
        if len(edits) > MAX_EDITS:
            what = f"more than {MAX_EDITS} hunks"
            return Trouble(malformed(reply, _SHAPE, start.start(), what), (start.start(), position))
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


# ----------------------------------------------------------------------------------------- regions


@dataclass(frozen=True, slots=True)
class _Region:
    """The part of a reply that holds a diff.

    `text` is the reply, or the content of an indented fence. `start` and `end` are offsets in it;
    `outer` and `outer_end` are offsets in the reply and include the fence.
    """

    text: str
    start: int
    end: int
    outer: int
    outer_end: int
    fenced: bool
    closed: bool
    shift: int  # offset in the reply at which `text` begins
    of_code: bool = False  # the info string of the fence names another language than a diff


def _region(text: str, start: int, floor: int) -> _Region:
    line_end = text.find("\n", start)
    opener = text[start:line_end].lstrip(" \t").startswith(("```", "~~~"))
    before = find_fences(text[floor : line_end + 1 if opener else start])
    if not before or before[-1].closed:
        # Prose may follow. An indented diff needs a fence that shows its indentation.
        return _Region(text, start, len(text), start, len(text), False, True, 0)
    fence = before[-1]
    of_code = fence.info.split(" ")[0].lower() not in _DIFF_FENCES and not path_of_info(fence.info)
    body, outer = floor + fence.body, floor + fence.start
    sign = text[outer + fence.indent] * 3
    close = re.compile(rf"^[ \t]{{0,{fence.indent}}}{re.escape(sign)}+[ \t]*$", re.MULTILINE)
    match = close.search(text, max(body, start if not opener else body))
    end, outer_end = (match.start(), match.end()) if match else (len(text), len(text))
    if not fence.indent:
        return _Region(text, body, end, outer, outer_end, True, match is not None, 0, of_code)
    pad = text[outer : outer + fence.indent]
    inner = "\n".join(line.removeprefix(pad) for line in text[body:end].split("\n"))
    return _Region(inner, 0, len(inner), outer, outer_end, True, match is not None, body, of_code)


# ------------------------------------------------------------------------------------------- files

# Modes of git: 120000 is a symbolic link, 160000 a submodule.
_SPECIAL_MODE = re.compile(r"new (?:file )?mode (?:12|16)")


@dataclass(slots=True)
class _File:
    """The file that the hunks being read belong to."""

    old: str = ""
    new: str = ""
    created: bool = False
    deleted: bool = False
    renamed_from: str = ""
    renamed_to: str = ""
    mode: bool = False
    special: bool = False  # a symbolic link or a submodule
    headers: bool = False  # its --- and +++ lines have been seen
    hunks: list[Hunk] = field(default_factory=list)

    def awaits(self, names: tuple[str, str]) -> bool:
        """Whether `---` and `+++` lines with these names belong to this git header."""
        announced = {(self.old, self.new), (self.renamed_from, self.renamed_to)}
        one_side = _NOWHERE in names and (self.old in names or self.new in names)
        one_side = one_side and not self.renamed_from
        fits = not (self.old or self.renamed_from) or one_side or names in announced
        return fits and not self.headers and not self.hunks

    @property
    def path(self) -> str:
        """The path of the file in the repository, or of the new file."""
        if self.renamed_from:
            return self.renamed_from
        if self.old == _NOWHERE or not self.old:
            return self.new
        for suffix in (".orig", ".old", ".bak"):
            if self.old == self.new + suffix:
                return self.new
        return self.old


@dataclass(frozen=True, slots=True)
class _Edits:
    edits: tuple[Edit, ...]
    hunks: int
    end: int


class _Diff:
    def __init__(self, reply: Reply, region: _Region, above: str) -> None:
        self.reply = reply
        self.region = region
        self.above = above
        self.cursor = Cursor(region.text, region.start, region.end)
        self.file: _File | None = None
        self.edits: list[Edit] = []
        self.last: Hunk | None = None
        self.hunks = 0

    def read(self) -> _Edits | Trouble:
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
        if not self.region.closed and not self.has_ended():
            what = f"{_SHAPE}: the text ends inside a hunk and an open code fence"
            return Trouble(truncated(what), (self.region.outer, len(self.reply.text)))
        end = self.region.outer_end if self.region.fenced else self.cursor.pos
        return _Edits(tuple(self.edits), self.hunks, end)

    def has_ended(self) -> bool:
        """Whether a diff in an open fence has all the lines that its last header promised."""
        last = self.last
        return last is None or (last.counted and not last.short and self.reply.text[-1:] == "\n")

    def trouble(self, at: int, what: str) -> Trouble:
        offset = min(at + self.region.shift, len(self.reply.text))
        span = (self.region.outer, self.region.outer_end if self.region.fenced else offset + 1)
        return Trouble(malformed(self.reply, _SHAPE, offset, what), span)

    # ---------------------------------------------------------------------------------- lines

    def line(self, line: str) -> str | None:
        """Read the next lines; return what is wrong. Nothing is read where the diff ends."""
        if line.startswith("@@"):
            self.cursor.skip()
            return self.hunk(read_header(line))
        if line.startswith("diff --git "):
            return self.git_header(line)
        if line.startswith(("--- ", "+++ ")):
            return self.file_header(line)
        if self.extended_header(line) or not line.strip() or _NOISE.match(line):
            self.cursor.skip()
            return None
        if _UNSUPPORTED.match(line):
            return "copies and binary patches are not taken; give the text of the file"
        if line[:1] in (" ", "+", "-", "\\") and self.region.fenced:
            if self.region.of_code and self.file is None:
                return "code above the header of a diff; put code and diff into fences of their own"
            return self.hunk(HunkHeader())
        if not self.region.fenced:
            return None
        return self.words(line)

    def words(self, line: str) -> str | None:
        """Read a line of a fence that belongs to no diff. It may be the path of the next one."""
        if _OTHER_MARKERS.match(line):
            self.cursor.pos = self.cursor.end
            return None
        self.cursor.skip()
        path = path_on_line(line)
        if path and (self.file is None or not self.file.headers):
            self.above = path
            return None
        if self.file is None and not self.edits:
            return None
        return "a line that is no part of a diff; begin every line of a hunk with a space, - or +"

    def git_header(self, line: str) -> str | None:
        problem = self.finish_file()
        self.cursor.skip()
        paths = _GIT_PATHS.match(line)
        self.file = _File()
        if paths:
            self.file.old, self.file.new = _unquoted(paths[1]), _unquoted(paths[2])
        return problem

    def file_header(self, line: str) -> str | None:
        following = self.cursor.text.startswith("+++ ", self.cursor.pos + len(line) + 1)
        self.cursor.skip()
        old = new = _path(line)
        if line.startswith("--- ") and following:
            new = _path(self.cursor.peek())
            self.cursor.skip()
        names = _without_prefixes(old, new)
        problem = None
        if self.file is None or not self.file.awaits(names):
            problem = self.finish_file()
            self.file = _File()
        self.file.old, self.file.new = names
        self.file.headers = True
        self.file.created |= old == _NOWHERE
        self.file.deleted |= new == _NOWHERE
        return problem

    def extended_header(self, line: str) -> bool:
        file = self.file
        if file is None or file.headers:
            return False
        if _SPECIAL_MODE.match(line):
            file.special = True
        if line.startswith("new file mode"):
            file.created = True
        elif line.startswith("deleted file mode"):
            file.deleted = True
        elif line.startswith("rename from "):
            file.renamed_from = _unquoted(line.removeprefix("rename from ").strip())
        elif line.startswith("rename to "):
            file.renamed_to = _unquoted(line.removeprefix("rename to ").strip())
        elif line.startswith(("old mode", "new mode")):
            file.mode = True
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
        self.hunks += 1
        if self.hunks > MAX_EDITS:
            return f"more than {MAX_EDITS} hunks"
        self.file.hunks.append(hunk)
        return None

    # ---------------------------------------------------------------------------------- edits

    def finish_file(self) -> str | None:
        """Turn the file read so far into edits; return why that is impossible."""
        file, self.file = self.file, None
        if file is None:
            return None
        if file.special:
            return f"{file.path}: links and submodules are not made, only files with their content"
        if file.mode and not file.hunks and not file.renamed_to:
            return f"{file.path}: a change of mode only; modes are not changed"
        if file.deleted:
            self.edits.append(DeleteFile(file.old))
            return None
        if file.created:
            return self.finish_new(file)
        for hunk in file.hunks:
            edit = hunk_edit(file.path, hunk)
            if isinstance(edit, str):
                return f"{file.path}: {edit}"
            if edit is not None:
                self.edits.append(edit)
        if file.renamed_from and file.renamed_to:
            self.edits.append(RenameFile(file.renamed_from, file.renamed_to))
        return None

    def finish_new(self, file: _File) -> str | None:
        if any(hunk.old for hunk in file.hunks):
            return f"{file.new}: a new file has no old lines; every line of it begins with +"
        self.edits.append(CreateFile(file.new, "".join(hunk.new for hunk in file.hunks)))
        return None


# ------------------------------------------------------------------------------------------- paths


def _path(line: str) -> str:
    """Return the path of a `---` or `+++` line."""
    return _unquoted(_TIME.sub("", line[4:].strip()).strip())


def _unquoted(path: str) -> str:
    """Undo the C-style quotes that git puts around unusual names."""
    bare = path.strip("`")
    if len(bare) < 2 or bare[0] != '"' or bare[-1] != '"':
        return bare.removesuffix('"') if '"' not in bare[:-1] else bare
    plain = {"n": b"\n", "t": b"\t", '"': b'"', "\\": b"\\"}
    raw = re.sub(
        rb"\\([0-7]{3}|.)",
        lambda m: (
            bytes([int(m[1], 8) & 0xFF])
            if m[1].isdigit()
            else plain.get(m[1].decode("latin-1"), m[1])
        ),
        bare[1:-1].encode("utf-8", "surrogatepass"),
    )
    return raw.decode("utf-8", "replace")


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Drop the prefixes a/ and b/ if both sides have them, or the only side that is a path."""
    a, b = old.startswith("a/"), new.startswith("b/")
    if old == _NOWHERE:
        return old, new[2:] if b else new
    if new == _NOWHERE:
        return old[2:] if a else old, new
    if a and b:
        return old[2:], new[2:]
    if old[2:] == new and a:
        return new, new
    if new[2:] == old and b:
        return old, old
    return old, new
