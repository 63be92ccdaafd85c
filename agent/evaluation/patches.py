"""What a unified diff changes in the files it is made for, by lines of the old side.

Reads what `git diff` and `diff -u` print. Formats: git's `diff-format` documentation; POSIX `diff`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_ESCAPED = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}
_NO_FILE = "/dev/null"
_TAB = 8


@dataclass(frozen=True, slots=True)
class Insertion:
    """Lines put in after old line `after` (0: at the top), in place of nothing but blank lines.

    `indent` is the column of the first one that is not blank, None where all are.
    """

    after: int
    indent: int | None


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """An existing file: `removed` old lines (a changed line is one), and pure insertions."""

    path: str
    removed: tuple[int, ...]
    inserted: tuple[Insertion, ...]


def parse_patch(text: str) -> tuple[PatchedFile, ...]:
    """The existing files that a diff changes, in its order; created ones are left out.

    Raises ValueError for a hunk that belongs to no file or does not hold what its header says.
    """
    return tuple(_Reader(text).files())


@dataclass(slots=True)
class _Run:
    """Removed and added lines that follow each other without a line of context between."""

    removed: list[int] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    only_blank: bool = True  # what was removed


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.removesuffix("\n").split("\n")
        self._at = 0

    def files(self) -> Iterator[PatchedFile]:
        path: str | None = None
        removed: list[int] = []
        inserted: list[Insertion] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("--- ") and self._next().startswith("+++ "):
                yield from _file(path, removed, inserted)
                path, removed, inserted = _path(line[4:]), [], []
                self._at += 2
            elif match := _HUNK.match(line):
                if path is None:
                    raise ValueError(f"patch line {self._at + 1}: a hunk before any file name")
                self._at += 1
                self._hunk(match, removed, inserted)
            else:
                self._at += 1  # `diff --git`, `index`, `rename from`, text around the diff
        yield from _file(path, removed, inserted)

    def _next(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _hunk(self, match: re.Match[str], removed: list[int], inserted: list[Insertion]) -> None:
        start, old, new = int(match[1]), _count(match[2]), _count(match[4])
        # `-12,0` names the line before the insertion, `-12,3` the first line of three.
        line = start + 1 if old == 0 else start
        run = _Run()
        while old or new:
            if self._at >= len(self._lines) and old == new:
                break  # the patch was stripped of blank lines of context at its end
            mark, rest = self._take()
            if mark == "-" and old:
                run.removed.append(line)
                run.only_blank = run.only_blank and not rest.strip()
            elif mark == "+" and new:
                run.added.append(rest)
            elif mark == " " and old and new:
                _close(run, line - 1, removed, inserted)
                run = _Run()
            elif mark != "\\":
                raise ValueError(f"patch line {self._at}: not what the hunk's header says")
            step = mark in "- "
            line, old, new = line + step, old - step, new - (mark in "+ ")
        _close(run, line - 1, removed, inserted)

    def _take(self) -> tuple[str, str]:
        """The next line's mark and text. Editors strip the blank of an empty line of context."""
        if self._at >= len(self._lines):
            raise ValueError("the patch ends inside a hunk")
        line = self._lines[self._at]
        self._at += 1
        if line in ("", "\r"):
            return " ", ""
        return line[0], line[1:]


def _count(text: str | None) -> int:
    return 1 if text is None else int(text)


def _close(run: _Run, before: int, removed: list[int], inserted: list[Insertion]) -> None:
    """Note what a run changed. `before` is the last old line before its end."""
    removed.extend(run.removed)
    if run.added and run.only_blank:
        inserted.append(Insertion(before, _indent(run.added)))


def _indent(lines: list[str]) -> int | None:
    first = next((line.expandtabs(_TAB) for line in lines if line.strip()), None)
    return None if first is None else len(first) - len(first.lstrip())


def _file(path: str | None, removed: list[int], inserted: list[Insertion]) -> Iterator[PatchedFile]:
    if path not in (None, _NO_FILE) and (removed or inserted):
        assert path is not None
        yield PatchedFile(path, tuple(removed), tuple(inserted))


def _path(name: str) -> str:
    """The path of a `---` line: without prefix, date and quotes."""
    name = name.rstrip("\r")
    if name.startswith('"'):
        end = name.rfind('"')
        name = _unquote(name[1:end])
    else:
        name = name.split("\t", 1)[0]
    return name if name == _NO_FILE else name.removeprefix("a/")


def _unquote(name: str) -> str:
    """Undo git's C-style quoting: octal escapes are bytes of UTF-8."""
    raw = _ESCAPE.sub(_unescape, name.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "replace")


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 0xFF])
    return bytes([_ESCAPED[code]]) if code in _ESCAPED else code
