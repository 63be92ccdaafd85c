"""Chunks and rankings built by hand, without a parser."""

from __future__ import annotations

from collections.abc import Iterable

from agent.types import Chunk, ChunkKind, Ranking, Reason, ScoredChunk
from tests.support.fakes import MemorySnapshot


def make_chunk(
    snapshot: MemorySnapshot,
    path: str,
    start: int,
    end: int,
    symbol: str = "",
    *,
    kind: ChunkKind | None = None,
    signature_lines: int = 1,
    holes: tuple[tuple[int, int], ...] = (),
) -> Chunk:
    """A chunk of these lines; the kind is guessed from the symbol where it is not given."""
    file = snapshot.files[path]
    lines = snapshot.text(path).removesuffix("\n").split("\n")
    kept = [
        lines[number - 1]
        for number in range(start, end + 1)
        if not any(first <= number <= last for first, last in holes)
    ]
    if kind is None:
        kind = ChunkKind.METHOD if "." in symbol else ChunkKind.FUNCTION
        kind = kind if symbol else ChunkKind.MODULE
    return Chunk(
        path=path,
        start=start,
        end=end,
        symbol=symbol,
        kind=kind,
        text="\n".join(kept),
        blob=file.blob,
        language=file.language,
        signature="\n".join(lines[start - 1 : start - 1 + signature_lines]) if symbol else "",
        holes=holes,
    )


def make_ranking(chunks: Iterable[Chunk], total: int | None = None) -> Ranking:
    """The chunks in the order given, with scores 1.0, 0.99, ..."""
    scored = tuple(
        ScoredChunk(chunk, round(1 - i / 100, 2), (Reason("lexical", round(1 - i / 100, 2)),))
        for i, chunk in enumerate(chunks)
    )
    return Ranking(scored, (), total if total is not None else len(scored))
