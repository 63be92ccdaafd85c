"""Finds the lines that a model needs around a chosen chunk: class header, imports, constants,
constructor, overridden method, signatures. docs/design/retrieval.md has the use of each kind.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.retrieval.context.excerpt import (
    IDENTIFIER,
    ImportStatement,
    bindings_of_class,
    bindings_of_module,
    import_statements,
    signature_lines,
)
from agent.retrieval.context.layout import FileViews, Run, chunk_lines, runs
from agent.types import DEFINITIONS, Chunk, ChunkKind, Ranking
from agent.types.protocols import Chunker, Snapshot

_CALL = re.compile(r"(?:\b([A-Za-z_]\w*)\s*(?:\.|->|::)\s*)?\b([A-Za-z_]\w*)\s*\(")
_OWN = frozenset({"self", "cls", "this", "super", "Self"})

# A constructor, an overridden method, and a class without its methods are shown as a whole if they
# have at most this many lines.
_SMALL = 15
# A function with at most this many lines more than its signature is shown as a whole.
_SMALL_BODY = 5
# A block of imports with at most this many lines is shown as a whole.
_SMALL_IMPORTS = 12
# Signatures shown for one chunk. More would crowd out the support of other chunks.
_MAX_CALLEES = 8
# Constants shown for one chunk.
_MAX_CONSTANTS = 8
# A constant with at most this many lines is shown as a whole, a longer one by its first lines.
_SMALL_CONSTANT = 16
_HEAD_OF_CONSTANT = 8

_ATTRIBUTE = re.compile(r"\b(?:self|cls|[A-Z]\w*)\.([A-Za-z_]\w*)")
_BASES = re.compile(r"\bclass\s+\w+\s*\(([^()]*)\)")
_BASE = re.compile(r"([A-Za-z_]\w*)\s*(?=,|$)")


@dataclass(frozen=True, slots=True)
class SupportItem:
    """Lines of a file that are added together or not at all."""

    path: str
    lines: frozenset[int]


class SupportFinder:
    """Finds support in the files of a snapshot."""

    def __init__(
        self, ranking: Ranking, snapshot: Snapshot, views: FileViews, chunker: Chunker | None
    ) -> None:
        self._snapshot = snapshot
        self._views = views
        self._chunker = chunker
        # By path.
        self._imports: dict[str, tuple[ImportStatement, ...]] = {}
        self._import_blocks: dict[str, tuple[Run, ...]] = {}
        self._defined: dict[str, tuple[Chunk, ...]] = {}
        self._bound: dict[str, Mapping[str, Run]] = {}
        self._ranked: defaultdict[str, list[Chunk]] = defaultdict(list)
        # By name or symbol.
        self._by_name: defaultdict[str, list[Chunk]] = defaultdict(list)
        self._methods: defaultdict[str, list[Chunk]] = defaultdict(list)
        for chunk in (scored.chunk for scored in ranking.chunks):
            self._ranked[chunk.path].append(chunk)
            if chunk.kind in (ChunkKind.FUNCTION, ChunkKind.CLASS):
                self._by_name[chunk.name].append(chunk)
            elif chunk.kind is ChunkKind.METHOD:
                self._methods[chunk.symbol].append(chunk)

    def class_header(self, chunk: Chunk) -> frozenset[int]:
        """Return the lines of the class header around a method, with its decorators."""
        owner = self._owner(chunk)
        return frozenset(signature_lines(owner, self._views[owner.path])) if owner else frozenset()

    def around(self, chunk: Chunk, shown: frozenset[int]) -> Iterator[SupportItem]:
        """Return support for the lines `shown` of a chunk, the most important first."""
        text, owner = self._views[chunk.path].text(sorted(shown)), self._owner(chunk)
        names = frozenset(IDENTIFIER.findall(text))
        for statement in self._statements(chunk.path):
            if names & statement.names:
                yield from self._import(chunk.path, statement)
        yield from self._constants(chunk, owner, text)
        if owner:
            yield from self._constructors(owner)
        if owner and "super(" in text:
            yield from self._overridden(chunk, owner)
        yield from self._callees(chunk, text)

    def rest_of_file(self, path: str) -> Iterator[SupportItem]:
        """Return all imports and signatures of a file."""
        for statement in self._statements(path):
            yield from self._import(path, statement)
        for chunk in self._definitions(path):
            yield from self._signature(chunk)

    def _owner(self, chunk: Chunk) -> Chunk | None:
        if chunk.kind is not ChunkKind.METHOD:
            return None
        owner = chunk.symbol.rpartition(".")[0]
        classes = (
            c
            for c in self._definitions(chunk.path)
            if c.kind is ChunkKind.CLASS and c.symbol == owner and c.start <= chunk.start
        )
        # A symbol may be defined twice (overloads, branches): the nearest class above counts.
        return max(classes, key=lambda c: c.start, default=None)

    def _class(self, chunk: Chunk) -> Iterator[SupportItem]:
        lines = chunk_lines(chunk, self._views[chunk.path])
        if 0 < len(lines) <= _SMALL:
            yield SupportItem(chunk.path, lines)
        else:
            yield from self._signature(chunk)
        yield from self._constructors(chunk)

    def _constructors(self, owner: Chunk) -> Iterator[SupportItem]:
        for candidate in self._definitions(owner.path):
            if candidate.symbol == f"{owner.symbol}.__init__":
                yield from self._method(candidate)

    def _constants(self, chunk: Chunk, owner: Chunk | None, text: str) -> Iterator[SupportItem]:
        if chunk.path not in self._bound:
            self._bound[chunk.path] = bindings_of_module(self._views[chunk.path].lines)
        module, view = self._bound[chunk.path], self._views[chunk.path]
        constants = {module[name]: None for name in IDENTIFIER.findall(text) if name in module}
        if owner is not None:
            own = bindings_of_class(chunk_lines(owner, view), view.lines)
            constants |= {own[name]: None for name in _ATTRIBUTE.findall(text) if name in own}
        for first, last in list(constants)[:_MAX_CONSTANTS]:
            shown = range(first, last + 1)
            if len(shown) > _SMALL_CONSTANT:
                shown = range(first, first + _HEAD_OF_CONSTANT)
            yield SupportItem(chunk.path, frozenset(shown))

    def _overridden(self, chunk: Chunk, owner: Chunk) -> Iterator[SupportItem]:
        bases = _BASES.search(owner.signature)
        for base in _BASE.findall(bases[1]) if bases else ():
            symbol = f"{base}.{chunk.name}"
            here = [c for c in self._definitions(chunk.path) if c.symbol == symbol]
            for method in (here or self._methods.get(symbol, []))[:1]:
                yield from self._method(method)

    def _method(self, chunk: Chunk) -> Iterator[SupportItem]:
        lines = chunk_lines(chunk, self._views[chunk.path])
        if 0 < len(lines) <= _SMALL:
            yield SupportItem(chunk.path, lines)
        yield from self._signature(chunk)

    def _callees(self, chunk: Chunk, text: str) -> Iterator[SupportItem]:
        calls = dict.fromkeys(_CALL.findall(text))
        resolved = (self._resolve(chunk, receiver, name) for receiver, name in calls)
        callees = {c.id: c for c in resolved if c is not None and c.id != chunk.id}
        for callee in list(callees.values())[:_MAX_CALLEES]:
            show = self._class if callee.kind is ChunkKind.CLASS else self._signature
            yield from show(callee)

    def _resolve(self, chunk: Chunk, receiver: str, name: str) -> Chunk | None:
        """Return the one definition that a call can mean; None if there is none or several."""
        here = [c for c in self._definitions(chunk.path) if c.name == name]
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
        whole = chunk_lines(chunk, self._views[chunk.path])
        if len(lines) < len(whole) <= len(lines) + _SMALL_BODY:
            yield SupportItem(chunk.path, whole)
        if lines:
            yield SupportItem(chunk.path, frozenset(lines))

    def _import(self, path: str, statement: ImportStatement) -> Iterator[SupportItem]:
        own = range(statement.start, statement.end + 1)
        if path not in self._import_blocks:
            numbers = (range(s.start, s.end + 1) for s in self._statements(path))
            self._import_blocks[path] = runs(itertools.chain.from_iterable(numbers))
        for first, last in self._import_blocks[path]:
            if first <= own[0] <= last < first + _SMALL_IMPORTS:
                yield SupportItem(path, frozenset(range(first, last + 1)))
        yield SupportItem(path, frozenset(own))

    def _statements(self, path: str) -> Sequence[ImportStatement]:
        if path not in self._imports:
            view = self._views[path]
            self._imports[path] = import_statements(view.lines, view.language)
        return self._imports[path]

    def _definitions(self, path: str) -> Sequence[Chunk]:
        if path not in self._defined:
            file = self._snapshot.files[path]
            chunks = (
                self._chunker(file, self._snapshot.text(path))
                if self._chunker
                else sorted(self._ranked.get(path, ()), key=lambda c: (c.start, c.end, c.id))
            )
            self._defined[path] = tuple(c for c in chunks if c.kind in DEFINITIONS)
        return self._defined[path]
