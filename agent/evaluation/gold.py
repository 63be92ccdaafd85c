"""The right answer of an instance: which existing functions were changed, and where they are.

As LocAgent and SweRank count it: existing functions, methods and classes with changed lines; the
files are those of these functions. `Class.__init__` counts as `Class`. Tests are no answer (in
SWE-bench they are in `test_patch`, and nobody is asked to find them).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from agent.evaluation.dataset import Instance
from agent.evaluation.patches import Insertion, PatchedFile, parse_patch
from agent.protocols import Chunker
from agent.repository.languages import is_test_path, language_of
from agent.types import Chunk, ChunkKind, SourceFile

_DEFINITIONS = frozenset({ChunkKind.FUNCTION, ChunkKind.METHOD, ChunkKind.CLASS})
_TAB = 8


class Place(BaseModel):
    """Where a function stands at the base commit: its lines that are not blank, ascending.

    A class's lines are its header only. No lines: it is there, but the chunker does not see it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    lines: tuple[int, ...]


class Gold(BaseModel):
    """`functions` are names as they are counted, `places` where all of them are.

    `absent`: functions that the row names and the base commit lacks. Empty without any function
    that exists: the instance is not scored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    absent: tuple[str, ...] = ()


def counted_name(path: str, symbol: str) -> str:
    """`path:symbol`, a constructor as its class."""
    return f"{path}:{symbol.removesuffix('.__init__')}"


def gold_paths(instance: Instance) -> tuple[str, ...]:
    """The files that `find_gold` needs the text of, in path order."""
    if instance.gold_functions is not None:
        paths = {name.partition(":")[0] for name in instance.gold_functions}
    else:
        paths = {file.path for file in parse_patch(instance.patch or "")}
    # Where a row keeps its tests apart, what is left is no test whatever its path looks like.
    keep_all = instance.test_patch is not None
    return tuple(sorted(path for path in paths if keep_all or not is_test_path(path)))


def find_gold(instance: Instance, texts: Mapping[str, str], chunker: Chunker) -> Gold:
    """The answer, given the text of each of `gold_paths` that exists at the base commit.

    With neither functions nor a patch, the files that the row names are all that is known.
    """
    outlines = {path: _outline(path, text, chunker) for path, text in sorted(texts.items())}
    if instance.gold_functions is not None:
        return _named(instance.gold_functions, gold_paths(instance), outlines)
    if instance.patch is not None:
        return _patched(parse_patch(instance.patch), outlines)
    files = instance.gold_files or ()
    return Gold(files=tuple(dict.fromkeys(file for file in files if not is_test_path(file))))


def split_by_change(
    file: PatchedFile, text: str, chunker: Chunker
) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """The definitions of a file's old `text` that a patch changes, and the others; both in order.

    The rule is that of `find_gold`. A constructor is a method here: see `counted_name`.
    """
    outline = _outline(file.path, text, chunker)
    changed = outline.changed(file)
    ids = {chunk.id for chunk in changed}
    return tuple(changed), tuple(c for c in outline.definitions if c.id not in ids)


# ----------------------------------------------------------------------------------- by their names


def _named(names: Iterable[str], paths: Sequence[str], outlines: Mapping[str, _Outline]) -> Gold:
    found: dict[str, list[Place]] = {}
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
            found.setdefault(counted_name(path, symbol), []).append(Place(path=path, lines=()))
        else:
            absent.append(name)
    return _gold(found, absent)


def _gold(found: Mapping[str, Sequence[Place]], absent: Sequence[str] = ()) -> Gold:
    return Gold(
        files=tuple(dict.fromkeys(name.partition(":")[0] for name in found)),
        functions=tuple(found),
        places=tuple(dict.fromkeys(place for places in found.values() for place in places)),
        absent=tuple(absent),
    )


# ----------------------------------------------------------------------------------- by their lines


def _patched(files: Iterable[PatchedFile], outlines: Mapping[str, _Outline]) -> Gold:
    found: defaultdict[str, list[Place]] = defaultdict(list)
    for file in files:
        outline = outlines.get(file.path)
        if outline is None:
            continue  # a test, or not there
        for chunk in outline.changed(file):
            found[counted_name(file.path, chunk.symbol)].append(outline.place(chunk))
    return _gold(found)


@dataclass(frozen=True, slots=True)
class _Extent:
    """A definition from its first to its last line that is not blank, inner ones included."""

    chunk: Chunk
    start: int
    end: int
    indent: int


class _Outline:
    """The definitions of one file, by name and by line."""

    def __init__(self, lines: Sequence[str], language: str, chunks: Sequence[Chunk]) -> None:
        self._lines = lines
        self._indents = language == "python"
        self._chunks = [chunk for chunk in chunks if chunk.kind in _DEFINITIONS]
        self._own = [self._own_lines(chunk) for chunk in self._chunks]
        self._extents = [self._extent(number) for number in range(len(self._chunks))]

    @property
    def definitions(self) -> list[Chunk]:
        """All of them, in order."""
        return self._chunks

    def named(self, symbol: str) -> list[Chunk]:
        """All definitions of that name; else the one that has it inside (chunks do not nest)."""
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
        """Whether the text has a definition of this name at all."""
        return _defines("\n".join(self._lines), symbol.rpartition(".")[2])

    def place(self, chunk: Chunk) -> Place:
        """The lines of a chunk, without holes and blank lines."""
        return Place(path=chunk.path, lines=tuple(self._own_lines(chunk)))

    def changed(self, file: PatchedFile) -> list[Chunk]:
        """The innermost definition of each changed line, in order, each once."""
        found = [self._around(n, n) for n in file.removed if not self._is_blank(n)]
        found += [self._around_insertion(insertion) for insertion in file.inserted]
        chunks = {extent.chunk.id: extent.chunk for extent in found if extent is not None}
        return sorted(chunks.values(), key=lambda chunk: (chunk.start, chunk.end, chunk.symbol))

    def _around(self, first: int, last: int) -> _Extent | None:
        inside = [e for e in self._extents if e.start <= first and last <= e.end]
        return max(inside, key=lambda e: (e.start, -e.end), default=None)

    def _around_insertion(self, insertion: Insertion) -> _Extent | None:
        """What the gap lies in. At the end of a body the indentation says whether it goes on."""
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
                break  # defined again further down
            if inner.symbol.startswith(f"{chunk.symbol}."):
                end = max(end, *lines)
        return _Extent(chunk, min(own, default=chunk.start), end, _indent_of(chunk))

    def _own_lines(self, chunk: Chunk) -> list[int]:
        holes = {n for first, last in chunk.holes for n in range(first, last + 1)}
        numbers = range(chunk.start, chunk.end + 1)
        return [n for n in numbers if n not in holes and not self._is_blank(n)]

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
