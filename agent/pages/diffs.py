"""A unified diff as files, hunks and numbered lines; what is none is shown as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup, escape

from agent.pages.colour import coloured

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")
_NAMED = re.compile(r"(?:---|\+\+\+) (?:[ab]/)?(.+)")

Kind = Literal["added", "removed", "same", "hunk", "meta"]
_KINDS: dict[str, Kind] = {"+": "added", "-": "removed", " ": "same", "": "same"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line without its sign. `old` and `new` are its numbers on either side."""

    kind: Kind
    html: Markup
    old: int | None = None
    new: int | None = None

    @property
    def sign(self) -> str:
        """As the diff writes it."""
        return {"added": "+", "removed": "-"}.get(self.kind, " ")


@dataclass(frozen=True, slots=True)
class DiffFile:
    """The changes of one file."""

    path: str
    lines: tuple[DiffLine, ...]

    @property
    def added(self) -> int:
        """Lines."""
        return sum(line.kind == "added" for line in self.lines)

    @property
    def removed(self) -> int:
        """Lines."""
        return sum(line.kind == "removed" for line in self.lines)


@dataclass(slots=True)
class _Hunk:
    head: str
    old: int
    new: int
    body: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _File:
    path: str = ""
    meta: list[str] = field(default_factory=list)
    hunks: list[_Hunk] = field(default_factory=list)


def diff_files(diff: str) -> tuple[DiffFile, ...]:
    """The files of a diff in its order."""
    return tuple(DiffFile(file.path, tuple(_lines(file))) for file in _files(diff.split("\n")))


def _files(lines: Iterable[str]) -> list[_File]:
    files: list[_File] = []
    for line in lines:
        if line.startswith("diff --git "):
            files.append(_File(line.rpartition(" b/")[2]))
        elif not files:
            files.append(_File())
        _take(files, line)
    return [file for file in files if any(file.meta) or file.hunks]


def _take(files: list[_File], line: str) -> None:
    file = files[-1]
    begin = _HUNK.match(line)
    if begin is not None:
        file.hunks.append(_Hunk(line, int(begin[1]), int(begin[2])))
    elif file.hunks and line[:1] in "+- \\":
        file.hunks[-1].body.append(line)
    elif named := _NAMED.fullmatch(line):
        file.path = file.path if named[1] == "/dev/null" else named[1]
    elif line and not line.startswith(("diff --git ", "index ")):
        file.meta.append(line)


def _lines(file: _File) -> Iterator[DiffLine]:
    for line in file.meta:
        yield DiffLine("meta", escape(line))
    for hunk in file.hunks:
        yield DiffLine("hunk", escape(hunk.head))
        yield from _numbered(hunk, _painted(file.path, _without_end(hunk.body)))


def _without_end(body: Sequence[str]) -> Sequence[str]:
    """The split of a text that ends with a newline leaves one line more than there is."""
    return body[:-1] if body and body[-1] == "" else body


def _painted(path: str, body: Sequence[str]) -> list[tuple[str, Markup]]:
    """Sign and HTML of each line; either side of the change is coloured as a text of its own."""
    sides = {"+": [n for n, line in enumerate(body) if line[:1] != "-" and line[:1] != "\\"]}
    sides["-"] = [n for n, line in enumerate(body) if line[:1] == "-"]
    html = {n: escape(line) for n, line in enumerate(body)}
    for numbers in sides.values():
        texts = coloured(path, [body[n][1:] for n in numbers])
        html.update(zip(numbers, texts, strict=True))
    return [(line[:1], html[n]) for n, line in enumerate(body)]


def _numbered(hunk: _Hunk, painted: Iterable[tuple[str, Markup]]) -> Iterator[DiffLine]:
    old, new = hunk.old, hunk.new
    for sign, html in painted:
        if sign == "\\":
            yield DiffLine("meta", html)
            continue
        kind = _KINDS[sign]
        yield DiffLine(
            kind,
            html,
            old if kind != "added" else None,
            new if kind != "removed" else None,
        )
        old, new = old + (kind != "added"), new + (kind != "removed")
