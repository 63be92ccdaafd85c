"""Find the gold answer of an instance: the existing functions that its patch changed.

The rules are those of LocAgent and SweRank: existing functions, methods and classes with changed
lines, and their files. `Class.__init__` counts as `Class`. Tests do not count; SWE-bench has them
in `test_patch`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from agent.datasets import GoldInstance, Insertion, PatchedFile, parse_patch
from agent.repository import is_test_path, language_of
from agent.types import DEFINITIONS, Chunk, ChunkKind, SourceFile
from agent.types.protocols import Chunker

_TAB = 8


class GoldLines(BaseModel):
    """The lines of a function at the base commit, ascending, without blank lines.

    A class has only the lines of its header. A function that the chunker does not find has no
    lines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    lines: tuple[int, ...]


class GoldEdit(BaseModel):
    """A place of a file that the patch edits: shown if one of `lines` is.

    That is a removed line, or the lines above and below an insertion, blank lines passed over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    lines: tuple[int, ...]


class Gold(BaseModel):
    """The answer. `functions` are counted names, and `places` has the lines of each.

    `absent` are functions that the row names but that the base commit lacks. An instance without an
    existing function is not scored. `edits` are known where the row has a patch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    places: tuple[GoldLines, ...] = ()
    absent: tuple[str, ...] = ()
    edits: tuple[GoldEdit, ...] = ()


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
    outlines = {path: _outline(path, text, chunker) for path, text in sorted(texts.items())}
    paths = gold_paths(instance)
    patched = [f for f in parse_patch(instance.patch or "") if f.path in paths]
    edits = tuple(edit for file in patched for edit in gold_edits(file, texts.get(file.path)))
    if instance.gold_functions is not None:
        gold = _named(instance.gold_functions, paths, outlines)
    elif instance.patch is not None:
        gold = _patched(patched, outlines)
    else:
        files = instance.gold_files or ()
        gold = Gold(files=tuple(dict.fromkeys(file for file in files if not is_test_path(file))))
    return gold.model_copy(update={"edits": edits})


def gold_edits(file: PatchedFile, text: str | None) -> Iterator[GoldEdit]:
    """Yield the places that a patch edits in a file with this old text (None: it is not there)."""
    if text is None:
        yield GoldEdit(path=file.path, lines=file.removed[:1])
        return
    said = [n for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    for number in sorted({*file.removed}.intersection(said)):
        yield GoldEdit(path=file.path, lines=(number,))
    for insertion in file.inserted:
        above = bisect_right(said, insertion.after)
        if around := said[max(0, above - 1) : above + 1]:
            yield GoldEdit(path=file.path, lines=tuple(around))


def split_by_change(
    file: PatchedFile, text: str, chunker: Chunker
) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Split the definitions of a file's old `text` into those that a patch changes and the others.

    The rule is that of `find_gold`, but a constructor is a method here (see `counted_name`).
    """
    outline = _outline(file.path, text, chunker)
    changed = outline.changed(file)
    ids = {chunk.id for chunk in changed}
    return tuple(changed), tuple(c for c in outline.definitions if c.id not in ids)


# ----------------------------------------------------------------------------------- by their names


def _named(names: Iterable[str], paths: Sequence[str], outlines: Mapping[str, _Outline]) -> Gold:
    found: dict[str, list[GoldLines]] = {}
    absent: list[str] = []
    for name in dict.fromkeys(names):
        path, _, symbol = name.partition(":")
        if path not in paths:
            continue
        chunks = outlines[path].named(symbol) if path in outlines else []
        if chunks:
            for chunk in chunks:
                places = found.setdefault(counted_name(path, chunk.symbol), [])
                places.append(outlines[path].place(chunk))
        elif path in outlines and outlines[path].defines(symbol):
            found.setdefault(counted_name(path, symbol), []).append(GoldLines(path=path, lines=()))
        else:
            absent.append(name)
    return _gold(found, absent)


def _gold(found: Mapping[str, Sequence[GoldLines]], absent: Sequence[str] = ()) -> Gold:
    return Gold(
        files=tuple(dict.fromkeys(name.partition(":")[0] for name in found)),
        functions=tuple(found),
        places=tuple(dict.fromkeys(place for places in found.values() for place in places)),
        absent=tuple(absent),
    )


# ----------------------------------------------------------------------------------- by their lines


def _patched(files: Iterable[PatchedFile], outlines: Mapping[str, _Outline]) -> Gold:
    found: defaultdict[str, list[GoldLines]] = defaultdict(list)
    for file in files:
        outline = outlines.get(file.path)
        if outline is None:
            continue  # a test, or absent
        for chunk in outline.changed(file):
            found[counted_name(file.path, chunk.symbol)].append(outline.place(chunk))
    return _gold(found)


@dataclass(frozen=True, slots=True)
class _Extent:
    """A definition without trailing blank lines, and its inner definitions."""

    chunk: Chunk
    start: int
    end: int
    indent: int


class _Outline:
    """The definitions of one file, by name and by line."""

    def __init__(self, lines: Sequence[str], language: str, chunks: Sequence[Chunk]) -> None:
        self._lines = lines
        self._indents = language == "python"
        self._chunks = [chunk for chunk in chunks if chunk.kind in DEFINITIONS]
        self._own = [self._own_lines(chunk) for chunk in self._chunks]
        self._extents = [self._extent(number) for number in range(len(self._chunks))]

    @property
    def definitions(self) -> list[Chunk]:
        """All definitions, in order."""
        return self._chunks

    def named(self, symbol: str) -> list[Chunk]:
        """Return all definitions of a name, else the one that contains it (chunks do not nest)."""
        exact = [chunk for chunk in self._chunks if chunk.symbol == symbol]
        if exact:
            return exact
        tail = [chunk for chunk in self._chunks if chunk.symbol.endswith(f".{symbol}")]
        if len(tail) == 1:
            return tail
        scope, _, leaf = symbol.rpartition(".")
        around = [chunk for chunk in self._chunks if _is_within(chunk.symbol, scope)]
        holders = [c for c in around if c.kind is not ChunkKind.CLASS and _defines(c.text, leaf)]
        return holders if len(holders) == 1 else []

    def defines(self, symbol: str) -> bool:
        """Return whether the text defines this name."""
        return _defines("\n".join(self._lines), symbol.rpartition(".")[2])

    def place(self, chunk: Chunk) -> GoldLines:
        """Return the lines of a chunk, without omitted and blank lines."""
        return GoldLines(path=chunk.path, lines=tuple(self._own_lines(chunk)))

    def changed(self, file: PatchedFile) -> list[Chunk]:
        """Return the innermost definition of each changed line, in order, each once."""
        found = [self._around(n, n) for n in file.removed if not self._is_blank(n)]
        found += [self._around_insertion(insertion) for insertion in file.inserted]
        chunks = {extent.chunk.id: extent.chunk for extent in found if extent is not None}
        return sorted(chunks.values(), key=lambda chunk: (chunk.start, chunk.end, chunk.symbol))

    def _around(self, first: int, last: int) -> _Extent | None:
        inside = [e for e in self._extents if e.start <= first and last <= e.end]
        return max(inside, key=lambda e: (e.start, -e.end), default=None)

    def _around_insertion(self, insertion: Insertion) -> _Extent | None:
        """Return the definition around an insertion. At the end of a body, indentation decides."""
        before = self._text_before(insertion.after)
        inside = self._around(before, insertion.after + 1)
        if not self._indents or insertion.indent is None:
            return inside
        ending = [e for e in self._extents if e.end == before and e.indent < insertion.indent]
        return max(
            [*ending, *([inside] if inside else [])],
            key=lambda e: (e.start, -e.end),
            default=None,
        )

    def _text_before(self, number: int) -> int:
        while number > 0 and self._is_blank(number):
            number -= 1
        return number

    def _extent(self, number: int) -> _Extent:
        chunk, own = self._chunks[number], self._own[number]
        end = max(own, default=chunk.end)
        later = zip(self._chunks[number + 1 :], self._own[number + 1 :], strict=True)
        for inner, lines in later if chunk.kind is ChunkKind.CLASS else ():
            if inner.symbol == chunk.symbol:
                break  # the name is defined again further down
            if inner.symbol.startswith(f"{chunk.symbol}."):
                end = max(end, *lines)
        return _Extent(chunk, min(own, default=chunk.start), end, _indent_of(chunk))

    def _own_lines(self, chunk: Chunk) -> list[int]:
        return [number for number in chunk.numbers() if not self._is_blank(number)]

    def _is_blank(self, number: int) -> bool:
        return not (1 <= number <= len(self._lines) and self._lines[number - 1].strip())


def _outline(path: str, text: str, chunker: Chunker) -> _Outline:
    language = language_of(path)
    file = SourceFile(path, "0" * 40, len(text), language)
    return _Outline(text.split("\n"), language, chunker(file, text))


def _indent_of(chunk: Chunk) -> int:
    head = (chunk.signature or chunk.text).split("\n", 1)[0].expandtabs(_TAB)
    return len(head) - len(head.lstrip())


def _is_within(symbol: str, scope: str) -> bool:
    return not scope or symbol == scope or symbol.startswith(f"{scope}.")


def _defines(text: str, name: str) -> bool:
    return re.search(rf"\b(?:def|class|function|func|fn)\s+{re.escape(name)}\b", text) is not None
