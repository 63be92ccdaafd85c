"""The little of Markdown that an issue is shown with: headings, fenced and inline code.

No links, no images, no HTML: everything else stays the text it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text, `code` or not."""

    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph (lines kept), a heading, or a block of code."""

    kind: Literal["text", "heading", "code"]
    spans: tuple[Span, ...]


def blocks_of(text: str) -> tuple[Block, ...]:
    """The blocks of a text, in order; a fence that is not closed runs to the end."""
    return tuple(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[Block]:
    held: list[str] = []
    fence = ""
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip(" `~"):
                yield _code(held)
                held, fence = [], ""
            else:
                held.append(line)
        elif found:
            yield from _prose(held)
            held, fence = [], found[1]
        else:
            held.append(line)
    yield from [_code(held)] if fence else _prose(held)


def _code(lines: list[str]) -> Block:
    return Block("code", (Span("\n".join(lines)),))


def _prose(lines: list[str]) -> Iterator[Block]:
    held: list[str] = []
    for line in [*lines, ""]:
        heading = _HEADING.fullmatch(line)
        if (heading or not line.strip()) and held:
            yield Block("text", tuple(_spans("\n".join(held))))
            held = []
        if heading:
            yield Block("heading", tuple(_spans(heading[1])))
        elif line.strip():
            held.append(line)


def _spans(text: str) -> Iterator[Span]:
    for number, part in enumerate(_INLINE.split(text)):
        if part:
            yield Span(part, code=number % 2 == 1)
