"""Cuts a file into chunks: functions, class headers, module remainder, or windows of lines. Their
lines without their holes partition the file. No text makes this module raise.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from agent.retrieval.index.outline import (
    DEFAULT,
    GRAMMARS,
    INSIDE,
    Definition,
    Grammar,
    Outliner,
)
from agent.types import Chunk, ChunkKind

if TYPE_CHECKING:
    from tree_sitter import Parser, Point, Tree

    from agent.types import SourceFile

MAX_PARSED_CHARS = 2_000_000
"""Larger files are data or amalgamations. They are cut into windows without parsing."""

MINIFIED_LINE_CHARS = 300
"""Mean line length from which a file counts as machine-made; its lines are not useful units."""

_UNNAMED = re.compile(rf"{DEFAULT}(?=$|\.|{INSIDE})")

_READ_BYTES = 512
"""Bytes given to a parser at a time; it asks again for bytes that it goes back to."""

_BASE_READ, _READ_FACTOR = 8_000_000, 64
"""Limit on the bytes that a parser may request: this many, plus this many times the length.
Scanners look past blank lines, comments and continued lines for the next indentation, and start
again from each of them, so the cost can be quadratic. Of 12 800 Python files (standard library,
installed packages) the worst took 1.5 MB.
"""

MAX_REMAINDER_LINES = 200
"""A longer module remainder is cut, so that one relevant constant does not use a whole budget."""

_REMAINDER_PART_LINES = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk without its file, as the index stores it. Lines are 1-based and inclusive."""

    start: int
    end: int
    symbol: str
    kind: ChunkKind
    signature: str = ""
    holes: tuple[tuple[int, int], ...] = ()

    def chunk(self, file: SourceFile, lines: Sequence[str]) -> Chunk:
        """Return the chunk of this piece, with its text taken from the file's lines."""
        return Chunk(
            path=file.path,
            start=self.start,
            end=self.end,
            symbol=_symbol(self.symbol, file.path),
            kind=self.kind,
            text=self.text(lines),
            blob=file.blob,
            language=file.language,
            signature=self.signature,
            holes=self.holes,
        )

    def text(self, lines: Sequence[str]) -> str:
        """Return the lines outside holes, joined by `\\n`, without a final line feed."""
        parts: list[str] = []
        first = self.start
        for hole_start, hole_end in self.holes:
            parts.extend(lines[first - 1 : hole_start - 1])
            first = hole_end + 1
        parts.extend(lines[first - 1 : self.end])
        return "\n".join(parts)


def _symbol(symbol: str, path: str) -> str:
    """Return the symbol in this file, whose name a default export without a name has."""
    if not _UNNAMED.match(symbol):
        return symbol
    *_, folder, name = f"/{path}".split("/")
    stem = name.partition(".")[0]
    return _UNNAMED.sub((folder if stem == "index" else stem) or DEFAULT, symbol)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with `\\n` line ends. A final `\\n` starts no new line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


class TreeSitterChunker:
    """The `Chunker`. It keeps one parser per language; use one instance per thread."""

    def __init__(self) -> None:
        self._parsers: dict[str, Parser | None] = {}

    def __call__(self, file: SourceFile, text: str, /) -> tuple[Chunk, ...]:
        """Return the chunks of one file in order of `start`."""
        lines = split_lines(text)
        return tuple(piece.chunk(file, lines) for piece in self.pieces(text, file.language))

    def pieces(self, text: str, language: str) -> tuple[Piece, ...]:
        """Return the chunks without the file's name. They depend on text and language only."""
        lines = split_lines(text)
        if not lines:
            return ()
        grammar = GRAMMARS.get(language)
        longest = min(MAX_PARSED_CHARS, MINIFIED_LINE_CHARS * len(lines))
        if grammar is None or len(text) > longest:
            return _windows(lines, language)
        definitions = self._outline(text, language, grammar)
        return _windows(lines, language) if definitions is None else _partition(lines, definitions)

    def inner(self, file: SourceFile, text: str) -> tuple[Chunk, ...]:
        """Return the functions inside functions, and the blocks of tests, in order of `start`."""
        lines, grammar = split_lines(text), GRAMMARS.get(file.language)
        if grammar is None or len(text) > MINIFIED_LINE_CHARS * len(lines):
            return ()
        found = self._outline(text, file.language, grammar, inside=True) or ()
        return tuple(
            Piece(d.start + 1, d.end + 1, d.symbol, d.kind, d.signature).chunk(file, lines)
            for d in found
            if INSIDE in d.symbol or d.symbol.partition(" ")[0] in grammar.blocks
        )

    def _outline(
        self, text: str, language: str, grammar: Grammar, *, inside: bool = False
    ) -> list[Definition] | None:
        """Return the definitions of a file; None without a parser, or if it would take too long."""
        if language in _SCRIPTED:
            text = _script(text)
        data = text.encode("utf-8", "replace")
        if language not in self._parsers:
            self._parsers[language] = make_parser(grammar)
        parser = self._parsers[language]
        tree = None if parser is None else _parsed(parser, data)
        if tree is None:
            return None
        return Outliner(language, data.split(b"\n"), inside=inside).collect(tree.root_node)


def make_parser(grammar: Grammar) -> Parser | None:
    """Return a parser; None if the grammar is not installed: some belong to an extra."""
    from tree_sitter import Language, Parser

    try:
        module = importlib.import_module(grammar.module)
    except ModuleNotFoundError:
        return None
    return Parser(Language(getattr(module, grammar.factory)()))


_SCRIPTED = frozenset({"vue", "svelte"})
_SCRIPT = re.compile(r"<script\b[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


def _script(text: str) -> str:
    """Return the scripts of a page on their lines, without the rest."""
    parts, at = list[str](), 0
    for match in _SCRIPT.finditer(text):
        parts += ["\n" * text.count("\n", at, match.start(1)), match[1]]
        at = match.end(1)
    return "".join([*parts, "\n" * text.count("\n", at)])


def _parsed(parser: Parser, data: bytes) -> Tree | None:
    """Return the tree of a file; None if the parser goes back too often (counted, not timed)."""
    parts_left = (_BASE_READ + _READ_FACTOR * len(data)) // _READ_BYTES

    def read(at: int, _: Point) -> bytes:
        nonlocal parts_left
        parts_left -= 1
        return data[at : at + _READ_BYTES] if parts_left >= 0 else b""

    tree = parser.parse(read)
    return tree if parts_left >= 0 else None


def _windows(lines: Sequence[str], language: str) -> tuple[Piece, ...]:
    return tuple(
        Piece(rows.start + 1, rows.stop, "", ChunkKind.WINDOW) for rows in cut_file(lines, language)
    )


def _partition(lines: Sequence[str], definitions: Sequence[Definition]) -> tuple[Piece, ...]:
    runs: dict[int, list[tuple[int, int]]] = {}
    for owner, start, end in _runs(lines, definitions):
        if start < end:
            runs.setdefault(owner, []).append((start, end))
    remainder = runs.pop(_MODULE, [])
    pieces = []
    for index, own in runs.items():
        one, (first, _), (_, end) = definitions[index], own[0], own[-1]
        pieces.append(Piece(first + 1, end, one.symbol, one.kind, one.signature, _holes(own)))
    pieces.extend(_remainder(remainder, lines))
    return tuple(sorted(pieces, key=lambda piece: (piece.start, piece.end)))


_MODULE = -1


def _runs(
    lines: Sequence[str], definitions: Sequence[Definition]
) -> Iterator[tuple[int, int, int]]:
    """Yield runs of rows: index of the innermost definition (-1 for none), first row, end."""
    top, row = _filled(lines, 0), 0  # the first row of text, the first row without an owner
    around = {_MODULE: len(lines)}  # open definitions and their ends, outermost first
    for index, definition in enumerate(definitions):
        parent = _MODULE if definition.parent is None else definition.parent
        if parent not in around:
            continue  # it has no line of its own
        while next(reversed(around)) != parent:
            ended, end = around.popitem()
            after = _after(lines, row, end)
            yield ended, row, after
            row = after
        start = _filled(lines, max(definition.start, row))
        end = min(definition.end + 1, around[parent])
        if start < end:
            start = 0 if start == top else start
            yield parent, row, start
            row, around[index] = start, end
    while around:
        ended, end = around.popitem()
        after = _after(lines, row, end)
        yield ended, row, after
        row = after


def _after(lines: Sequence[str], row: int, end: int) -> int:
    return _filled(lines, end) if row < end else row


def _filled(lines: Sequence[str], row: int) -> int:
    while row < len(lines) and not lines[row].strip():
        row += 1
    return row


def _holes(runs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return inclusive 1-based line ranges between ascending runs of 0-based rows."""
    return tuple((end + 1, start) for (_, end), (start, _) in pairwise(runs))


def _remainder(runs: Sequence[tuple[int, int]], lines: Sequence[str]) -> Iterable[Piece]:
    size = sum(end - start for start, end in runs)
    if not size:
        return
    if size <= MAX_REMAINDER_LINES:
        yield Piece(runs[0][0] + 1, runs[-1][1], "", ChunkKind.MODULE, "", _holes(runs))
        return
    rows = [row for run in runs for row in range(*run)]
    for part in cut_rows(rows, lines, _REMAINDER_PART_LINES):
        own = rows[part.start : part.stop]
        holes = tuple((a + 2, b) for a, b in pairwise(own) if b > a + 1)
        yield Piece(own[0] + 1, own[-1] + 1, "", ChunkKind.MODULE, "", holes)


WINDOW_LINES = 60
"""Lines of a window: about the length of a long function."""

WINDOW_CHARS = 6_000
"""A window is closed at this size: with long lines, 60 of them are too much."""

MAX_WINDOWS = 200
"""Most windows of a file; they grow instead, so that data does not outnumber code."""

_SOFT = 0.6  # a window may close at a blank line once it is this full

_ATX = re.compile(r"#{1,6}(\s|$)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")


def cut_rows(rows: Sequence[int], lines: Sequence[str], limit: int = WINDOW_LINES) -> list[range]:
    """Cut ascending `rows` into ranges of positions of about `limit` lines, after blank lines."""
    limit = max(limit, -(-len(rows) // MAX_WINDOWS))
    chars_limit = max(WINDOW_CHARS, sum(len(lines[row]) for row in rows) // MAX_WINDOWS)
    cuts, start, chars = [0], 0, 0
    for position, row in enumerate(rows):
        chars += len(lines[row])
        count = position + 1 - start
        blank = not lines[row].strip()
        if count >= limit or chars >= chars_limit or (blank and count >= limit * _SOFT):
            cuts.append(position + 1)
            start, chars = position + 1, 0
    if cuts[-1] != len(rows):
        cuts.append(len(rows))
    return [range(a, b) for a, b in pairwise(cuts)]


def cut_file(lines: Sequence[str], language: str) -> list[range]:
    """Return the rows of each window of a whole file. Prose is first cut at headings."""
    sections = _SECTIONS.get(language, _whole)(lines)
    spans: list[range] = []
    for section in _merged(sections):
        spans.extend(
            range(section[r.start], section[r.stop - 1] + 1) for r in cut_rows(section, lines)
        )
    return spans


def _whole(lines: Sequence[str]) -> list[range]:
    return [range(len(lines))] if lines else []


def _merged(sections: Sequence[range]) -> list[range]:
    merged: list[range] = []
    target = max(WINDOW_LINES, sections[-1].stop // MAX_WINDOWS) if sections else 0
    for section in sections:
        if merged and section.stop - merged[-1].start <= target:
            merged[-1] = range(merged[-1].start, section.stop)
        else:
            merged.append(section)
    return merged


def _at(starts: Sequence[int], count: int) -> list[range]:
    bounds = sorted({0, count, *starts})
    return [range(a, b) for a, b in pairwise(bounds)]


def _markdown(lines: Sequence[str]) -> list[range]:
    starts: list[int] = []
    fenced = False
    for row, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _ATX.match(line):
            starts.append(row)
    return _at(starts, len(lines))


def _rst(lines: Sequence[str]) -> list[range]:
    starts = [
        row - 1
        for row, line in enumerate(lines)
        if row and _UNDERLINE.match(line) and _underlines(lines[row - 1], line)
    ]
    return _at(starts, len(lines))


def _underlines(title: str, line: str) -> bool:
    title = title.rstrip()
    return bool(title) and not _UNDERLINE.match(title) and len(line.rstrip()) >= len(title)


_SECTIONS: dict[str, Callable[[Sequence[str]], list[range]]] = {
    "markdown": _markdown,
    "rst": _rst,
}
