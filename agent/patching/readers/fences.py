"""Code fences of Markdown, and the file names that stand at them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.readers.names import looks_like_path, path_on_line

# Fences looked at; a reply has a few dozen.
MAX_FENCES = 20_000

_FENCE_LINE = re.compile(r"^([ \t]{0,12})(`{3,}+|~{3,}+)([^\n`]{0,300})$", re.MULTILINE)
_INFO_PATH = re.compile(
    r"(?:^|[\s,{])(?:title|file|filename|file_?path|path)\s*=\s*[\"']?([^\"'\s}]+)"
)
# ```python:src/a.py, ```src/a.py, ```12:40:src/a.py, ```python src/a.py
_INFO_PREFIX = re.compile(r"(?:[\w+#-]{1,20}[:\s]\s*|\d{1,6}:\d{1,6}:)")


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block. Offsets: the opening line, its content, after the closing line.

    A fence without a closing line ends with the text. `nested`: fences with an info string were
    opened inside it, and each was closed.
    """

    start: int
    body: int
    body_end: int
    end: int
    info: str
    indent: int
    closed: bool
    nested: bool = False

    def content(self, text: str) -> str:
        """What the fence holds, its own indentation taken off."""
        body = text[self.body : self.body_end]
        if not self.indent:
            return body
        lines = body.split("\n")
        pad = " " * self.indent
        return "\n".join(line.removeprefix(pad) if line.startswith(pad) else line for line in lines)


def find_fences(text: str) -> Sequence[Fence]:
    """All outermost fences, in order."""
    fences: list[Fence] = []
    opened: re.Match[str] | None = None
    depth = 0
    nested = False
    for count, match in enumerate(_FENCE_LINE.finditer(text)):
        if count >= MAX_FENCES:
            break
        if opened is None:
            opened, depth, nested = match, 0, False
        elif match[2][0] != opened[2][0] or len(match[2]) < len(opened[2]):
            continue
        elif match[3].strip():
            depth += 1
            nested = True
        elif depth:
            depth -= 1
        elif len(match[1]) <= len(opened[1]):  # a deeper one is content: of a docstring, say
            fences.append(_fence(opened, match.start(), match.end(), closed=True, nested=nested))
            opened = None
    if opened is not None:
        fences.append(_fence(opened, len(text), len(text), closed=False, nested=nested))
    return fences


def _fence(opened: re.Match[str], stop: int, end: int, *, closed: bool, nested: bool) -> Fence:
    body = min(opened.end() + 1, stop)
    indent = len(opened[1])
    return Fence(opened.start(), body, stop, end, opened[3].strip(), indent, closed, nested)


def path_of_info(info: str) -> str | None:
    """The path in the info string of a fence."""
    given = _INFO_PATH.search(info)
    if given:
        return given[1]
    prefix = _INFO_PREFIX.match(info)
    for candidate in (info[prefix.end() :] if prefix else "", info):
        path = path_on_line(candidate) if candidate else None
        if path and looks_like_path(path):
            return path
    return None


def lines_above(text: str, offset: int, floor: int, count: int) -> list[str]:
    """Up to `count` lines that end before `offset` and begin at or after `floor`, nearest first."""
    lines: list[str] = []
    end = offset - 1
    while end >= floor and len(lines) < count:
        start = max(text.rfind("\n", floor, end) + 1, floor)
        lines.append(text[start:end])
        end = start - 1
    return lines
