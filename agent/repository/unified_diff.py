"""Parser for well-formed unified diffs, as git and `diff -u` print them.

`read_diff` gives files, hunks and numbered lines. It works on bytes, since a diff may hold any
encoding. By default it refuses what `git apply` refuses and names the line. With `lenient=True` it
also reads the diffs of published data sets and other tools (see `read_diff`). Replies of models are
read by `agent.patching.readers`, which forgive much more.

Formats: git's `diff-format` documentation ("Generating patch text with -p") and POSIX `diff -u`.

The libraries `unidiff` and `whatthepatch` were considered. Both work on decoded text, split lines
at form feeds and U+2028 too, and do not decode quoted names, modes, copies and binary patches;
`whatthepatch` also guesses where the counts of a hunk are wrong. A verdict needs git's strictness.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

RANGE = r"(\d{1,9})(?:,(\d{1,9}))?"
"""Pattern of one side of a hunk header: first line and number of lines (1 where not given)."""

HUNK_HEADER = re.compile(rf"@@ -{RANGE} \+{RANGE} @@ ?(.*)".encode(), re.DOTALL)
"""Groups: old start and count, new start and count, the text that names the place."""

_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_ESCAPED = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}
_NO_FILE = b"/dev/null"
_NO_NEWLINE = b"\\"

# Header lines between `diff --git` and the first hunk, by what they begin with.
_HEADERS = (
    b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ", b"rename from ",
    b"rename to ", b"rename old ", b"rename new ", b"copy from ", b"copy to ", b"index ",
    b"similarity index ", b"dissimilarity index ",
)  # fmt: skip


class DiffError(ValueError):
    """The text is not a diff that `git apply` would read. One line, with the line of the text."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a hunk.

    `text` ends with a line feed unless the diff says that its file ends without one. `old` and
    `new` are its 1-based numbers on either side, None where that side lacks the line.
    """

    mark: Literal[" ", "-", "+"]
    text: bytes
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True)
class DiffHunk:
    """One hunk. `old` and `new` are the first lines that its header names, 1-based.

    A side without lines is named by the line before it (0 at the top of a file). `line` is the
    header's line in the diff, `header` its text.
    """

    old: int
    new: int
    lines: tuple[DiffLine, ...]
    line: int
    header: bytes

    @property
    def before(self) -> tuple[bytes, ...]:
        """The lines of the old side."""
        return tuple(line.text for line in self.lines if line.mark != "+")

    @property
    def after(self) -> tuple[bytes, ...]:
        """The lines of the new side."""
        return tuple(line.text for line in self.lines if line.mark != "-")

    @property
    def ends_with_context(self) -> bool:
        """Whether the last line is unchanged."""
        return bool(self.lines) and self.lines[-1].mark == " "


@dataclass(slots=True)
class FileDiff:
    """The changes of one file. `old` and `new` are paths, None where that side does not exist.

    Modes are octal as git writes them, None where the diff does not give them. `kept`: the file is
    a copy and its source stays. `opaque`: the diff only says that binary files differ. `binary`:
    the lines of a binary patch, after its first one. `text`: lines that belong to no hunk, headers
    and any text around the diff; without the `---` and `+++` lines.
    """

    line: int
    old: str | None = None
    new: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    creates: bool = False
    deletes: bool = False
    renames: bool = False
    kept: bool = False
    hunks: list[DiffHunk] = field(default_factory=list)
    binary: tuple[bytes, ...] | None = None
    binary_line: int = 0  # 1-based line in the diff of the first of `binary`
    opaque: bool = False
    text: list[bytes] = field(default_factory=list)


def read_diff(data: bytes, *, lenient: bool = False) -> tuple[FileDiff, ...]:
    """Return the files of a diff in its order.

    Names lose their first folder, as with `patch -p1`. Raises DiffError, also where there is no
    diff at all.

    With `lenient` names lose `a/` and `b/` only; text may stand between two hunks of a file; a hunk
    may change nothing; blank lines of context may be missing at the end of the text or hold a
    carriage return; and a text without a diff gives one file without a path, or none if it is
    empty. The counts of a hunk header must still be right.
    """
    reader = _Reader(data, lenient=lenient)
    reader.read()
    if not reader.files and not lenient:
        raise DiffError("no valid patches in the input: not a unified diff")
    return tuple(reader.files)


class _Reader:
    """Goes through the lines of a diff. `_text` are lines that wait for the file they belong to."""

    def __init__(self, data: bytes, *, lenient: bool) -> None:
        self.files: list[FileDiff] = []
        self._lenient = lenient
        self._lines = data.split(b"\n")
        if self._lines[-1] == b"":
            self._lines.pop()
        self._at = 0
        self._text: list[bytes] = []

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._peek()
            if line.startswith(b"diff --git "):
                self._add(self._git_file())
            elif self._at_names():
                self._add(self._plain_file())
            elif HUNK_HEADER.match(line):
                if not (self._lenient and self.files):
                    raise DiffError(f"line {self._at + 1}: a hunk without a file header")
                self.files[-1].hunks += self._hunks()
            else:
                self._skip()
        if self._lenient and not self.files and self._text:
            self.files.append(FileDiff(1))
        if self.files:
            self.files[-1].text += self._text

    def _add(self, found: FileDiff) -> None:
        found.text, self._text = self._text, []
        self.files.append(found)

    def _peek(self, ahead: int = 0) -> bytes:
        place = self._at + ahead
        return self._lines[place] if place < len(self._lines) else b""

    def _skip(self) -> None:
        """Pass over a line that belongs to no hunk."""
        self._text.append(self._peek())
        self._at += 1

    def _at_names(self) -> bool:
        return self._peek().startswith(b"--- ") and self._peek(1).startswith(b"+++ ")

    # ------------------------------------------------------------------------------- file headers

    def _git_file(self) -> FileDiff:
        found = FileDiff(self._at + 1)
        default = _header_name(self._peek()[len(b"diff --git ") :])
        self._skip()
        while self._at < len(self._lines):
            line = self._peek()
            if self._at_names():
                if self._is_other_file(found):
                    break
                self._names(found)
                continue
            if HUNK_HEADER.match(line):
                found.hunks = list(self._hunks())
                break
            if line.startswith(b"GIT binary patch"):
                self._binary(found)
                break
            if line.startswith(_HEADERS):
                self._header(line, found)
            elif line.startswith(b"Binary files ") and line.rstrip().endswith(b" differ"):
                found.opaque = True
            else:
                break
            self._skip()
        return self._named(found, default)

    def _is_other_file(self, found: FileDiff) -> bool:
        """Whether the names here are not those of a renaming, so that they begin another file."""
        return (
            self._lenient and found.renames and self._stripped(_name(self._peek()[4:])) != found.old
        )

    def _binary(self, found: FileDiff) -> None:
        """Take the lines up to the next file. Base85 has no space, so none of them begins one."""
        self._skip()
        start = self._at
        while self._at < len(self._lines) and not self._peek().startswith(b"diff --git "):
            self._at += 1
        found.binary, found.binary_line = tuple(self._lines[start : self._at]), start + 1

    def _header(self, line: bytes, found: FileDiff) -> None:
        kind, value = next((h.decode(), line[len(h) :]) for h in _HEADERS if line.startswith(h))
        text = value.strip().decode("ascii", "replace")
        match kind.strip():
            case "old mode":
                found.old_mode = text
            case "new mode":
                found.new_mode = text
            case "new file mode":
                found.creates, found.new_mode = True, text
            case "deleted file mode":
                found.deletes, found.old_mode = True, text
            case "rename from" | "rename old" | "copy from":
                found.old, found.renames = _name(value), True
                found.kept = found.kept or kind.startswith("copy")
            case "rename to" | "rename new" | "copy to":
                found.new, found.renames = _name(value), True
            case "index" if text[-7:-6] == " " and found.old_mode is None:
                found.old_mode = text[-6:]

    def _names(self, found: FileDiff) -> None:
        """Take the `---` and `+++` lines."""
        if not found.renames:
            old, new = _name(self._peek()[4:]), _name(self._peek(1)[4:])
            found.old, found.new = self._stripped(old), self._stripped(new)
            found.creates = found.creates or old is None
            found.deletes = found.deletes or new is None
        self._at += 2

    def _stripped(self, name: str | None) -> str | None:
        if name is None:
            return None
        if self._lenient:
            return name[2:] if name.startswith(("a/", "b/")) else name
        return _without_folder(name)

    def _plain_file(self) -> FileDiff:
        found = FileDiff(self._at + 1)
        self._names(found)
        found.hunks = list(self._hunks())
        if not found.hunks and not self._lenient:
            raise DiffError(f"line {self._at}: only a file header, no hunk follows")
        return self._named(found, None)

    def _named(self, found: FileDiff, default: str | None) -> FileDiff:
        """Add the names that only the `diff --git` line has. Raises DiffError if there is none."""
        if found.old is None and not found.creates:
            found.old = default
        if found.new is None and not found.deletes:
            found.new = default
        if found.creates:
            found.old = None
        if found.deletes:
            found.new = None
        if found.old is None and found.new is None and not self._lenient:
            raise DiffError(f"line {found.line}: the header names no file")
        if not (self._lenient or found.renames or found.creates or found.deletes):
            found.old = found.new  # as git: the new side's name counts
        return found

    # -------------------------------------------------------------------------------------- hunks

    def _hunks(self) -> Iterator[DiffHunk]:
        while match := HUNK_HEADER.match(self._peek()):
            yield self._hunk(match)

    def _hunk(self, header: re.Match[bytes]) -> DiffHunk:
        start = self._at + 1
        left = [_count(header[2]), _count(header[4])]  # lines still to come of either side
        # `-12,0` names the line before an insertion, `-12,3` the first line of three.
        numbers = [int(header[1]) + (not left[0]), int(header[3]) + (not left[1])]
        lines: list[DiffLine] = []
        self._at += 1
        while any(left):
            if self._at >= len(self._lines) and self._lenient and left[0] == left[1]:
                break
            mark, text = self._hunk_line(left)
            if mark == _NO_NEWLINE:
                _end_without_newline(lines)
                continue
            lines.append(_numbered(mark, text, numbers))
            for side, other in ((0, b"+"), (1, b"-")):
                numbers[side] += mark != other
                left[side] -= mark != other
        if self._peek()[:1] == _NO_NEWLINE:
            _end_without_newline(lines)
            self._at += 1
        if not self._lenient and all(line.mark == " " for line in lines):
            raise DiffError(f"corrupt patch at line {start}: a hunk that changes nothing")
        return DiffHunk(int(header[1]), int(header[3]), tuple(lines), start, header.string)

    def _hunk_line(self, left: list[int]) -> tuple[bytes, bytes]:
        """Take one line: its mark and what follows it. Raises DiffError if the counts forbid it."""
        if self._at >= len(self._lines):
            raise DiffError(f"corrupt patch at line {self._at}: the hunk is cut off")
        line = self._peek()
        self._at += 1
        if line == b"" or (self._lenient and line == b"\r"):
            line = b" " + line  # editors strip the blank of an empty line of context
        mark = line[:1]
        allowed = {b" ": min(left), b"-": left[0], b"+": left[1], _NO_NEWLINE: 1}
        if not allowed.get(mark):
            raise DiffError(f"corrupt patch at line {self._at}: not what the hunk's header says")
        return mark, line[1:] + b"\n"


def _numbered(mark: bytes, text: bytes, numbers: list[int]) -> DiffLine:
    old, new = numbers
    if mark == b"-":
        return DiffLine("-", text, old, None)
    return DiffLine("+", text, None, new) if mark == b"+" else DiffLine(" ", text, old, new)


def _end_without_newline(lines: list[DiffLine]) -> None:
    """Take the line feed off the last line: its file ends without one."""
    if lines:
        last = lines[-1]
        text = last.text.removesuffix(b"\n")
        lines[-1] = DiffLine(last.mark, text, last.old, last.new)


def _count(text: bytes | None) -> int:
    return 1 if text is None else int(text)


# ------------------------------------------------------------------------------------------- names


def _header_name(text: bytes) -> str | None:
    """The name in `a/NAME b/NAME`, where both are the same; it may hold blanks."""
    if text.startswith(b'"'):
        first, rest = _unquoted(text)
        return _without_folder(_decoded(first)) if rest.strip() else None
    middle = len(text) // 2
    old, new = text[:middle], text[middle + 1 :]
    if len(text) % 2 and text[middle : middle + 1] == b" ":
        names = _without_folder(_decoded(old)), _without_folder(_decoded(new))
        return names[0] if names[0] == names[1] else None
    return None


def _name(text: bytes) -> str | None:
    """The path of a header line without date and quotes; None for /dev/null."""
    if text.startswith(b'"'):
        raw, _ = _unquoted(text)
    else:
        raw = text.split(b"\t", 1)[0].rstrip(b"\r\n")
        if b"\t" not in text:
            raw = raw.rstrip()
    return None if raw == _NO_FILE else _decoded(raw)


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _without_folder(name: str) -> str:
    return name.partition("/")[2] if "/" in name else name


def _unquoted(text: bytes) -> tuple[bytes, bytes]:
    """A name in C-style quotes, and what follows it."""
    end = 1
    while end < len(text) and text[end : end + 1] != b'"':
        end += 2 if text[end : end + 1] == b"\\" else 1
    return _ESCAPE.sub(_unescaped, text[1:end]), text[end + 1 :]


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8)]) if len(code) == 3 else bytes([_ESCAPED.get(code, code[0])])
