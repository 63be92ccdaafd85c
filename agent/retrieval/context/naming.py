"""Finds the code that a name means: a path, lines of a file, or a symbol of any kind.

A reply names code as `path`, `path:120-200`, `path:Class.method`, or by a bare symbol. Functions,
methods and classes are the chunks of a file. Other names (constants, tables, class attributes) are
found where they are assigned.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.retrieval.context.excerpt import docstring_lines, signature_lines
from agent.retrieval.context.layout import FileView, FileViews, chunk_lines
from agent.retrieval.context.statements import assignments
from agent.shared.secrets import is_secret_path
from agent.types import DEFINITIONS, Chunk, ChunkKind, Ranking
from agent.types.protocols import Chunker, Snapshot

LOCATED = "located"
"""The feature of the reason that a chunk gets which the locating call named."""

WHOLE_FILE_LINES = 400
"""A longer file is answered with its likeliest parts and the list of its definitions."""

_MAX_LIKELY = 6  # parts of what is named as a whole: a long file, or a class

_MAX_DEFINITIONS = 4  # of one symbol; more are listed
_MAX_LISTED = 40  # places or files in one list
_MAX_OUTLINE = 150  # definitions in the list of a long file
_MAX_FILES = 60  # files in which a bare symbol is looked up
_NEAREST = 3

_LINES = re.compile(r"(?P<path>.+?)(?::|#)L?(?P<first>\d{1,7})(?:\s*[-–]\s*L?(?P<last>\d{1,7}))?")
_REMARK = re.compile(r"\s+(?:\(.*\)|[-–—] .*)$", re.DOTALL)
_ARGUMENTS = re.compile(r"\([^()]*\)$")
_KEYWORD = re.compile(r"^(?:async def|def|class|function|func|fn|const|method|constant)\s+")


@dataclass(frozen=True, slots=True)
class NamedCode:
    """Lines of one file that a name means. `shorter`: what is shown where all lines do not fit."""

    path: str
    symbol: str
    lines: frozenset[int]
    shorter: frozenset[int] = frozenset()

    @property
    def place(self) -> str:
        """`path:L10-42`."""
        return f"{self.path}:L{min(self.lines)}-{max(self.lines)}"


@dataclass(frozen=True, slots=True)
class NameAnswer:
    """What a name means, in order of the ranking, and what is to be said about it.

    `likely`: the best parts of a file that is too long to be shown as a whole.
    """

    code: tuple[NamedCode, ...] = ()
    note: str = ""
    likely: tuple[NamedCode, ...] = ()


class NameFinder:
    """Looks names up in a snapshot. Files that rank higher come first."""

    def __init__(
        self, ranking: Ranking, snapshot: Snapshot, views: FileViews, chunker: Chunker
    ) -> None:
        self._ranking = ranking
        self._snapshot = snapshot
        self._views = views
        self._chunker = chunker
        self._chunks: dict[str, tuple[Chunk, ...]] = {}
        self._ranks = {scored.chunk.id: rank for rank, scored in enumerate(ranking.chunks)}
        ranked = dict.fromkeys(scored.chunk.path for scored in ranking.chunks)
        self._paths = [*ranked, *(path for path in snapshot.files if path not in ranked)]

    def find(self, name: str) -> NameAnswer:
        """Return what the name means, or a note that says why nothing is shown for it."""
        wanted = _cleaned(name)
        if not wanted:
            return NameAnswer()
        if (lines := _LINES.fullmatch(wanted)) and (file := self._file(lines["path"])):
            return self._range(file, int(lines["first"]), int(lines["last"] or lines["first"]))
        if file := self._file(wanted):
            return self._whole(file)
        path, _, inner = wanted.partition(":")
        if inner and (file := self._file(path)):
            symbols = [one.strip() for one in _dotted(inner).split(",")]
            return _joined(self._of_file(file, symbol) for symbol in symbols if symbol)
        if self._snapshot.exists(wanted):
            return NameAnswer(note=f"not shown: {wanted} (no text file, or left out of the search)")
        folder = wanted.rstrip("/") + "/"
        if inside := [path for path in self._snapshot.files if path.startswith(folder)]:
            return NameAnswer(note=f"{wanted} is a folder: {_listed(inside)}")
        return self._anywhere(wanted)

    def best(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Return the few chunks of a file that rank highest; unranked ones come last."""
        last = len(self._ranks)
        ordered = sorted(chunks, key=lambda c: (self._ranks.get(c.id, last), c.start, c.end))
        return ordered[:_MAX_LIKELY]

    # --- files and lines

    def _file(self, path: str) -> str | None:
        """Return the file with this path, or the only one that ends with it."""
        wanted = path.strip().removeprefix("./")
        if wanted in self._snapshot.files:
            return wanted
        ends = [p for p in self._snapshot.files if wanted and p.endswith(f"/{wanted}")]
        return ends[0] if len(ends) == 1 else None

    def _range(self, path: str, first: int, last: int) -> NameAnswer:
        if is_secret_path(path):
            return _secret(path)
        count = len(self._views[path].lines)
        if first > count:
            return NameAnswer(note=f"{path} has only {count} lines")
        first = max(first, 1)
        return NameAnswer((NamedCode(path, "", _numbers(first, min(max(first, last), count))),))

    def _whole(self, path: str) -> NameAnswer:
        if is_secret_path(path):
            return _secret(path)
        count = len(self._views[path].lines)
        if count < WHOLE_FILE_LINES:
            return NameAnswer((NamedCode(path, "", _numbers(1, count)),))
        known = (c for c in self._of(path) if c.id in self._ranks or c.kind is ChunkKind.MODULE)
        view = self._views[path]
        likely = (NamedCode(path, c.symbol, chunk_lines(c, view)) for c in self.best(known))
        return NameAnswer(note=self.outline(path), likely=tuple(one for one in likely if one.lines))

    def outline(self, path: str) -> str:
        """Return what a file defines, with lines, for a file that is not shown whole."""
        count = len(self._views[path].lines)
        defined = [
            f"{c.symbol} L{c.start}-{c.end}" for c in self._of(path) if c.kind in DEFINITIONS
        ]
        said = f"; it defines {_listed(defined, _MAX_OUTLINE)}" if defined else ""
        return f"{path} has {count} lines, too many to show whole: name symbols or lines{said}"

    # --- symbols

    def _of_file(self, path: str, symbol: str) -> NameAnswer:
        if is_secret_path(path):
            return _secret(path)
        if found := tuple(self._in_file(path, symbol)):
            return NameAnswer(found)
        elsewhere = self._anywhere(symbol)
        if elsewhere.code:
            return NameAnswer(elsewhere.code, f"{path} does not define {symbol}; what is sent does")
        names = [chunk.symbol for chunk in self._of(path) if chunk.symbol]
        return NameAnswer(
            note=_not_found(f"{path}:{symbol}", _near(symbol, names) or elsewhere.note)
        )

    def _anywhere(self, wanted: str) -> NameAnswer:
        symbol = _dotted(wanted)
        if _is_path(wanted):
            return NameAnswer(note=_not_found(wanted, self._near_paths(wanted)))
        found = [code for path in self._with(symbol) for code in self._in_file(path, symbol)]
        if not found and "." in symbol:
            found = self._by_module(symbol)
        if len(found) > _MAX_DEFINITIONS:
            places = [f"{code.path}:{min(code.lines)}" for code in found]
            return NameAnswer(note=f"{symbol} is defined {len(found)} times: {_listed(places)}")
        if found:
            return NameAnswer(tuple(found))
        return NameAnswer(note=_not_found(symbol, self._near_symbols(symbol)))

    def _by_module(self, symbol: str) -> list[NamedCode]:
        """Look up `package.module.name` and `module.name`, the longest module first."""
        parts = symbol.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            stem = "/".join(parts[:cut])
            for path in (f"{stem}.py", f"{stem}/__init__.py"):
                if file := self._file(path):
                    return list(self._in_file(file, ".".join(parts[cut:])))
        return []

    def _with(self, symbol: str) -> Iterator[str]:
        """Yield the first files that may define the symbol."""
        name = symbol.rpartition(".")[2]
        if not name:
            return
        defines = _definition(name)
        count = 0
        for path in self._paths:
            if is_secret_path(path):
                continue
            text = self._snapshot.text(path)
            if name in text and defines.search(text):
                yield path
                count += 1
                if count == _MAX_FILES:
                    return

    def _in_file(self, path: str, symbol: str) -> Iterator[NamedCode]:
        chunks = [chunk for chunk in self._of(path) if chunk.kind in DEFINITIONS]
        same = [chunk for chunk in chunks if chunk.symbol == symbol]
        same = same or [chunk for chunk in chunks if chunk.symbol.endswith(f".{symbol}")]
        if same:
            yield from (self._code(chunk, chunks) for chunk in same)
            return
        view = self._views[path]
        owner, _, name = symbol.rpartition(".")
        assigned = [
            NamedCode(path, symbol, _numbers(first, last))
            for first, last in assignments(view, name)
            if not owner or _owner(chunks, first).endswith(owner)
        ]
        yield from assigned or self._inside(view, owner, name, chunks)

    def _inside(
        self, view: FileView, owner: str, name: str, chunks: Sequence[Chunk]
    ) -> Iterator[NamedCode]:
        """Yield the first function with an inner definition, or attribute, of this name."""
        attribute = rf"\b(?:self|this|cls)\.{re.escape(name)}\s*(?::[^=]+)?=(?!=)"
        inner = rf"\b(?:def|class|function)\s+{re.escape(name)}\b"
        pattern = re.compile(attribute if owner else inner)
        for chunk in chunks:
            if (not owner or f".{chunk.symbol}".endswith(f".{owner}.{chunk.name}")) and any(
                pattern.search(view.lines[number - 1]) for number in chunk_lines(chunk, view)
            ):
                yield self._code(chunk, chunks)
                return

    def _code(self, chunk: Chunk, chunks: Sequence[Chunk]) -> NamedCode:
        """Return a function without a docstring as the shorter form, a class without bodies."""
        view = self._views[chunk.path]
        lines = chunk_lines(chunk, view)
        if chunk.kind is not ChunkKind.CLASS:
            return NamedCode(chunk.path, chunk.symbol, lines, lines - docstring_lines(chunk))
        inner = [c for c in _members(chunk, chunks) if c is not chunk]
        heads = frozenset(n for c in inner for n in signature_lines(c, view))
        bodies = (chunk_lines(c, view) for c in inner)
        return NamedCode(chunk.path, chunk.symbol, lines.union(*bodies), lines | heads)

    def _of(self, path: str) -> tuple[Chunk, ...]:
        if path not in self._chunks:
            file = self._snapshot.files[path]
            self._chunks[path] = self._chunker(file, self._snapshot.text(path))
        return self._chunks[path]

    # --- near names

    def _near_paths(self, path: str) -> str:
        base = path.rsplit("/", 1)[-1]
        same = [p for p in self._paths if p.rsplit("/", 1)[-1] == base]
        return ", ".join(same[:_NEAREST]) or _near(path, self._paths)

    def _near_symbols(self, symbol: str) -> str:
        last = symbol.rpartition(".")[2].lower()
        named = [s.chunk for s in self._ranking.chunks if s.chunk.symbol]
        same = [f"{c.symbol} in {c.path}:{c.start}" for c in named if c.name.lower() == last]
        return ", ".join(same[:_NEAREST]) or _near(symbol, [c.symbol for c in named])


def _cleaned(name: str) -> str:
    """Return a name without quotes, remarks, keywords and brackets of a call."""
    wanted = _REMARK.sub("", name.strip()).strip("`'\" ")
    return _KEYWORD.sub("", _ARGUMENTS.sub("", wanted)).strip()


def _dotted(symbol: str) -> str:
    return _ARGUMENTS.sub("", symbol.strip(": ")).replace("::", ".").strip(". ")


def _is_path(name: str) -> bool:
    last = name.partition(":")[0].rsplit("/", 1)[-1]
    return "/" in name or last.endswith((".py", ".js", ".ts", ".go", ".rs", ".c", ".h", ".java"))


def _numbers(first: int, last: int) -> frozenset[int]:
    return frozenset(range(first, last + 1))


def _joined(answers: Iterable[NameAnswer]) -> NameAnswer:
    found = tuple(answers)
    notes = "; ".join(answer.note for answer in found if answer.note)
    return NameAnswer(tuple(code for answer in found for code in answer.code), notes)


def _secret(path: str) -> NameAnswer:
    return NameAnswer(note=f"{path} is not shown: such files hold secrets")


def _not_found(name: str, nearest: str) -> str:
    return f"not found: {name}" + (f" (nearest: {nearest})" if nearest else "")


def _near(name: str, names: Iterable[str]) -> str:
    return ", ".join(difflib.get_close_matches(name, dict.fromkeys(names), _NEAREST))


def _listed(items: Sequence[str], most: int = _MAX_LISTED) -> str:
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def _members(owner: Chunk, chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Yield a class and what is defined in it. The name may be defined again further down."""
    again = [c.start for c in chunks if c.symbol == owner.symbol and c.start > owner.start]
    end = min(again, default=None)
    for chunk in chunks:
        inside = chunk is owner or chunk.symbol.startswith(f"{owner.symbol}.")
        if inside and chunk.start >= owner.start and (end is None or chunk.start < end):
            yield chunk


def _owner(chunks: Sequence[Chunk], line: int) -> str:
    """Return the class that has this line, "" if none has."""
    inside = [
        chunk
        for chunk in chunks
        if chunk.kind is ChunkKind.CLASS and chunk.start <= line <= chunk.end
    ]
    return inside[-1].symbol if inside else ""


def _definition(name: str) -> re.Pattern[str]:
    """Return a pattern that every definition of the name matches, and few other lines."""
    word = re.escape(name)
    return re.compile(
        rf"\b(?:def|class|function|func|fn|struct|interface|enum|trait|type|define)\s+"
        rf"(?:\([^()\n]*\)\s*)?{word}\b"
        rf"|^[ \t]*(?:[\w<>\[\]*&,.:]+[ \t]+){{0,6}}[*&]?{word}[ \t]*[(:=]"
        rf"|\.{word}[ \t]*(?::[^=\n]+)?=(?!=)",
        re.MULTILINE,
    )
