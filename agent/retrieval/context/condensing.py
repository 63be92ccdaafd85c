"""Finds lines that tell little of a chunk: the rest of long docstrings, entries of long tables."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.types import Chunk, ChunkKind

# A mark takes the place of the lines, so fewer are not worth it.
_LEAST_LEFT_OUT = 8
# Entries of a table that stay, at its beginning and its end. A table of fewer than this many and
# `_LEAST_LEFT_OUT` more is shown as a whole.
_FIRST_ENTRIES, _LAST_ENTRIES = 12, 4

_DOCSTRING = re.compile(r"\s*[rRbBuUfF]{0,2}(\"\"\"|''')")
_LITERAL = r"""(?:[rRbBuUfF]{0,2}(?:"[^"]*"|'[^']*')|[-+]?\d[\w.]*|\(.*\)|\[.*\]|\{.*\})"""
_ENTRY = re.compile(rf"\s+{_LITERAL}(?:\s*(?::|=>)\s*\S.*)?,\s*(?:(?:#|//).*)?")
_COMMENT = re.compile(r"(?:#|//|\s?\*|/\*)(?!!)")


def condensed(chunk: Chunk) -> Chunk:
    """Return the chunk with the text that is left when `little_told` is left out."""
    left_out = little_told(chunk)
    if not left_out:
        return chunk
    lines = zip(chunk.numbers(), chunk.text.split("\n"), strict=False)
    return replace(chunk, text="\n".join(line for n, line in lines if n not in left_out))


@functools.lru_cache(maxsize=2048)
def little_told(chunk: Chunk) -> frozenset[int]:
    """Return the line numbers of a chunk that a mark can stand for; its signature is not in them.

    They are the lines of a Python docstring after its first sentence, all but a few entries of a
    table of literals, and the comment at the top of a module, such as a licence.
    """
    numbers = chunk.numbers()
    lines = chunk.text.split("\n")[: len(numbers)]
    spans = [*_rest_of_docstring(chunk, lines), *_tables(lines), *_top_comment(chunk, lines)]
    return frozenset(
        number
        for first, last in spans
        if last - first >= _LEAST_LEFT_OUT
        for number in numbers[first:last]
    )


def docstring_lines(chunk: Chunk) -> frozenset[int]:
    """Return the line numbers of a Python docstring with triple quotes."""
    numbers = chunk.numbers()
    begin, end = _docstring(chunk, chunk.text.split("\n")[: len(numbers)])
    return frozenset(numbers[begin:end])


def _docstring(chunk: Chunk, lines: Sequence[str]) -> tuple[int, int]:
    """Return where a docstring begins, and the index after its end; (0, 0) if there is none."""
    if chunk.language != "python":
        return 0, 0
    at = len(chunk.signature.strip("\n").split("\n")) if chunk.signature.strip() else 0
    if chunk.kind is ChunkKind.MODULE:
        at = _after_comments(lines)
    while at < len(lines) and not lines[at].strip():
        at += 1
    begin = _DOCSTRING.match(lines[at]) if at < len(lines) else None
    if begin is None:
        return 0, 0
    if begin[1] in lines[at][begin.end() :]:
        return at, at + 1
    end = next((n for n in range(at + 1, len(lines)) if begin[1] in lines[n]), None)
    return (0, 0) if end is None else (at, end + 1)


def _rest_of_docstring(chunk: Chunk, lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the lines of a docstring after its first paragraph, without the closing quotes."""
    begin, end = _docstring(chunk, lines)
    if end - begin > 1:
        told = begin if _DOCSTRING.sub("", lines[begin], count=1).strip() else begin + 1
        while told + 2 < end and lines[told + 1].strip():
            told += 1
        yield told + 1, end - 1


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    first = None
    for number in range(len(lines) + 1):
        if number < len(lines) and _ENTRY.fullmatch(lines[number]):
            first = number if first is None else first
        elif first is not None:
            yield first + _FIRST_ENTRIES, number - _LAST_ENTRIES
            first = None


def _top_comment(chunk: Chunk, lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    if chunk.kind is ChunkKind.MODULE and chunk.start <= 2:
        yield 1, _after_comments(lines)


def _after_comments(lines: Sequence[str]) -> int:
    at = 0
    while at < len(lines) and (not lines[at].strip() or _COMMENT.match(lines[at])):
        at += 1
    return at
