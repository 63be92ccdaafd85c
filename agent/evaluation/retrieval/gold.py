"""Find the gold answer of an instance: the existing functions that its patch changed.

The rules are those of LocAgent and SweRank: existing functions, methods and classes with changed
lines, and their files. Tests do not count; SWE-bench has them in `test_patch`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from agent.datasets import GoldInstance, Insertion, PatchedFile, parse_patch
from agent.repository import is_test_path, language_of
from agent.types import DEFINITIONS, Chunk, ChunkKind, SourceFile
from agent.types.protocols import Chunker

_TAB = 8


class GoldLines(BaseModel, frozen=True, extra="forbid"):
    """Lines of a file at the base commit, ascending, without blank lines.

    They are those of a function (of a class, its header; none where the chunker does not find it),
    or those of an edit: a removed line, or the lines above and below an insertion.
    """

    path: str
    lines: tuple[int, ...]


class Gold(BaseModel, frozen=True, extra="forbid"):
    """The answer: `functions` are counted names, `places` their lines, `edits` those of the patch.

    An instance without an existing file is not scored.
    """

    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    places: tuple[GoldLines, ...] = ()
    edits: tuple[GoldLines, ...] = ()


def counted_name(path: str, symbol: str) -> str:
    """Return `path:symbol`. A constructor gets the name of its class."""
    return f"{path}:{symbol.removesuffix('.__init__')}"


def gold_paths(instance: GoldInstance) -> tuple[str, ...]:
    """Return the paths of the files whose text `find_gold` needs, sorted."""
    paths = {name.partition(":")[0] for name in instance.gold_functions or ()}
    paths |= {file.path for file in parse_patch(instance.patch or "")}
    # If a row has a test patch of its own, its patch holds no tests, even if paths look like tests.
    keep_all = instance.test_patch is not None
    return tuple(sorted(path for path in paths if keep_all or not is_test_path(path)))


def find_gold(instance: GoldInstance, texts: Mapping[str, str], chunker: Chunker) -> Gold:
    """Return the answer, given the texts of those `gold_paths` that exist at the base commit.

    Without functions and without a patch, the answer is the files that the row names.
    """
    if instance.gold_functions is None and instance.patch is None:
        files = [file for file in instance.gold_files or () if not is_test_path(file)]
        return Gold(files=tuple(dict.fromkeys(files)))
    outlines = {path: FileOutline(path, text, chunker) for path, text in sorted(texts.items())}
    paths = gold_paths(instance)
    patched = [file for file in parse_patch(instance.patch or "") if file.path in paths]
    if instance.gold_functions is None:
        shown = [(file, outlines[file.path]) for file in patched if file.path in outlines]
        found = [(f.path, c.symbol, o.lines_of(c)) for f, o in shown for c in o.changed(f)]
    else:
        names = (name.partition(":") for name in dict.fromkeys(instance.gold_functions))
        known = [(path, symbol) for path, _, symbol in names if path in outlines]
        found = [(path, *one) for path, symbol in known for one in outlines[path].named(symbol)]
    functions = tuple(dict.fromkeys(counted_name(path, symbol) for path, symbol, _ in found))
    return Gold(
        files=tuple(dict.fromkeys(name.partition(":")[0] for name in functions)),
        functions=functions,
        places=tuple(dict.fromkeys(GoldLines(path=p, lines=lines) for p, _, lines in found)),
        edits=tuple(edit for file in patched for edit in _edits(file, texts.get(file.path))),
    )


def _edits(file: PatchedFile, text: str | None) -> Iterator[GoldLines]:
    """Yield the places that a patch edits in a file with this old text (None: it is not there)."""
    if text is None:
        yield GoldLines(path=file.path, lines=file.removed[:1])
        return
    lines = [n for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    for number in sorted({*file.removed}.intersection(lines)):
        yield GoldLines(path=file.path, lines=(number,))
    for insertion in file.inserted:
        above = bisect_right(lines, insertion.after)
        if around := lines[max(0, above - 1) : above + 1]:
            yield GoldLines(path=file.path, lines=tuple(around))


@dataclass(frozen=True, slots=True)
class _Extent:
    """A definition without trailing blank lines, and its inner definitions."""

    chunk: Chunk
    start: int
    end: int
    indent: int


class FileOutline:
    """The definitions of one file, by name and by line."""

    def __init__(self, path: str, text: str, chunker: Chunker) -> None:
        language = language_of(path)
        file = SourceFile(path, "0" * 40, len(text), language)
        self._text = text
        self._lines = text.split("\n")
        self._indents = language == "python"
        self.definitions = [c for c in chunker(file, text) if c.kind in DEFINITIONS]
        self._extents = [self._extent(number) for number in range(len(self.definitions))]

    def named(self, symbol: str) -> list[tuple[str, tuple[int, ...]]]:
        """Return symbol and lines of all definitions of a name, else of the one that contains it
        (chunks do not nest); no lines where only the text defines it.
        """
        chunks = [chunk for chunk in self.definitions if chunk.symbol == symbol]
        scope, _, leaf = symbol.rpartition(".")
        if not chunks:
            tail = [chunk for chunk in self.definitions if chunk.symbol.endswith(f".{symbol}")]
            chunks = tail if len(tail) == 1 else []
        if not chunks:
            holders = [
                chunk
                for chunk in self.definitions
                if (not scope or f"{chunk.symbol}.".startswith(f"{scope}."))
                and chunk.kind is not ChunkKind.CLASS
                and _defines(chunk.text, leaf)
            ]
            chunks = holders if len(holders) == 1 else []
        if not chunks and _defines(self._text, leaf):
            return [(symbol, ())]
        return [(chunk.symbol, self.lines_of(chunk)) for chunk in chunks]

    def lines_of(self, chunk: Chunk) -> tuple[int, ...]:
        """Return the lines of a chunk, without omitted and blank lines."""
        return tuple(number for number in chunk.numbers() if not self._is_blank(number))

    def changed(self, file: PatchedFile) -> list[Chunk]:
        """Return the innermost definition of each changed line, in order, each once."""
        extents = [self._around(n, n) for n in file.removed if not self._is_blank(n)]
        extents += [self._around_insertion(insertion) for insertion in file.inserted]
        chunks = {extent.chunk.id: extent.chunk for extent in extents if extent is not None}
        return sorted(chunks.values(), key=lambda chunk: (chunk.start, chunk.end, chunk.symbol))

    def _around(self, first: int, last: int) -> _Extent | None:
        inside = [e for e in self._extents if e.start <= first and last <= e.end]
        return _innermost(inside)

    def _around_insertion(self, insertion: Insertion) -> _Extent | None:
        """Return the definition around an insertion. At the end of a body, indentation decides."""
        before = insertion.after
        while before > 0 and self._is_blank(before):
            before -= 1
        inside = self._around(before, insertion.after + 1)
        if not self._indents or insertion.indent is None:
            return inside
        ending = [e for e in self._extents if e.end == before and e.indent < insertion.indent]
        if inside is not None:
            ending.append(inside)
        return _innermost(ending)

    def _extent(self, number: int) -> _Extent:
        chunk = self.definitions[number]
        own = self.lines_of(chunk)
        end = max(own, default=chunk.end)
        for inner in self.definitions[number + 1 :] if chunk.kind is ChunkKind.CLASS else ():
            if inner.symbol == chunk.symbol:
                break  # the name is defined again further down
            if inner.symbol.startswith(f"{chunk.symbol}."):
                end = max(end, *self.lines_of(inner))
        return _Extent(chunk, min(own, default=chunk.start), end, _indent_of(chunk))

    def _is_blank(self, number: int) -> bool:
        return not (1 <= number <= len(self._lines) and self._lines[number - 1].strip())


def _innermost(extents: Sequence[_Extent]) -> _Extent | None:
    return max(extents, key=lambda extent: (extent.start, -extent.end), default=None)


def _indent_of(chunk: Chunk) -> int:
    head = (chunk.signature or chunk.text).split("\n", 1)[0].expandtabs(_TAB)
    return len(head) - len(head.lstrip())


def _defines(text: str, name: str) -> bool:
    return re.search(rf"\b(?:def|class|function|func|fn)\s+{re.escape(name)}\b", text) is not None
