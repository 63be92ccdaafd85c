"""Code that a model names as `path`, `path:120-200`, `path:Class.method`, or a bare symbol: what a
reply asks for, and what comes first in a ranking. Constants are found where they are assigned.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from agent.retrieval.context.excerpt import assignments, exports, signature_lines
from agent.retrieval.context.layout import (
    ELISION,
    PREAMBLE,
    Choice,
    FileShare,
    FileViews,
    Run,
    chunk_lines,
    runs,
)
from agent.retrieval.context.support import base_names
from agent.shared.secrets import is_secret_path
from agent.shared.terminal import inert, listed
from agent.types import (
    DEFINITIONS,
    Chunk,
    ChunkKind,
    ContextBundle,
    PieceForm,
    Ranking,
    Reason,
    ScoredChunk,
)
from agent.types.protocols import Chunker, Snapshot, TokenCounter

LOCATED = "located"
"""The feature of the reason that a chunk gets which the locating call named."""

# Further names are not looked up. A name is the model's text, so its length is limited too.
MAX_NAMES = 40
_NAME_LENGTH = 300

_WHOLE_FILE_LINES = 400  # a longer file is answered with its likeliest parts and its outline
_MAX_LIKELY = 6  # parts of what is named as a whole: a long file, or a class
_MAX_DEFINITIONS = 4  # of one symbol; more are listed
_MAX_LISTED = 40  # places or files in one list
_MAX_OUTLINE = 150  # definitions in the list of a long file
_MAX_FILES = 60  # files in which a bare symbol is looked up
_MAX_BASES = 5  # classes between a class and the one that has the method
_NEAREST = 3
_REPEATED = 10  # lines in a row that were shown before are not sent again
_NOTE_TOKENS = 60  # left for the note on a piece that was cut

_LINES = re.compile(r"(?P<path>.+?)(?::|#)L?(?P<first>\d{1,7})(?:\s*[-–]\s*L?(?P<last>\d{1,7}))?")
_REMARK = re.compile(r"\s+(?:\(.*\)|[-–—] .*)$", re.DOTALL)
_ARGUMENTS = re.compile(r"\([^()]*\)$")
_KEYWORD = re.compile(r"^(?:async def|def|class|function|func|fn|const|method|constant)\s+")
_INSIDE = re.compile(r"\s+>\s+")  # `outer > inner`
# Other words for a list of exports.
_EXPORT_NAMES: Mapping[str, Sequence[str]] = {
    "exports": ("module.exports", "export", "__all__"),
    "default": ("export default",),
}
_CODE_SUFFIXES = (".py", ".js", ".ts", ".go", ".rs", ".c", ".h", ".java")


@dataclass(frozen=True, slots=True)
class NamedCode:
    """Lines of one file that a name means. `shorter`: what is shown where all lines do not fit."""

    path: str
    symbol: str
    lines: frozenset[int]
    shorter: frozenset[int] = frozenset()

    def __str__(self) -> str:
        place = f"{self.path}:L{min(self.lines)}-{max(self.lines)}"
        return f"{self.symbol} ({place})" if self.symbol else place


@dataclass(frozen=True, slots=True)
class NameAnswer:
    """What a name means, in order of the ranking, and a note for the model."""

    code: tuple[NamedCode, ...] = ()
    note: str = ""
    likely: tuple[NamedCode, ...] = ()


class NameFinder:
    """Looks names up in a snapshot. Files that rank higher come first."""

    def __init__(
        self, ranking: Ranking, snapshot: Snapshot, views: FileViews, chunker: Chunker
    ) -> None:
        self._snapshot = snapshot
        self._views = views
        self._chunker = chunker
        self.chunks_of = cache(self._chunks)
        self.inner_of = cache(self._inner)
        self._symbols = [scored.chunk.symbol for scored in ranking.chunks if scored.chunk.symbol]
        self._ranks = {scored.chunk.id: rank for rank, scored in enumerate(ranking.chunks)}
        ranked = dict.fromkeys(scored.chunk.path for scored in ranking.chunks)
        self._paths = [*ranked, *(path for path in snapshot.files if path not in ranked)]

    def find(self, name: str) -> NameAnswer:
        """Return what the name means, or a note that says why nothing is shown for it."""
        text = _KEYWORD.sub("", _ARGUMENTS.sub("", _REMARK.sub("", name.strip()).strip("`'\" ")))
        text = text.strip()
        if not text:
            return NameAnswer()
        lines, (start, _, inner) = _LINES.fullmatch(text), text.partition(":")
        with_lines, whole = self._file(lines["path"]) if lines else None, self._file(text)
        path = with_lines or whole or self._file(start)
        if path and is_secret_path(path):
            return NameAnswer(note=f"{path} is not shown: such files hold secrets")
        if lines and with_lines:
            return self._range(
                with_lines, int(lines["first"]), int(lines["last"] or lines["first"])
            )
        if whole:
            return self._whole(whole)
        if inner and path:
            if code := tuple(self._in_file(path, _dotted(inner))):
                return NameAnswer(code)
            symbols = [symbol.strip() for symbol in _dotted(inner).split(",")]
            answers = [self._of_file(path, symbol) for symbol in symbols if symbol]
            notes = "; ".join(answer.note for answer in answers if answer.note)
            return NameAnswer(tuple(code for answer in answers for code in answer.code), notes)
        if inner and (code := tuple(self._below(start, _dotted(inner)))):
            return NameAnswer(code)
        if self._snapshot.exists(text):
            return NameAnswer(note=f"not shown: {text} (no text file, or left out of the search)")
        folder = text.rstrip("/") + "/"
        if inside := [path for path in self._snapshot.files if path.startswith(folder)]:
            return NameAnswer(note=f"{text} is a folder: {listed(inside, _MAX_LISTED)}")
        return self._anywhere(text)

    def best(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Return the few chunks of a file that rank highest; unranked ones come last."""
        last = len(self._ranks)
        ordered = sorted(chunks, key=lambda c: (self._ranks.get(c.id, last), c.start, c.end))
        return ordered[:_MAX_LIKELY]

    def _chunks(self, path: str) -> Sequence[Chunk]:
        return self._chunker(self._snapshot.files[path], self._snapshot.text(path))

    def _inner(self, path: str) -> Sequence[Chunk]:
        return self._chunker.inner(self._snapshot.files[path], self._snapshot.text(path))

    # --- files and lines

    def _file(self, name: str) -> str | None:
        path = name.strip().removeprefix("./")
        if path in self._snapshot.files:
            return path
        ends = [p for p in self._snapshot.files if path and p.endswith(f"/{path}")]
        return ends[0] if len(ends) == 1 else None

    def _range(self, path: str, first: int, last: int) -> NameAnswer:
        count = len(self._views[path].lines)
        if first > count:
            return NameAnswer(note=f"{path} has only {count} lines")
        first = max(first, 1)
        return NameAnswer((NamedCode(path, "", _numbers(first, min(max(first, last), count))),))

    def _whole(self, path: str) -> NameAnswer:
        view, chunks = self._views[path], self.chunks_of(path)
        count = len(view.lines)
        if count < _WHOLE_FILE_LINES:
            return NameAnswer((NamedCode(path, "", _numbers(1, count)),))
        best = self.best(c for c in chunks if c.id in self._ranks or c.kind is ChunkKind.MODULE)
        likely = (NamedCode(path, c.symbol, chunk_lines(c, view)) for c in best)
        outline = [f"{c.symbol} L{c.start}-{c.end}" for c in chunks if c.kind in DEFINITIONS]
        note = f"{path} has {count} lines, too many to show whole: name symbols or lines"
        if outline:
            note += f"; it defines {listed(outline, _MAX_OUTLINE)}"
        return NameAnswer(note=note, likely=tuple(code for code in likely if code.lines))

    # --- symbols

    def _of_file(self, path: str, symbol: str) -> NameAnswer:
        if code := tuple(self._in_file(path, symbol)):
            return NameAnswer(code)
        elsewhere = self._anywhere(symbol)
        if elsewhere.code:
            return NameAnswer(elsewhere.code, f"{path} does not define {symbol}; what is sent does")
        own = [chunk.symbol for chunk in self.chunks_of(path) if chunk.symbol]
        return NameAnswer(note=_not_found(f"{path}:{symbol}", symbol, own))

    def _anywhere(self, name: str) -> NameAnswer:
        if "/" in name or name.partition(":")[0].endswith(_CODE_SUFFIXES):
            return NameAnswer(note=_not_found(name, name, self._paths))
        symbol = _dotted(name)
        code = [code for path in self._with(symbol) for code in self._in_file(path, symbol)]
        if not code and "." in symbol:
            code = self._by_module(symbol) or self._inherited(symbol)
        if len(code) > _MAX_DEFINITIONS:
            places = [f"{one.path}:{min(one.lines)}" for one in code]
            where = listed(places, _MAX_LISTED)
            return NameAnswer(note=f"{symbol} is defined {len(code)} times: {where}")
        if code:
            return NameAnswer(tuple(code))
        return NameAnswer(note=_not_found(symbol, symbol, self._symbols))

    def _by_module(self, symbol: str) -> list[NamedCode]:
        parts = symbol.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            stems = "/".join(parts[:cut]), *(self._aliased(parts[0]) if cut == 1 else ())
            for stem in stems:
                if code := self._below(stem, ".".join(parts[cut:])):
                    return code
        return []

    def _aliased(self, alias: str) -> list[str]:
        """Return the modules that files import under another name, the likeliest files first."""
        begin = re.compile(rf"\b([\w.]+)\s+as\s+{re.escape(alias)}\b")
        texts = map(self._snapshot.text, self._paths[:_MAX_FILES])
        names = dict.fromkeys(name for text in texts for name in begin.findall(text))
        return [name.strip(".").replace(".", "/") for name in names]

    def _below(self, start: str, symbol: str) -> list[NamedCode]:
        """Return the code of a module that is named without its suffix, or of a package."""
        stem = start.strip(" ./")
        own = [p for p in self._paths if f"/{p.rpartition('.')[0]}".endswith(f"/{stem}")]
        package = [p for p in self._paths if f"/{stem}/" in f"/{p}"]
        return [
            c for path in self._with(symbol, [*own, *package]) for c in self._in_file(path, symbol)
        ]

    def _inherited(self, symbol: str, depth: int = 0) -> list[NamedCode]:
        owner, _, name = symbol.rpartition(".")
        classes = (c for path in self._with(owner) for c in self.chunks_of(path))
        bases = [
            base
            for chunk in classes
            if chunk.kind is ChunkKind.CLASS and f".{chunk.symbol}".endswith(f".{owner}")
            for base in base_names(chunk.signature)
        ]
        for base in dict.fromkeys(bases) if depth < _MAX_BASES else ():
            method = f"{base}.{name}"
            code = [c for path in self._with(method) for c in self._in_file(path, method)]
            if code := code or self._inherited(method, depth + 1):
                return code
        return []

    def _with(self, symbol: str, paths: Sequence[str] | None = None) -> list[str]:
        """Return the paths whose text may define the symbol."""
        name = symbol.rpartition(".")[2]
        found: list[str] = []
        defines = _definition(name)
        for path in self._paths if paths is None else paths:
            if not name or is_secret_path(path) or len(found) == _MAX_FILES:
                continue
            text = self._snapshot.text(path)
            is_default = path.rpartition("/")[2].partition(".")[0] == name
            if is_default or (name in text and defines.search(text)):
                found.append(path)
        return found

    def _in_file(self, path: str, symbol: str) -> Iterator[NamedCode]:
        view, chunks = self._views[path], self.chunks_of(path)
        defined = [chunk for chunk in chunks if chunk.kind in DEFINITIONS]
        named = [*defined, *self.inner_of(path)]
        same = [chunk for chunk in named if chunk.symbol == symbol]
        # A block of tests, `describe .load`, is no definition of `load`.
        end = re.compile(rf"(?:{'.' if ' ' in symbol else '[^ ]'}*\.)?{re.escape(symbol)}")
        same = same or [c for c in named if end.fullmatch(_dotted(c.symbol))]
        if same:
            yield from (self._code(chunk, defined) for chunk in same)
            return
        owner, _, name = symbol.rpartition(".")
        kinds = {symbol, *_EXPORT_NAMES.get(symbol, ())}
        places = [run for kind, run in exports(view) if kind in kinds]
        functions = (ChunkKind.FUNCTION, ChunkKind.METHOD)
        outside = (n for c in chunks if c.kind not in functions for n in chunk_lines(c, view))
        places = places or [
            run
            for run in assignments(view, name, outside)
            if not owner or _class_at(defined, run[0]).endswith(owner)
        ]
        yield from (NamedCode(path, symbol, _numbers(*run)) for run in places)
        setting = re.compile(rf"\b(?:self|this|cls)\.{re.escape(name)}\s*(?::[^=]+)?=(?!=)")
        methods = (
            chunk
            for chunk in defined
            if f".{chunk.symbol}".endswith(f".{owner}.{chunk.name}") and setting.search(chunk.text)
        )
        if not places and owner and (first := next(methods, None)):
            yield self._code(first, defined)

    def _code(self, chunk: Chunk, chunks: Sequence[Chunk]) -> NamedCode:
        """Return the code of a definition; a class is shorter without bodies."""
        view = self._views[chunk.path]
        lines = chunk_lines(chunk, view)
        if chunk.kind is not ChunkKind.CLASS:
            return NamedCode(chunk.path, chunk.symbol, lines)
        # The name of the class may be defined again further down.
        again = (c.start for c in chunks if c.symbol == chunk.symbol and c.start > chunk.start)
        end = min(again, default=len(view.lines) + 1)
        inner = [
            c
            for c in chunks
            if c.symbol.startswith(f"{chunk.symbol}.") and chunk.start <= c.start < end
        ]
        heads = frozenset(n for c in inner for n in signature_lines(c, view))
        bodies = (chunk_lines(c, view) for c in inner)
        return NamedCode(chunk.path, chunk.symbol, lines.union(*bodies), lines | heads)


def _dotted(symbol: str) -> str:
    plain = _ARGUMENTS.sub("", symbol.strip(": ")).replace("::", ".").strip(". ")
    return _INSIDE.sub(".", plain)


def _numbers(first: int, last: int) -> frozenset[int]:
    return frozenset(range(first, last + 1))


def _not_found(place: str, name: str, names: Iterable[str]) -> str:
    nearest = ", ".join(difflib.get_close_matches(name, dict.fromkeys(names), _NEAREST))
    return f"not found: {place}" + (f" (nearest: {nearest})" if nearest else "")


def _class_at(chunks: Sequence[Chunk], line: int) -> str:
    """Return the class that has this line, "" if none has."""
    classes = [c for c in chunks if c.kind is ChunkKind.CLASS and c.start <= line <= c.end]
    return classes[-1].symbol if classes else ""


def _definition(name: str) -> re.Pattern[str]:
    word = re.escape(name)
    return re.compile(
        rf"\b(?:def|class|function|func|fn|struct|interface|enum|trait|type|define)\s+"
        rf"(?:\([^()\n]*\)\s*)?{word}\b"
        rf"|^[ \t]*(?:[\w<>\[\]*&,.:]+[ \t]+){{0,6}}[*&]?{word}[ \t]*[(:=]"
        rf"|\.{word}[ \t]*(?::[^=\n]+)?=(?!=)",
        re.MULTILINE,
    )


@dataclass(frozen=True, slots=True)
class AskedCode:
    """The answer to a request. `notes` name what is not in `text`, and why."""

    text: str = ""
    notes: tuple[str, ...] = ()
    shown: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    tokens: int = 0


class _Answer:
    """The blocks and notes so far."""

    def __init__(
        self,
        views: FileViews,
        counter: TokenCounter,
        budget: int,
        shown: Iterable[Mapping[str, Iterable[Run]]],
    ) -> None:
        self._views = views
        self._counter = counter
        self._room = budget - counter.count(PREAMBLE)
        self._shown: defaultdict[str, set[int]] = defaultdict(set)
        for path, run in ((p, run) for ranges in shown for p, own in ranges.items() for run in own):
            self._shown[path] |= _numbers(*run)
        self._sent: dict[str, set[int]] = {}
        self._blocks: list[str] = []
        self._notes: list[str] = []

    def add_note(self, note: str) -> None:
        line = inert(note, " ", kept="")
        tokens = self._counter.count(f"{line}\n")
        if line and line not in self._notes and tokens <= self._room:
            self._notes.append(line)
            self._room -= tokens

    def add(self, code: NamedCode, *, cut: bool = True) -> str:
        view, shown = self._views[code.path], self._shown[code.path]
        lines = {number for number in code.lines if not view.is_blank(number)}
        if lines <= shown:
            return f"shown already: {code}" if lines else ""
        if lines <= shown | self._sent.get(code.path, set()):
            return ""
        again = [run for run in runs(shown & code.lines) if run[1] - run[0] >= _REPEATED]
        fresh = code.lines.difference(*(_numbers(*run) for run in again))
        if again and self._put(code, fresh, "part"):
            repeated = ", ".join(f"L{first}-{last}" for first, last in again)
            return f"shown already: {repeated} of {code}"
        if self._put(code, code.lines, "whole") or not cut:
            return ""
        if code.shorter and code.shorter != code.lines and self._put(code, code.shorter, "part"):
            return f"shortened to fit: {code}"
        if not self._blocks and (head := self._head(code)):
            self._put(code, head, "part")
            return f"only the lines up to {max(head)} fitted: {code}"
        tokens = self._counter.count(self._render(code, code.lines, "whole"))
        return f"did not fit ({tokens:,} tokens): {code}"

    def result(self) -> AskedCode:
        text = "\n".join(self._blocks)
        if f"\n{ELISION}\n" in text:
            text = PREAMBLE + text
        shown = {path: runs(numbers) for path, numbers in self._sent.items()}
        tokens = self._counter.count("\n".join((text, *self._notes)))
        return AskedCode(text, tuple(self._notes), shown, tokens)

    def _put(self, code: NamedCode, lines: frozenset[int], form: PieceForm) -> bool:
        block = self._render(code, lines, form)
        tokens = self._counter.count(f"{block}\n")
        if tokens > self._room:
            return False
        self._blocks.append(block)
        self._room -= tokens
        self._sent.setdefault(code.path, set()).update(lines)
        return True

    def _head(self, code: NamedCode) -> frozenset[int]:
        numbers = sorted(code.shorter or code.lines)

        def _tokens(length: int) -> int:
            block = self._render(code, frozenset(numbers[:length]), "part")
            return self._counter.count(f"{block}\n")

        room = self._room - _NOTE_TOKENS
        return frozenset(numbers[: bisect_right(range(1, len(numbers) + 1), room, key=_tokens)])

    def _render(self, code: NamedCode, lines: frozenset[int], form: PieceForm) -> str:
        from agent.retrieval.index import INSIDE  # loads numpy

        view = self._views[code.path]
        first, last = min(code.lines), max(code.lines)
        is_inner = "." in code.symbol or INSIDE in code.symbol
        kind = ChunkKind.METHOD if is_inner else ChunkKind.WINDOW
        chunk = Chunk(code.path, first, last, code.symbol, kind, "", "", view.language)
        choice = Choice(0, ScoredChunk(chunk, 0.0), lines, (first, last), form)
        return FileShare(view, (choice,)).render()


@dataclass(slots=True)
class CodeRequests:
    """What the replies of a run ask for, and the code that answers them."""

    snapshot: Snapshot
    counter: TokenCounter
    chunker: Chunker
    budget: int
    asked: list[tuple[str, ...]] = field(default_factory=list)
    # By context, request and budget, because a search of all files takes seconds.
    _cache: dict[tuple[str, int, int], AskedCode] = field(default_factory=dict)

    def add(self, names: Sequence[str]) -> int:
        """Note a request. Returns its number, from 0."""
        self.asked.append(tuple(names))
        return len(self.asked) - 1

    def answers(self, ranking: Ranking, context: ContextBundle | None) -> list[AskedCode]:
        """Return the code for each request, without what the context or an earlier one has."""
        answers: list[AskedCode] = []
        shown = [context.shown_lines] if context else []
        for number, names in enumerate(self.asked):
            key = (context.text if context else "", number, self.budget)
            if key not in self._cache:
                self._cache[key] = self.find(names, ranking, shown, self.budget)
            answers.append(self._cache[key])
            shown.append(answers[-1].shown)
        return answers

    def together(self, ranking: Ranking, context: ContextBundle, room: int) -> AskedCode | None:
        """Return the code of all requests in at most `room` tokens; None if there is none."""
        names = [name for request in self.asked for name in request]
        if not names or room <= 0:
            return None
        return self.find(names, ranking, [context.shown_lines], room)

    def find(
        self,
        names: Sequence[str],
        ranking: Ranking,
        shown: Iterable[Mapping[str, Iterable[Run]]],
        budget: int,
    ) -> AskedCode:
        """Return the named code in at most `budget` tokens, without what is `shown` already."""
        views = FileViews(self.snapshot)
        answer = _Answer(views, self.counter, budget, shown)
        finder = NameFinder(ranking, self.snapshot, views, self.chunker)
        distinct = list(dict.fromkeys(name[:_NAME_LENGTH] for name in names if name.strip()))
        meanings = [finder.find(name) for name in distinct[:MAX_NAMES]]
        named = [code for meaning in meanings for code in meaning.code]
        for meaning in meanings:
            answer.add_note(meaning.note)
            for code in meaning.code:
                for wider in named:  # lines or a class that are asked for too hold it
                    if wider.path == code.path and wider.lines > code.lines:
                        answer.add(wider, cut=False)
                answer.add_note(answer.add(code))
            for code in meaning.likely:
                answer.add(code, cut=False)
        if len(distinct) > MAX_NAMES:
            answer.add_note(f"{len(distinct) - MAX_NAMES} further names were not looked up")
        return answer.result()


@dataclass(frozen=True, slots=True)
class LocatedCode:
    """The ranking with the named code first. `unknown`: names without code in the repository."""

    ranking: Ranking
    chunks: tuple[Chunk, ...]
    unknown: tuple[str, ...]


def put_first(
    names: Sequence[str], ranking: Ranking, snapshot: Snapshot, chunker: Chunker
) -> LocatedCode:
    """Return the ranking with what the names mean at its head, in their order."""
    finder = NameFinder(ranking, snapshot, FileViews(snapshot), chunker)
    first: list[Chunk] = []
    behind: list[Chunk] = []
    unknown: list[str] = []
    for name in dict.fromkeys(names):
        answer = finder.find(name)
        if not answer.code and not answer.likely:
            unknown.append(name)
        for code in answer.code:
            own, inner = _chunks_of(code, finder, snapshot)
            first += own
            behind += inner
        for code in answer.likely:
            own, inner = _chunks_of(code, finder, snapshot)
            behind += own or inner
    chunks = tuple(dict.fromkeys((*first, *behind)))
    return LocatedCode(_reordered(ranking, chunks), chunks, tuple(unknown))


def _chunks_of(
    code: NamedCode, finder: NameFinder, snapshot: Snapshot
) -> tuple[list[Chunk], list[Chunk]]:
    chunks = finder.chunks_of(code.path)
    first, last = min(code.lines), max(code.lines)
    if not code.symbol:  # a file, or lines of it
        inside = [c for c in chunks if not code.lines.isdisjoint(range(c.start, c.end + 1))]
        return [], finder.best(inside)
    own = [
        c
        for c in (*chunks, *finder.inner_of(code.path))
        if c.symbol == code.symbol and c.start <= first <= c.end
    ][:1]
    if not own:  # a constant, a table or an attribute
        file = snapshot.files[code.path]
        text = "\n".join(snapshot.text(code.path).split("\n")[first - 1 : last])
        kind = ChunkKind.MODULE
        return [
            Chunk(code.path, first, last, code.symbol, kind, text, file.blob, file.language)
        ], []
    if own[0].kind is not ChunkKind.CLASS:
        return own, []
    return own, finder.best(c for c in chunks if c.symbol.startswith(f"{code.symbol}."))


def _reordered(ranking: Ranking, chunks: Sequence[Chunk]) -> Ranking:
    """Return the ranking with these chunks first; their scores lie above all others."""
    top = max((scored.score for scored in ranking.chunks), default=0.0)
    ranked = {scored.chunk.id: scored for scored in ranking.chunks}
    named: dict[str, ScoredChunk] = {}
    for place, chunk in enumerate(chunks):
        scored = ranked.get(chunk.id, ScoredChunk(chunk, 0.0))
        score = top + len(chunks) - place
        reason = Reason(LOCATED, score - scored.score, "named by the locating call")
        named[chunk.id] = ScoredChunk(scored.chunk, score, (reason, *scored.reasons))
    rest = (scored for scored in ranking.chunks if scored.chunk.id not in named)
    return replace(ranking, chunks=(*named.values(), *rest))
