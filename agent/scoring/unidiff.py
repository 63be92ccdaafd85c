"""Reads unified diffs as `git apply` does: what it refuses is refused here, with the line.

Formats: git's `diff-format` documentation ("Generating patch text with -p"), POSIX `diff -u`. Work
is on bytes: a patch may hold any encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.scoring.binary import BinaryHunk, read_binary

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
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


class PatchError(ValueError):
    """The patch cannot be read or applied: one line, with the line of the patch or the file."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """`before` and `after` are lines with their ends. `leading`, `trailing`: lines of context.

    `old` is the first line of the old side by the header, 1-based (0: an empty file), `new` that of
    the new one. `line` is where the hunk stands in the patch.
    """

    old: int
    new: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    leading: int
    trailing: int
    line: int


@dataclass(slots=True)
class FilePatch:
    """What a patch does to one file. Paths are None where the side does not exist.

    `kept`: a copy, whose source stays. Modes are octal as git writes them, None where not said.
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
    hunks: list[Hunk] = field(default_factory=list)
    binary: BinaryHunk | None = None
    opaque: bool = False  # `Binary files differ`: nothing to apply


def read_patch(data: bytes) -> tuple[FilePatch, ...]:
    """The files of a patch, in its order. Raises PatchError."""
    files = tuple(_Reader(data).files())
    if not files:
        raise PatchError("no valid patches in the input: not a unified diff")
    return files


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._lines = data.split(b"\n")
        if self._lines[-1] == b"":
            self._lines.pop()
        self._at = 0

    def files(self) -> Iterator[FilePatch]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(b"diff --git "):
                yield self._git_file()
            elif line.startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
                yield self._plain_file()
            elif _HUNK.match(line):
                raise PatchError(f"line {self._at + 1}: a hunk without a file header")
            else:
                self._at += 1  # words around the diff

    def _peek(self, ahead: int = 0) -> bytes:
        place = self._at + ahead
        return self._lines[place] if place < len(self._lines) else b""

    # ------------------------------------------------------------------------------- file headers

    def _git_file(self) -> FilePatch:
        number = self._at + 1
        found = FilePatch(number)
        default = _header_name(self._peek()[len(b"diff --git ") :])
        self._at += 1
        while self._at < len(self._lines):
            line = self._peek()
            if line.startswith(_HEADERS):
                self._header(line, found)
            elif line.startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
                self._names(found)
                continue
            elif line.startswith(b"GIT binary patch"):
                found.binary, self._at = read_binary(self._lines, self._at + 1)
                break
            elif line.startswith(b"Binary files ") and line.rstrip().endswith(b" differ"):
                found.opaque = True
            elif _HUNK.match(line):
                found.hunks = list(self._hunks())
                break
            else:
                break
            self._at += 1
        return _named(found, default)

    def _header(self, line: bytes, found: FilePatch) -> None:
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
                found.old, found.renames = _name(value, strip=0), True
                found.kept = found.kept or kind.startswith("copy")
            case "rename to" | "rename new" | "copy to":
                found.new, found.renames = _name(value, strip=0), True
            case "index" if text[-7:-6] == " " and found.old_mode is None:
                found.old_mode = text[-6:]

    def _names(self, found: FilePatch) -> None:
        """The `---` and `+++` lines."""
        old, new = _name(self._peek()[4:]), _name(self._peek(1)[4:])
        if not found.renames:
            found.old, found.new = old, new
            found.creates = found.creates or old is None
            found.deletes = found.deletes or new is None
        self._at += 2

    def _plain_file(self) -> FilePatch:
        found = FilePatch(self._at + 1)
        self._names(found)
        found.hunks = list(self._hunks())
        if not found.hunks:
            raise PatchError(f"line {self._at}: only a file header, no hunk follows")
        return _named(found, None)

    # -------------------------------------------------------------------------------------- hunks

    def _hunks(self) -> Iterator[Hunk]:
        while match := _HUNK.match(self._peek()):
            yield self._hunk(match)

    def _hunk(self, match: re.Match[bytes]) -> Hunk:
        start = self._at + 1
        old, new = _count(match[2]), _count(match[4])
        body = _Body()
        self._at += 1
        while old or new:
            if self._at >= len(self._lines):
                raise PatchError(f"corrupt patch at line {self._at}: the hunk is cut off")
            line = self._peek()
            mark = line[:1] or b" "  # editors strip the blank of an empty line of context
            if mark == _NO_NEWLINE:
                body.no_newline()
                self._at += 1
                continue
            old, new = old - (mark in b" -"), new - (mark in b" +")
            if mark not in b" +-" or min(old, new) < 0:
                raise PatchError(
                    f"corrupt patch at line {self._at + 1}: not what the hunk's header says"
                )
            body.add(mark, line[1:] + b"\n")
            self._at += 1
        if self._peek()[:1] == _NO_NEWLINE:
            body.no_newline()
            self._at += 1
        if not (body.removed or body.added):
            raise PatchError(f"corrupt patch at line {start}: a hunk that changes nothing")
        return Hunk(
            int(match[1]), int(match[3]), tuple(body.before), tuple(body.after),
            body.leading, body.trailing, start,
        )  # fmt: skip


@dataclass(slots=True)
class _Body:
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    leading: int = 0
    trailing: int = 0
    removed: int = 0
    added: int = 0
    _last: bytes = b""

    def add(self, mark: bytes, line: bytes) -> None:
        """One line with its end."""
        self._last = mark
        if mark in b" -":
            self.before.append(line)
        if mark in b" +":
            self.after.append(line)
        if mark == b" ":
            self.leading += not (self.removed or self.added)
            self.trailing += 1
        else:
            self.trailing = 0
        self.removed += mark == b"-"
        self.added += mark == b"+"

    def no_newline(self) -> None:
        """The line before ends its file without a line end."""
        for lines, marks in ((self.before, b" -"), (self.after, b" +")):
            if self._last and self._last in marks and lines:
                lines[-1] = lines[-1].removesuffix(b"\n")


def _named(found: FilePatch, default: str | None) -> FilePatch:
    """With the names that only the `diff --git` line has. Raises PatchError for none at all."""
    if found.old is None and not found.creates:
        found.old = default
    if found.new is None and not found.deletes:
        found.new = default
    if found.creates:
        found.old = None
    if found.deletes:
        found.new = None
    if found.old is None and found.new is None:
        raise PatchError(f"line {found.line}: the header names no file")
    if not (found.renames or found.creates or found.deletes):
        found.old = found.new  # as git: the new side's name counts
    return found


def _header_name(text: bytes) -> str | None:
    """The name in `a/NAME b/NAME`, where both are the same; it may hold blanks."""
    if text.startswith(b'"'):
        first, rest = _quoted(text)
        return _stripped(first, 1) if rest.strip() else None
    middle = len(text) // 2
    old, new = text[:middle], text[middle + 1 :]
    if len(text) % 2 and text[middle : middle + 1] == b" ":
        names = _stripped(old, 1), _stripped(new, 1)
        return names[0] if names[0] == names[1] else None
    return None


def _name(text: bytes, *, strip: int = 1) -> str | None:
    """The path of a header line, without prefix, date and quotes; None for /dev/null."""
    if text.startswith(b'"'):
        raw, _ = _quoted(text)
    else:
        raw = text.split(b"\t", 1)[0].rstrip(b"\r\n")
        if b"\t" not in text:
            raw = raw.rstrip()
    return None if raw == _NO_FILE else _stripped(raw, strip)


def _stripped(raw: bytes, count: int) -> str:
    """Without the first `count` folders, as -p does it."""
    parts = raw.split(b"/", count)
    return (parts[-1] if len(parts) > count else raw).decode("utf-8", "surrogateescape")


def _quoted(text: bytes) -> tuple[bytes, bytes]:
    """A C-style quoted name and what follows it."""
    end = 1
    while end < len(text) and text[end : end + 1] != b'"':
        end += 2 if text[end : end + 1] == b"\\" else 1
    return _ESCAPE.sub(_unescape, text[1:end]), text[end + 1 :]


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8)]) if len(code) == 3 else bytes([_ESCAPED.get(code, code[0])])


def _count(text: bytes | None) -> int:
    return 1 if text is None else int(text)
