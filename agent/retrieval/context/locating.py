"""Puts code that a model named at the head of a ranking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agent.retrieval.context.layout import FileViews
from agent.retrieval.context.naming import NamedCode, NameFinder
from agent.types import Chunk, ChunkKind, Ranking, Reason, ScoredChunk
from agent.types.protocols import Chunker, Snapshot

LOCATED = "located"
"""The feature of the reason that a named chunk gets."""


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
