"""Code that a model names: the code that a reply asked for, and places for a ranking's head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.retrieval.context.layout import (
    ELISION,
    PREAMBLE,
    Choice,
    FileShare,
    FileViews,
    Run,
    runs,
)
from agent.retrieval.context.naming import LOCATED, NamedCode, NameFinder
from agent.types import Chunk, ChunkKind, ContextBundle, PieceForm, Ranking, Reason, ScoredChunk
from agent.types.protocols import Chunker, Snapshot, TokenCounter

# Further names are not looked up. A name is the model's text, so its length is limited too.
MAX_NAMES = 40
_NAME_LENGTH = 300


@dataclass(frozen=True, slots=True)
class AskedCode:
    """The answer to a request. `notes` name what is not in `text`, and why.

    `shown` are the line ranges in `text` by path. `tokens` counts text and notes.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    shown: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    tokens: int = 0


def asked_code(
    names: Sequence[str],
    ranking: Ranking,
    shown: Mapping[str, Sequence[Run]],
    snapshot: Snapshot,
    counter: TokenCounter,
    chunker: Chunker,
    *,
    budget: int,
) -> AskedCode:
    """Return the named code in at most `budget` tokens, without what is `shown` already.

    A function that does not fit is sent without its docstring, a class without its bodies. What
    does not fit at all is named; of the first one, the lines that fit are sent.
    """
    views = FileViews(snapshot)
    answer = _Answer(views, counter, budget, shown)
    finder = NameFinder(ranking, snapshot, views, chunker)
    distinct = list(dict.fromkeys(name[:_NAME_LENGTH] for name in names if name.strip()))
    for name in distinct[:MAX_NAMES]:
        found = finder.find(name)
        if found.note:
            answer.say(found.note)
        for code in found.code:
            answer.add(code)
        for code in found.likely:
            answer.add(code, likely=True)
    if len(distinct) > MAX_NAMES:
        answer.say(f"{len(distinct) - MAX_NAMES} further names were not looked up")
    return answer.result()


@dataclass(slots=True)
class CodeRequests:
    """What the replies of a run ask for, and the code that answers them.

    `budget`: most tokens for one request.
    """

    snapshot: Snapshot
    counter: TokenCounter
    chunker: Chunker
    budget: int
    asked: list[tuple[str, ...]] = field(default_factory=list)
    # By context, request and budget, because a search of all files takes seconds.
    _found: dict[tuple[str, int, int], AskedCode] = field(default_factory=dict)

    def add(self, names: Sequence[str]) -> int:
        """Note a request. Returns its number, from 0."""
        self.asked.append(tuple(names))
        return len(self.asked) - 1

    def answers(self, ranking: Ranking, context: ContextBundle | None) -> list[AskedCode]:
        """Return the code for each request, without what the context or an earlier one has.

        `context` is None where nothing is known of what was shown.
        """
        found: list[AskedCode] = []
        for number, names in enumerate(self.asked):
            key = (context.text if context else "", number, self.budget)
            if key not in self._found:
                shown = [context.shown_lines] if context else []
                shown += [one.shown for one in found]
                self._found[key] = self._find(names, ranking, shown, self.budget)
            found.append(self._found[key])
        return found

    def together(self, ranking: Ranking, context: ContextBundle, room: int) -> AskedCode | None:
        """Return the code of all requests in at most `room` tokens; None if there is none."""
        names = [name for request in self.asked for name in request]
        if not names or room <= 0:
            return None
        return self._find(names, ranking, [context.shown_lines], room)

    def _find(
        self,
        names: Sequence[str],
        ranking: Ranking,
        shown: Sequence[Mapping[str, Sequence[Run]]],
        budget: int,
    ) -> AskedCode:
        paths = dict.fromkeys(path for lines in shown for path in lines)
        before = {path: [run for lines in shown for run in lines.get(path, ())] for path in paths}
        return asked_code(
            names, ranking, before, self.snapshot, self.counter, self.chunker, budget=budget
        )


class _Answer:
    """The blocks and notes so far."""

    def __init__(
        self,
        views: FileViews,
        counter: TokenCounter,
        budget: int,
        shown: Mapping[str, Sequence[Run]],
    ) -> None:
        self._views = views
        self._counter = counter
        self._room = budget - counter.count(PREAMBLE)
        self._before = {path: _numbers(ranges) for path, ranges in shown.items()}
        self._sent: dict[str, set[int]] = {}
        self._blocks: list[str] = []
        self._notes: list[str] = []

    def say(self, note: str) -> None:
        """Add a note, as long as there is room for it."""
        line = "".join(c if c.isprintable() else " " for c in note)
        tokens = self._counter.count(f"{line}\n")
        if line not in self._notes and tokens <= self._room:
            self._notes.append(line)
            self._room -= tokens

    def add(self, code: NamedCode, *, likely: bool = False) -> None:
        """Add the code in the longest form that fits, or say why it is not there.

        What is `likely` was not named itself: nothing is said of it.
        """
        view = self._views[code.path]
        if not code.lines:
            return
        wanted = {number for number in code.lines if not view.is_blank(number)}
        if wanted <= self._before.get(code.path, set()) | self._sent.get(code.path, set()):
            if not likely:
                self.say(f"shown already: {_called(code)}")
            return
        if self._put(code, code.lines) or likely:
            return
        if code.shorter and code.shorter != code.lines and self._put(code, code.shorter, "part"):
            self.say(f"shortened to fit: {_called(code)}")
            return
        if not self._blocks and (head := self._head(code)):
            self._put(code, head, "part")
            self.say(f"only the lines up to {max(head)} fitted: {_called(code)}")
            return
        tokens = self._counter.count(self._render(code, code.lines))
        self.say(f"did not fit ({tokens:,} tokens): {_called(code)}")

    def result(self) -> AskedCode:
        """Return the answer."""
        text = "\n".join(self._blocks)
        if f"\n{ELISION}\n" in text:
            text = PREAMBLE + text
        notes = tuple(self._notes)
        shown = {path: runs(numbers) for path, numbers in self._sent.items()}
        return AskedCode(text, notes, shown, self._counter.count("\n".join((text, *notes))))

    def _put(self, code: NamedCode, lines: frozenset[int], form: PieceForm = "whole") -> bool:
        block = self._render(code, lines, form)
        tokens = self._counter.count(f"{block}\n")
        if tokens > self._room:
            return False
        self._blocks.append(block)
        self._room -= tokens
        self._sent.setdefault(code.path, set()).update(lines)
        return True

    def _head(self, code: NamedCode) -> frozenset[int]:
        """Return as many first lines as fit; empty if none does."""
        numbers = sorted(code.shorter or code.lines)
        low, high = 0, len(numbers)
        while low < high:
            middle = (low + high + 1) // 2
            block = self._render(code, frozenset(numbers[:middle]), "part")
            if self._counter.count(f"{block}\n") + _NOTE_TOKENS <= self._room:
                low = middle
            else:
                high = middle - 1
        return frozenset(numbers[:low])

    def _render(self, code: NamedCode, lines: frozenset[int], form: PieceForm = "whole") -> str:
        view = self._views[code.path]
        first, last = min(code.lines), max(code.lines)
        kind = ChunkKind.METHOD if "." in code.symbol else ChunkKind.WINDOW
        chunk = Chunk(code.path, first, last, code.symbol, kind, "", "", view.language)
        choice = Choice(0, ScoredChunk(chunk, 0.0), lines, (first, last), form)
        return FileShare(view, (choice,)).render()


# Room that is left for the note on a piece that was cut.
_NOTE_TOKENS = 60


def _called(code: NamedCode) -> str:
    return f"{code.symbol} ({code.place})" if code.symbol else code.place


def _numbers(ranges: Sequence[Run]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


# ----------------------------------------------------------------------------- located code


@dataclass(frozen=True, slots=True)
class LocatedCode:
    """The ranking with the named code first. `unknown`: names without code in the repository."""

    ranking: Ranking
    chunks: tuple[Chunk, ...]
    unknown: tuple[str, ...]


def put_first(
    names: Sequence[str], ranking: Ranking, snapshot: Snapshot, chunker: Chunker
) -> LocatedCode:
    """Return the ranking with what the names mean at its head, in their order.

    What stands in a named class or file comes behind all that is named itself.
    """
    finder = NameFinder(ranking, snapshot, FileViews(snapshot), chunker)
    pieces = _Pieces(finder, snapshot, chunker)
    first: list[Chunk] = []
    behind: list[Chunk] = []
    unknown: list[str] = []
    for name in dict.fromkeys(names):
        answer = finder.find(name)
        if not answer.code and not answer.likely:
            unknown.append(name)
        for code in answer.code:
            own, inner = pieces.of(code)
            first += own
            behind += inner
        for code in answer.likely:
            own, inner = pieces.of(code)
            behind += own or inner
    chunks = tuple(dict.fromkeys((*first, *behind)))
    return LocatedCode(_reordered(ranking, chunks), chunks, tuple(unknown))


class _Pieces:
    """Finds the chunks of named code."""

    def __init__(self, finder: NameFinder, snapshot: Snapshot, chunker: Chunker) -> None:
        self._finder = finder
        self._snapshot = snapshot
        self._chunker = chunker

    def of(self, code: NamedCode) -> tuple[list[Chunk], list[Chunk]]:
        """Return the chunks that the name means itself, and the best of what stands in them."""
        chunks = self._of_file(code.path)
        if not code.symbol:  # a file, or lines of it
            inside = [c for c in chunks if not code.lines.isdisjoint(range(c.start, c.end + 1))]
            return [], self._finder.best(inside)
        first = min(code.lines)
        own = [c for c in chunks if c.symbol == code.symbol and c.start <= first <= c.end]
        if not own:
            return [self._assigned(code)], []
        if own[0].kind is not ChunkKind.CLASS:
            return own[:1], []
        inner = [c for c in chunks if c.symbol.startswith(f"{code.symbol}.")]
        return own[:1], self._finder.best(inner)

    def _assigned(self, code: NamedCode) -> Chunk:
        """Return a chunk of the lines of a constant, a table or an attribute."""
        file = self._snapshot.files[code.path]
        first, last = min(code.lines), max(code.lines)
        lines = self._snapshot.text(code.path).split("\n")[first - 1 : last]
        return Chunk(
            code.path, first, last, code.symbol, ChunkKind.MODULE, "\n".join(lines), file.blob,
            file.language,
        )  # fmt: skip

    def _of_file(self, path: str) -> Sequence[Chunk]:
        return self._chunker(self._snapshot.files[path], self._snapshot.text(path))


def _reordered(ranking: Ranking, chunks: Sequence[Chunk]) -> Ranking:
    """Return the ranking with these chunks first; their scores lie above all others."""
    top = max((scored.score for scored in ranking.chunks), default=0.0)
    known = {scored.chunk.id: scored for scored in ranking.chunks}

    def _scored() -> Iterator[ScoredChunk]:
        for place, chunk in enumerate(chunks):
            scored = known.get(chunk.id, ScoredChunk(chunk, 0.0))
            score = top + len(chunks) - place
            reason = Reason(LOCATED, score - scored.score, "named by the locating call")
            yield ScoredChunk(scored.chunk, score, (reason, *scored.reasons))

    named = {chunk.id for chunk in chunks}
    rest = [scored for scored in ranking.chunks if scored.chunk.id not in named]
    return replace(ranking, chunks=(*_scored(), *rest))
