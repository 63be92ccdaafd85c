"""Finds the lines that a model needs around a chosen chunk: class header, imports, constants,
constructor, overridden method, signatures. docs/design/retrieval.md has the use of each kind.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from agent.retrieval.context.excerpt import (
    IDENTIFIER,
    ImportStatement,
    bindings_of_class,
    bindings_of_module,
    exports,
    import_statements,
    signature_lines,
)
from agent.retrieval.context.layout import FileView, FileViews, Run, chunk_lines, runs
from agent.types import DEFINITIONS, Chunk, ChunkKind, Problem, Ranking
from agent.types.protocols import Chunker, Snapshot

if TYPE_CHECKING:
    from agent.retrieval.index import ModuleTable

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

_MAX_KEYS = 12  # entries of one table that are shown because the issue has their keys
_MAX_EXPORTS = 40  # lines; a longer list is generated
_WORD = re.compile(r"\w{3,}")
_EVERYWHERE = re.compile(
    r"\beverywhere\b|\b(?:all|every) (?:of )?(?:its |the )?(?:call|caller|usage|use|place)s?\b",
    re.IGNORECASE,
)
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]+|_+[a-z]\w*")
# The key of an entry of a table: a text or a dotted name.
_KEY = re.compile(r"\s+(?:[\"']([^\"']+)[\"']|([\w.]+))\s*[:,=]")
_ATTRIBUTE = re.compile(r"\b(?:self|cls|[A-Z]\w*)\.([A-Za-z_]\w*)")
_BASES = re.compile(r"\bclass\s+\w+\s*\(([^()]*)\)|\bextends\s+([\w.]+)")
_BASE = re.compile(r"([A-Za-z_]\w*)\s*(?=,|$)")


def base_names(signature: str) -> list[str]:
    """Return the last parts of the names of the classes that a class extends."""
    bases = _BASES.search(signature)
    return _BASE.findall(bases[1] or bases[2] or "") if bases else []


@dataclass(frozen=True, slots=True)
class SupportItem:
    """Lines of a file that are added together or not at all."""

    path: str
    lines: frozenset[int]


class SupportFinder:
    """Finds support in the files of a snapshot."""

    def __init__(
        self,
        problem: Problem,
        ranking: Ranking,
        snapshot: Snapshot,
        views: FileViews,
        chunker: Chunker | None,
    ) -> None:
        self._words = frozenset(_WORD.findall(problem.text))
        self._everywhere = _EVERYWHERE.search(problem.text) is not None
        self._snapshot = snapshot
        self._views = views
        self._chunker = chunker
        self._order = tuple(snapshot.files)
        # By path.
        self._statements = cache(lambda p: import_statements(views[p].lines, views[p].language))
        self._import_blocks = cache(self._joined_imports)
        self._definitions = cache(self._defined)
        self._bindings = cache(lambda path: bindings_of_module(views[path].lines))
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

    @cached_property
    def _modules(self) -> ModuleTable:
        from agent.retrieval.index import ModuleTable  # loads numpy

        return ModuleTable(self._order)

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
            for method in self._overridden_by(chunk, owner):
                yield from self._method(method)
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
        module, view = self._bindings(chunk.path), self._views[chunk.path]
        constants = {module[name]: None for name in IDENTIFIER.findall(text) if name in module}
        if owner is not None:
            own = bindings_of_class(chunk_lines(owner, view), view.lines)
            constants |= {own[name]: None for name in _ATTRIBUTE.findall(text) if name in own}
            for place in own.values():
                if keys := self._keyed(view, place):
                    constants.pop(place, None)
                    yield SupportItem(chunk.path, keys)
        for first, last in list(constants)[:_MAX_CONSTANTS]:
            shown = range(first, last + 1)
            if len(shown) > _SMALL_CONSTANT:
                shown = range(first, first + _HEAD_OF_CONSTANT)
            yield SupportItem(chunk.path, frozenset(shown))
        yield from self._imported_constants(chunk.path, frozenset(IDENTIFIER.findall(text)))

    def _keyed(self, view: FileView, place: Run) -> frozenset[int]:
        """Return the entries of a long table whose keys the issue has, with its first and last
        line.
        """
        first, last = place
        if last - first < _SMALL_CONSTANT:
            return frozenset()
        keys = ((n, _KEY.match(view.lines[n - 1])) for n in range(first, last + 1))
        named = {
            n for n, key in keys if key and (key[1] or key[2]).rpartition(".")[2] in self._words
        }
        around = {m for n in named for m in (n - 1, n, n + 1)}
        return frozenset({first, last, *around}) if 0 < len(named) <= _MAX_KEYS else frozenset()

    def _imported_constants(self, path: str, names: frozenset[str]) -> Iterator[SupportItem]:
        """Yield the constants of one line that other modules have for these names."""
        from agent.retrieval.index import imports

        number = self._order.index(path)
        for line in imports(self._snapshot.text(path), self._views[path].language):
            name = line.rpartition("/")[2]
            if name not in names or not _CONSTANT.fullmatch(name):
                continue
            for found in self._modules.find(line, number)[:1]:
                other = self._views[self._order[found]]
                first, last = self._bindings(other.path).get(name, (0, 1))
                if first == last:
                    yield SupportItem(other.path, frozenset({first}))

    def exports(self, path: str) -> Iterator[SupportItem]:
        """Return the lists of what the file exports, which change with what it defines."""
        for _, (first, last) in exports(self._views[path]):
            if last - first < _MAX_EXPORTS:
                yield SupportItem(path, frozenset(range(first, last + 1)))

    def callers(self, chunk: Chunk) -> Iterator[SupportItem]:
        """Return the lines that call the function, if the issue speaks of all its uses."""
        from agent.retrieval.index import is_target

        if not self._everywhere:
            return
        call = re.compile(rf"(?<!def )(?<!function )\b{re.escape(chunk.name)}\s*\(")
        for path in sorted(self._order, key=lambda p: (p not in self._ranked, p)):
            same = self._snapshot.files[path].language == chunk.language and is_target(path)
            if same and call.search(self._snapshot.text(path)):
                lines = enumerate(self._views[path].lines, 1)
                yield from (
                    SupportItem(path, frozenset({n})) for n, line in lines if call.search(line)
                )

    def base_method(self, chunk: Chunk) -> Iterator[SupportItem]:
        """Return the method that this one overrides, whole."""
        owner = self._owner(chunk)
        for method in self._overridden_by(chunk, owner) if owner else ():
            yield SupportItem(method.path, chunk_lines(method, self._views[method.path]))

    def _overridden_by(self, chunk: Chunk, owner: Chunk) -> Iterator[Chunk]:
        for base in base_names(owner.signature):
            symbol = f"{base}.{chunk.name}"
            here = [c for c in self._definitions(chunk.path) if c.symbol == symbol]
            yield from (here or self._methods.get(symbol, []))[:1]

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
        for first, last in self._import_blocks(path):
            if first <= own[0] <= last < first + _SMALL_IMPORTS:
                yield SupportItem(path, frozenset(range(first, last + 1)))
        yield SupportItem(path, frozenset(own))

    def _joined_imports(self, path: str) -> Sequence[Run]:
        numbers = (range(s.start, s.end + 1) for s in self._statements(path))
        return runs(itertools.chain.from_iterable(numbers))

    def _defined(self, path: str) -> Sequence[Chunk]:
        chunks: Iterable[Chunk] = sorted(
            self._ranked.get(path, ()), key=lambda c: (c.start, c.end, c.id)
        )
        if self._chunker:
            chunks = self._chunker(self._snapshot.files[path], self._snapshot.text(path))
        return tuple(c for c in chunks if c.kind in DEFINITIONS)
