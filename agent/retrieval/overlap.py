"""The original first stage, kept for comparison: whole files and functions by shared words.

Counts distinct words that a text shares with the problem, without regard to its length: whole files
win. Known to be worse (9% context recall against 71%); used by the preset `original` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.retrieval.candidates import PROSE_AND_DATA, all_files
from agent.retrieval.chunking import Piece, TreeSitterChunker, split_lines
from agent.retrieval.explain import scored_chunk
from agent.retrieval.identifiers import WORD
from agent.retrieval.pool import Cancelled
from agent.retrieval.stages import Ranked, files_in_order, in_order
from agent.types import ChunkKind, Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from agent.protocols import Snapshot
    from agent.types import Chunk, Problem, SourceFile

_FUNCTIONS = frozenset({ChunkKind.FUNCTION, ChunkKind.METHOD, ChunkKind.CLASS})


def overlap_stage(
    problem: Problem, snapshot: Snapshot, limit: int, cancel: threading.Event
) -> Ranked:
    """The `limit` chunks with the most words in common; reads every file.

    Raises `pool.Cancelled`.
    """
    words = frozenset(_words(problem.text))
    chunker = TreeSitterChunker()
    scored: list[ScoredChunk] = []
    files: list[ScoredFile] = []
    for file in all_files(snapshot):
        if cancel.is_set():
            raise Cancelled
        if file.language in PROSE_AND_DATA:
            continue
        mine = [_scored(chunk, words) for chunk in _chunks(file, snapshot.text(file.path), chunker)]
        scored.extend(mine)
        best = max((chunk.score for chunk in mine), default=0.0)
        files.append(ScoredFile(file.path, best, (Reason("overlap", best, "words in common"),)))
    return Ranked(in_order(scored)[:limit], files_in_order(files)[:limit], len(scored))


def _words(text: str) -> Iterator[str]:
    return (word.lower() for word in WORD.findall(text))


def _scored(chunk: Chunk, words: frozenset[str]) -> ScoredChunk:
    shared = len(words.intersection(_words(chunk.text)))
    reason = Reason("overlap", float(shared), f"{shared} words in common")
    return scored_chunk(ScoredChunk(chunk, 0.0), [reason])


def _chunks(file: SourceFile, text: str, chunker: TreeSitterChunker) -> Iterator[Chunk]:
    lines = split_lines(text)
    if lines:
        yield Piece(1, len(lines), "", ChunkKind.MODULE).chunk(file, lines)
    yield from (chunk for chunk in chunker(file, text) if chunk.kind in _FUNCTIONS)
