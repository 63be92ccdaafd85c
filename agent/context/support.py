"""What a model needs around a chosen chunk so that it does not quote from memory.

The header of a method's class with its decorators, the imports that the chunk uses, and the
signatures of what it calls; where tokens are left, the other imports and signatures of its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.context.excerpt import signature_lines
from agent.context.imports import ImportStatement, import_statements
from agent.context.views import FileViews, chunk_lines
from agent.protocols import Chunker, Snapshot
from agent.types import Chunk, ChunkKind, Ranking

_DEFINITIONS = frozenset({ChunkKind.FUNCTION, ChunkKind.METHOD, ChunkKind.CLASS})
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_CALL = re.compile(r"(?:\b([A-Za-z_]\w*)\s*(?:\.|->|::)\s*)?\b([A-Za-z_]\w*)\s*\(")
_OWN = frozenset({"self", "cls", "this", "super", "Self"})

# A class whose own lines (fields, docstring) are this few is shown entirely: dataclasses, enums.
_SMALL_CLASS = 15
# A constructor with this many lines at most is shown with its body beside a chosen method.
_SMALL_CONSTRUCTOR = 30
# What remains of a file (imports, constants) is shown entirely if it has no more lines than this.
_SMALL_MODULE = 15
# Signatures shown for one chunk; beyond a handful they crowd out other chunks' support.
_MAX_CALLEES = 8


@dataclass(frozen=True, slots=True)
class SupportItem:
    """Lines of a file that go in together or not at all."""

    path: str
    lines: frozenset[int]


class SupportFinder:
    """Finds support in the files of a snapshot.

    With a `chunker` every definition of a file is known, without one only those of the ranking.
    """

    def __init__(
        self, ranking: Ranking, snapshot: Snapshot, views: FileViews, chunker: Chunker | None
    ) -> None:
        self._snapshot = snapshot
        self._views = views
        self._chunker = chunker
        self._imports: dict[str, tuple[ImportStatement, ...]] = {}
        self._chunks: dict[str, tuple[Chunk, ...]] = {}
        self._defined: dict[str, tuple[Chunk, ...]] = {}
        self._ranked: dict[str, list[Chunk]] = {}
        self._by_name: dict[str, list[Chunk]] = {}
        for scored in ranking.chunks:
            self._ranked.setdefault(scored.chunk.path, []).append(scored.chunk)
            if scored.chunk.kind in (ChunkKind.FUNCTION, ChunkKind.CLASS):
                self._by_name.setdefault(_last_name(scored.chunk), []).append(scored.chunk)

    def class_header(self, chunk: Chunk) -> frozenset[int]:
        """Lines of the decorators and the `class` line around a method, empty for other chunks."""
        owner = self._owner(chunk)
        return frozenset(signature_lines(owner, self._views[owner.path])) if owner else frozenset()

    def around(self, chunk: Chunk, shown: frozenset[int]) -> Iterator[SupportItem]:
        """Support for the lines `shown` of a chunk, the most needed first."""
        text = self._views[chunk.path].text(sorted(shown))
        if owner := self._owner(chunk):
            yield from self._class(owner)
        names = frozenset(_IDENTIFIER.findall(text))
        for statement in self._statements(chunk.path):
            if names & statement.names:
                yield self._import_item(chunk.path, statement)
        yield from self._callees(chunk, text)

    def rest_of_file(self, path: str) -> Iterator[SupportItem]:
        """Every import, what else stands outside of a small file's functions, every signature."""
        for statement in self._statements(path):
            yield self._import_item(path, statement)
        for chunk in self._chunks_of(path):
            lines = chunk_lines(chunk, self._views[path])
            if chunk.kind is ChunkKind.MODULE and 0 < len(lines) <= _SMALL_MODULE:
                yield SupportItem(path, lines)
        for chunk in self._definitions(path):
            yield from self._signature(chunk)

    def _owner(self, chunk: Chunk) -> Chunk | None:
        """The class of a method."""
        owner = chunk.symbol.rpartition(".")[0] if chunk.kind is ChunkKind.METHOD else ""
        classes = (
            candidate
            for candidate in (self._definitions(chunk.path) if owner else ())
            if candidate.kind is ChunkKind.CLASS and candidate.symbol == owner
        )
        # A symbol may be defined twice (overloads, branches): the class that begins last before it.
        return max(
            (c for c in classes if c.start <= chunk.start), key=lambda c: c.start, default=None
        )

    def _class(self, chunk: Chunk) -> Iterator[SupportItem]:
        """A small class entirely, of others the header and the constructor's signature."""
        lines = chunk_lines(chunk, self._views[chunk.path])
        if 0 < len(lines) <= _SMALL_CLASS:
            yield SupportItem(chunk.path, lines)
        else:
            yield from self._signature(chunk)
        constructor = f"{chunk.symbol}.__init__"
        for candidate in self._definitions(chunk.path):
            if candidate.symbol == constructor:
                yield from self._constructor(candidate)

    def _constructor(self, chunk: Chunk) -> Iterator[SupportItem]:
        """What sets up the state that the methods share: entirely where it is short."""
        lines = chunk_lines(chunk, self._views[chunk.path])
        if 0 < len(lines) <= _SMALL_CONSTRUCTOR:
            yield SupportItem(chunk.path, lines)
        yield from self._signature(chunk)

    def _callees(self, chunk: Chunk, text: str) -> Iterator[SupportItem]:
        """Signatures of what is called, in order of the calls."""
        found: dict[str, Chunk] = {}
        for receiver, name in dict.fromkeys(_CALL.findall(text)):
            callee = self._resolve(chunk, receiver, name)
            if callee is not None and callee.id != chunk.id:
                found.setdefault(callee.id, callee)
        for callee in list(found.values())[:_MAX_CALLEES]:
            show = self._class if callee.kind is ChunkKind.CLASS else self._signature
            yield from show(callee)

    def _resolve(self, chunk: Chunk, receiver: str, name: str) -> Chunk | None:
        """The one definition that a call can mean; None when there is no or more than one."""
        here = [c for c in self._definitions(chunk.path) if _last_name(c) == name]
        owner = chunk.symbol.rpartition(".")[0]
        own = [c for c in here if c.symbol == f"{owner}.{name}"]
        if receiver in _OWN and owner and own:
            return own[0]
        if not receiver:
            here = [c for c in here if c.kind is not ChunkKind.METHOD]
        if here:
            return here[0] if len(here) == 1 else None
        imported = any(name in s.names for s in self._statements(chunk.path))
        elsewhere = self._by_name.get(name, ()) if imported else ()
        return elsewhere[0] if len(elsewhere) == 1 else None

    def _signature(self, chunk: Chunk) -> Iterator[SupportItem]:
        lines = signature_lines(chunk, self._views[chunk.path])
        if lines:
            yield SupportItem(chunk.path, frozenset(lines))

    def _import_item(self, path: str, statement: ImportStatement) -> SupportItem:
        return SupportItem(path, frozenset(range(statement.start, statement.end + 1)))

    def _statements(self, path: str) -> Sequence[ImportStatement]:
        if path not in self._imports:
            view = self._views[path]
            self._imports[path] = import_statements(view.lines, view.language)
        return self._imports[path]

    def _definitions(self, path: str) -> Sequence[Chunk]:
        if path not in self._defined:
            found = (c for c in self._chunks_of(path) if c.kind in _DEFINITIONS)
            self._defined[path] = tuple(found)
        return self._defined[path]

    def _chunks_of(self, path: str) -> Sequence[Chunk]:
        if path not in self._chunks:
            file = self._snapshot.files[path]
            self._chunks[path] = tuple(
                self._chunker(file, self._snapshot.text(path))
                if self._chunker
                else sorted(self._ranked.get(path, ()), key=lambda c: (c.start, c.end, c.id))
            )
        return self._chunks[path]


def _last_name(chunk: Chunk) -> str:
    return chunk.symbol.rpartition(".")[2]
