"""Unified diffs as models write them: with right, wrong or no line numbers, fenced or bare. Each
hunk becomes one edit, and its line number is a hint. Hunks without file headers belong to the file
named above them. Diffs of programs are read by `agent.repository.unified_diff`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from agent.patching.readers.reply import (
    Outcome,
    Reply,
    Trouble,
    find_fences,
    malformed,
    path_above,
    paths_on_line,
    read_edits,
    truncated,
)
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


# The first old line and the numbers of old and new lines, where a line `@@` gives them.
HunkHeader = tuple[int | None, tuple[int, int] | None]
NO_HEADER: HunkHeader = (None, None)


def read_header(line: str) -> HunkHeader:
    """Read a line that begins with `@@`."""
    ranges = line.lstrip("@").partition("@@")[0]
    old, new = _OLD.search(ranges), _NEW.search(ranges)
    counts = (int(old[2] or 1), int(new[2] or 1)) if old and new else None
    return int(old[1]) if old else None, counts


def read_hunk(cursor: Cursor, header: HunkHeader, *, fenced: bool) -> SearchReplace | str:
    """Read the lines of a hunk as an edit of "", or return why they cannot be read."""
    start, counts = header
    lines = _read_lines(cursor, counts, fenced=fenced)
    while lines and lines[-1] == "":
        lines.pop()
    first = next((i for i, line in enumerate(lines) if line), 0)
    del lines[:first]
    problem = _restore_prefixes(lines)
    if problem:
        return problem
    old, new = _side(lines, "-"), _side(lines, "+")
    line = start + first if start else None
    return SearchReplace("", old, new, line)


def problem_of(hunk: SearchReplace) -> str | None:
    """Return why a hunk cannot be applied."""
    if hunk.search or not hunk.replace:
        return None
    return "a hunk that shows no line of the file; add unchanged lines around what is added"


def _read_lines(cursor: Cursor, counts: tuple[int, int] | None, *, fenced: bool) -> list[str]:
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
            and (counts == (old, new) or (line and (not lines or lines[-1] == "")))
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
        above = path_above(text, region.outer, position, path)
        diff = _Diff(reply, region, above or "", Cursor(text, region.start, region.end))
        trouble = diff.read()
        if trouble is not None:
            return trouble
        end = region.outer_end if region.fenced else diff.cursor.pos
        position = max(end, start.end())
        if diff.has_hunks or diff.edits:
            spans.append((region.outer, end))
        if diff.edits:
            path = diff.edits[-1].path
        edits.extend(diff.edits)
    ends = [0, *(offset for span in spans for offset in span), len(text)]
    gaps = zip(ends[::2], ends[1::2], strict=True)
    indented = next(filter(None, (_INDENTED.search(text, *gap) for gap in gaps)), None)
    if indented:
        what = "the diff is indented; begin its lines at the margin"
        return malformed(reply, _SHAPE, indented.span(), what)
    if not spans:
        return None
    if not edits and not reply.cut_off:
        what = f"{_SHAPE}, {reply.place(spans[0][0])}: no hunk of it changes anything"
        return Trouble(ParseFailure("no-edit", what), ((spans[0][0], spans[-1][1]),))
    return read_edits(reply, PatchProposal(tuple(edits), reader="unified-diff"), spans)


@dataclass(frozen=True, slots=True)
class _Region:
    """The part of a reply that holds a diff; `outer` has its fence, which may be `of_code`."""

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
    of_code = fence.info.split(" ")[0].lower() not in _DIFF_FENCES and not paths_on_line(fence.info)
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
    hunks: list[SearchReplace] = field(default_factory=list)

    def awaits(self, old: str, new: str) -> bool:
        """Whether `---` and `+++` lines with these names belong to this git header."""
        if self.headers or self.hunks:
            return False
        one_side = _NOWHERE in (old, new) and (self.old == old or self.new == new)
        return (self.old, self.new) == (old, new) or (one_side and not self.renamed)


@dataclass(slots=True)
class _Diff:
    """A region that is read line by line."""

    reply: Reply
    region: _Region
    above: str
    cursor: Cursor
    file: _File | None = None
    edits: list[Edit] = field(default_factory=list)
    has_hunks: bool = False

    def read(self) -> Trouble | None:
        problem = None
        while problem is None and self.cursor.more():
            at = self.cursor.pos
            problem = self.line(self.cursor.peek())
            if self.cursor.pos == at:
                break  # prose after a diff without a fence
        problem = problem or self.finish_file()
        if problem is not None:
            end = self.region.outer_end if self.region.fenced else self.cursor.pos + 1
            return malformed(self.reply, _SHAPE, (self.region.outer, end), problem)
        if self.has_hunks and not self.region.closed:
            what = f"{_SHAPE}: the text ends inside an open code fence"
            return Trouble(truncated(what), ((self.region.outer, len(self.reply.text)),))
        return None

    def line(self, line: str) -> str | None:
        """Read the next lines; return what is wrong. Nothing is read where the diff ends."""
        fenced = self.region.fenced
        if line.startswith("@@"):
            self.cursor.skip()
            return self.hunk(read_header(line))
        if line.startswith("diff --git "):
            self.cursor.skip()
            paths = _GIT_PATHS.match(line)
            new = _File(_unquoted(paths[1]), _unquoted(paths[2])) if paths else _File()
            return self.finish_file(new)
        header = _FILE_HEADER.match(
            f"{self.cursor.text[self.cursor.pos : self.cursor.pos + 4096]}\n"
        )
        if header:
            return self.file_header(*header[0].split("\n")[:2])
        if _UNSUPPORTED.match(line):
            return "copies, links, modes and binary patches are not taken"
        if _NOISE.match(line) or self.extended_header(line):
            self.cursor.skip()
            return None
        if fenced and line[:1] in (" ", "+", "-", "\\"):
            if self.region.of_code and self.file is None:
                return "code above the header of a diff; put code and diff into fences of their own"
            return self.hunk(NO_HEADER)
        if not fenced:
            return None
        if _OTHER_MARKERS.match(line):
            self.cursor.pos = self.cursor.end
            return None
        self.cursor.skip()
        if self.file is not None or self.edits:
            return (
                "a line that is no part of a diff; begin every line of a hunk with a space, - or +"
            )
        self.above = next(iter(paths_on_line(line)), self.above)
        return None

    def file_header(self, first: str, second: str) -> str | None:
        self.cursor.skip()
        self.cursor.skip()
        old, new = _without_prefixes(_path(first), _path(second))
        problem = None
        if self.file is None or not self.file.awaits(old, new):
            problem = self.finish_file(_File())
        assert self.file is not None
        self.file.old, self.file.new, self.file.headers = old, new, True
        self.file.created |= old == _NOWHERE
        self.file.deleted |= new == _NOWHERE
        return problem

    def extended_header(self, line: str) -> bool:
        file = self.file
        if file is None or file.headers:
            return False
        file.created |= line.startswith("new file mode")
        file.deleted |= line.startswith("deleted file mode")
        if line.startswith("rename from "):
            file.old = _unquoted(line.removeprefix("rename from ").strip())
        if line.startswith("rename to "):
            file.new, file.renamed = _unquoted(line.removeprefix("rename to ").strip()), True
        return line.startswith(("new file mode", "deleted file mode", "rename from ", "rename to "))

    def hunk(self, header: HunkHeader) -> str | None:
        if self.file is None:
            if not self.above:
                return 'a hunk without its file; put "--- a/path" and "+++ b/path" above it'
            self.file = _File(self.above, self.above)
        hunk = read_hunk(self.cursor, header, fenced=self.region.fenced)
        if isinstance(hunk, str):
            return hunk
        self.has_hunks = True
        self.file.hunks.append(hunk)
        return None

    def finish_file(self, following: _File | None = None) -> str | None:
        """Turn the file read so far into edits; return why that is impossible."""
        file, self.file = self.file, following
        if file is None:
            return None
        if file.deleted:
            self.edits.append(DeleteFile(file.old))
            return None
        if file.created and any(hunk.search for hunk in file.hunks):
            return f"{file.new}: a new file has no old lines; every line of it begins with +"
        if file.created:
            content = "".join(hunk.replace for hunk in file.hunks)
            self.edits.append(CreateFile(file.new, content))
            return None
        # Models make up new names such as `patched_x.c`.
        path = file.new if file.old in ("", _NOWHERE, f"{file.new}.orig") else file.old
        for hunk in file.hunks:
            problem = problem_of(hunk)
            if problem is not None:
                return f"{path}: {problem}"
            if hunk.search != hunk.replace:
                self.edits.append(replace(hunk, path=path))
        if file.renamed:
            self.edits.append(RenameFile(file.old, file.new))
        return None


def _path(line: str) -> str:
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
