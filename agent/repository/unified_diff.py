"""Reader for unified diffs, on bytes; `git apply` decides what really applies. `unidiff` and
`whatthepatch` do not know quoted names, modes and binary patches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

RANGE = r"(\d{1,9})(?:,(\d{1,9}))?"
"""Pattern of one side of a hunk header: first line and number of lines (1 where not given)."""

_HUNK_HEADER = re.compile(rf"@@ -{RANGE} \+{RANGE} @@ ?(.*)".encode(), re.DOTALL)
_HEADER = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|(?:rename|copy) (?:from|to|old|new)"
    rb"|index) (.*)",
    re.DOTALL,
)
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_ESCAPED = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}


class DiffError(ValueError):
    """A hunk does not hold what its header says. One line that names the line of the diff."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a hunk; `text` ends with a line feed unless its file ends without one."""

    mark: Literal[" ", "-", "+"]
    text: bytes
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True)
class DiffHunk:
    """One hunk. `old`, `new`: lines in its header; `place`: the text after them."""

    old: int
    new: int
    lines: tuple[DiffLine, ...]
    place: bytes


@dataclass(slots=True)
class FileDiff:
    """The changes of one file. `old` and `new` are paths, None where that side does not exist."""

    old: str | None = None
    new: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    hunks: list[DiffHunk] = field(default_factory=list)


def read_diff(data: bytes, *, any_folder: bool = False) -> tuple[FileDiff, ...]:
    """Return the files of a diff in its order. Raises DiffError. Names lose `a/` and `b/`, with
    `any_folder` their first folder. Text around files and hunks is skipped.
    """
    reader = _Reader(data, any_folder=any_folder)
    reader.read()
    return tuple(reader.files)


class _Reader:
    """Goes through the lines of a diff. `_open` is the file whose header is being read."""

    def __init__(self, data: bytes, *, any_folder: bool) -> None:
        self.files: list[FileDiff] = []
        self._any_folder = any_folder
        self._lines = data.split(b"\n")
        if self._lines[-1] == b"":
            self._lines.pop()
        self._at = 0
        self._open: FileDiff | None = None
        self._renames = False

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if hunk := _HUNK_HEADER.match(line):
                if not self.files:
                    raise DiffError(f"line {self._at + 1}: a hunk without a file header")
                self._open = None
                self.files[-1].hunks.append(self._hunk(hunk))
                continue
            if line.startswith(b"diff --git "):
                self._begin(_header_name(line[len(b"diff --git ") :]))
            elif line.startswith(b"--- ") and self._next().startswith(b"+++ "):
                self._names(line[4:], self._next()[4:])
            elif line.startswith(b"GIT binary patch"):
                self._skip_binary()
            elif self._open is not None and (header := _HEADER.match(line)):
                self._header(header[1], header[2], self._open)
            self._at += 1

    def _begin(self, name: str | None) -> FileDiff:
        self._open = FileDiff(name, name)
        self._renames = False
        self.files.append(self._open)
        return self._open

    def _next(self) -> bytes:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else b""

    def _names(self, old: bytes, new: bytes) -> None:
        before, after = self._stripped(_name(old)), self._stripped(_name(new))
        file = self._open
        if file is None or (self._renames and before != file.old):
            file = self._begin(None)
        if not self._renames:
            file.old, file.new = before, after
        self._open = None
        self._at += 1

    def _stripped(self, name: str | None) -> str | None:
        if name is None:
            return None
        if self._any_folder:
            return _without_folder(name)
        return name[2:] if name.startswith(("a/", "b/")) else name

    def _skip_binary(self) -> None:
        while self._at < len(self._lines) and not self._next().startswith(b"diff --git "):
            self._at += 1

    def _header(self, kind: bytes, value: bytes, file: FileDiff) -> None:
        text = value.strip().decode("ascii", "replace")
        match kind.split():
            case [b"old", _]:
                file.old_mode = text
            case [b"new", b"mode"]:
                file.new_mode = text
            case [b"new", b"file", _]:
                file.old, file.new_mode = None, text
            case [b"deleted", *_]:
                file.new, file.old_mode = None, text
            case [_, b"from" | b"old"]:
                file.old, self._renames = _name(value), True
            case [_, b"to" | b"new"]:
                file.new, self._renames = _name(value), True
            case _ if text[-7:-6] == " " and file.old_mode is None:
                file.old_mode = text[-6:]

    def _hunk(self, header: re.Match[bytes]) -> DiffHunk:
        """Read the lines that the header announces. Raises DiffError if there are others."""
        old_left, new_left = (1 if header[n] is None else int(header[n]) for n in (2, 4))
        # `-12,0` names the line before an insertion, `-12,3` the first line of three.
        old, new = int(header[1]) + (not old_left), int(header[3]) + (not new_left)
        lines: list[DiffLine] = []
        self._at += 1
        while old_left or new_left:
            if self._at >= len(self._lines):
                if old_left == new_left:
                    break
                raise DiffError(f"corrupt patch at line {self._at}: the hunk is cut off")
            line = self._lines[self._at]
            self._at += 1
            mark, text = line[:1], line[1:] + b"\n"
            if mark in (b"", b"\r"):
                mark, text = b" ", line + b"\n"  # editors strip the blank of an empty line
            if mark == b" " and old_left and new_left:
                lines.append(DiffLine(" ", text, old, new))
            elif mark == b"-" and old_left:
                lines.append(DiffLine("-", text, old, None))
            elif mark == b"+" and new_left:
                lines.append(DiffLine("+", text, None, new))
            elif mark == b"\\":
                _end_without_newline(lines)
                continue
            else:
                what = "not what the hunk's header says"
                raise DiffError(f"corrupt patch at line {self._at}: {what}")
            old, old_left = old + (mark != b"+"), old_left - (mark != b"+")
            new, new_left = new + (mark != b"-"), new_left - (mark != b"-")
        if self._at < len(self._lines) and self._lines[self._at].startswith(b"\\"):
            _end_without_newline(lines)
            self._at += 1
        return DiffHunk(int(header[1]), int(header[3]), tuple(lines), header[5])


def _end_without_newline(lines: list[DiffLine]) -> None:
    if lines:
        last = lines[-1]
        lines[-1] = DiffLine(last.mark, last.text.removesuffix(b"\n"), last.old, last.new)


def _header_name(text: bytes) -> str | None:
    """The name in `a/NAME b/NAME`, where both are the same; it may hold blanks."""
    if text.startswith(b'"'):
        first, rest = _unquoted(text)
        return _without_folder(_decoded(first)) if rest.strip() else None
    middle = len(text) // 2
    names = {_without_folder(_decoded(side)) for side in (text[:middle], text[middle + 1 :])}
    is_same = len(names) == 1 and text[middle : middle + 1] == b" "
    return names.pop() if is_same else None


def _name(text: bytes) -> str | None:
    """The path of a header line without date and quotes; None for /dev/null."""
    if text.startswith(b'"'):
        raw, _ = _unquoted(text)
    else:
        raw, date, _ = text.partition(b"\t")
        raw = raw.rstrip(b"\r\n") if date else raw.rstrip()
    return None if raw == b"/dev/null" else _decoded(raw)


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _without_folder(name: str) -> str:
    return name.partition("/")[2] if "/" in name else name


def _unquoted(text: bytes) -> tuple[bytes, bytes]:
    end = 1
    while end < len(text) and text[end : end + 1] != b'"':
        end += 2 if text[end : end + 1] == b"\\" else 1
    return _ESCAPE.sub(_unescaped, text[1:end]), text[end + 1 :]


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8)]) if len(code) == 3 else bytes([_ESCAPED.get(code, code[0])])
