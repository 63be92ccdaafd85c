"""Cutting a file into chunks: functions, class headers, module remainder, or windows of lines.

Every line of a file belongs to exactly one chunk: the chunks' lines without their holes partition
the file. Blank lines belong to the chunk of the line before them. Nothing here raises on any text.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from agent.retrieval.grammars import GRAMMARS, Grammar
from agent.retrieval.outline import Definition, Outliner, Role, roles_of
from agent.retrieval.windows import cut_file, cut_rows
from agent.types import Chunk, ChunkKind

if TYPE_CHECKING:
    from tree_sitter import Parser, Point, Tree

    from agent.types import SourceFile

MAX_PARSED_CHARS = 2_000_000
"""Larger files are data or amalgamations: windows, without the cost of a tree."""

MINIFIED_LINE_CHARS = 300
"""Mean line length from which a file is machine-made: lines are no units of it."""

_READ_BYTES = 512
"""What a parser is given at a time; it asks again for what it goes back to."""

_BASE_READ, _READ_FACTOR = 8_000_000, 64
"""Bytes that a parser may ask for: so many, and so many times the length. Scanners look past blank
lines, comments and continued lines for the next indentation, from each of them anew: quadratic.
Of 12 800 Python files (standard library, installed packages) the one that took most took 1.5 MB.
"""

MAX_REMAINDER_LINES = 200
"""A longer module remainder is cut, so that one relevant constant does not cost a whole budget."""

_REMAINDER_PART_LINES = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk without its file: what the index stores. Lines are 1-based and inclusive."""

    start: int
    end: int
    symbol: str
    kind: ChunkKind
    signature: str = ""
    holes: tuple[tuple[int, int], ...] = ()

    def chunk(self, file: SourceFile, lines: Sequence[str]) -> Chunk:
        """The chunk of this piece, with its text taken from the file's lines."""
        return Chunk(
            path=file.path,
            start=self.start,
            end=self.end,
            symbol=self.symbol,
            kind=self.kind,
            text=self.text(lines),
            blob=file.blob,
            language=file.language,
            signature=self.signature,
            holes=self.holes,
        )

    def text(self, lines: Sequence[str]) -> str:
        """Its lines without the holes, joined by `\\n`, without a final one."""
        parts: list[str] = []
        first = self.start
        for hole_start, hole_end in self.holes:
            parts.extend(lines[first - 1 : hole_start - 1])
            first = hole_end + 1
        parts.extend(lines[first - 1 : self.end])
        return "\n".join(parts)


def split_lines(text: str) -> list[str]:
    """Lines of a text with `\\n` line ends; a final line end does not begin another line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


class TreeSitterChunker:
    """The `Chunker`. Keeps one parser a language; use one instance a thread."""

    def __init__(self) -> None:
        self._parsers: dict[str, Parser] = {}
        self._roles: dict[str, Mapping[str, Role]] = {}

    def __call__(self, file: SourceFile, text: str, /) -> tuple[Chunk, ...]:
        """The chunks of one file in order of `start`."""
        lines = split_lines(text)
        return tuple(piece.chunk(file, lines) for piece in self.pieces(text, file.language))

    def pieces(self, text: str, language: str) -> tuple[Piece, ...]:
        """The same without the file's name: depends on the text and its language only."""
        lines = split_lines(text)
        if not lines:
            return ()
        grammar = GRAMMARS.get(language)
        if grammar is None or len(text) > MAX_PARSED_CHARS or _is_minified(text, lines):
            return _windows(lines, language)
        definitions = self._outline(text, language, grammar)
        return _windows(lines, language) if definitions is None else _partition(lines, definitions)

    def _outline(self, text: str, language: str, grammar: Grammar) -> list[Definition] | None:
        """What a file defines; None where it takes a parser too long to say."""
        if language == "python":
            from agent.retrieval.python_outline import python_outline  # compiles its patterns

            definitions = python_outline(text)
            if definitions is not None:
                return definitions
        data = text.encode("utf-8", "replace")
        tree = _parsed(self._parser(language, grammar), data)
        if tree is None:
            return None
        outliner = Outliner(grammar, self._roles[language], data.split(b"\n"))
        return outliner.collect(tree.root_node)

    def _parser(self, language: str, grammar: Grammar) -> Parser:
        parser = self._parsers.get(language)
        if parser is None:
            from tree_sitter import Language, Parser

            module = importlib.import_module(grammar.module)
            parser = Parser(Language(getattr(module, grammar.factory)()))
            self._parsers[language] = parser
            self._roles[language] = roles_of(grammar)
        return parser


def _parsed(parser: Parser, data: bytes) -> Tree | None:
    """The tree of a file; None when its parser goes back too often (counted, not timed)."""
    parts_left = (_BASE_READ + _READ_FACTOR * len(data)) // _READ_BYTES

    def read(at: int, _: Point) -> bytes:
        nonlocal parts_left
        parts_left -= 1
        return data[at : at + _READ_BYTES] if parts_left >= 0 else b""

    tree = parser.parse(read)
    return tree if parts_left >= 0 else None


def _is_minified(text: str, lines: Sequence[str]) -> bool:
    return len(text) > MINIFIED_LINE_CHARS * len(lines)


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
    pieces = [_piece(own, definitions[index]) for index, own in runs.items()]
    pieces.extend(_remainder(remainder, lines))
    return tuple(sorted(pieces, key=lambda piece: (piece.start, piece.end)))


_MODULE = -1


def _runs(
    lines: Sequence[str], definitions: Sequence[Definition]
) -> Iterator[tuple[int, int, int]]:
    """Index of the innermost definition, -1 for none, first row and end of runs of rows; a run may
    be empty.

    A row belongs to one definition only: of two on the same line the first has it, and an inner
    one that is left without a line of its own stays inside its parent. Blank lines go with the
    line before, those at the top of a file with the first of text.
    """
    top, row = _filled(lines, 0), 0  # the first row of text, the first that is not given away
    around = {_MODULE: len(lines)}  # definitions that go on, and where they end, outermost first
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
    """Where a run from `row` to `end` ends with the blank lines behind it."""
    return _filled(lines, end) if row < end else row


def _filled(lines: Sequence[str], row: int) -> int:
    """The next row that is not blank, or how many there are."""
    while row < len(lines) and not lines[row].strip():
        row += 1
    return row


def _piece(runs: Sequence[tuple[int, int]], definition: Definition) -> Piece:
    return Piece(
        start=runs[0][0] + 1,
        end=runs[-1][1],
        symbol=definition.symbol,
        kind=definition.kind,
        signature=definition.signature,
        holes=_holes(runs),
    )


def _holes(runs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Inclusive 1-based line ranges between ascending runs of 0-based rows, none adjacent."""
    return tuple((end + 1, start) for (_, end), (start, _) in pairwise(runs))


def _remainder(runs: Sequence[tuple[int, int]], lines: Sequence[str]) -> Iterable[Piece]:
    """Pieces of the rows that belong to no definition."""
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
