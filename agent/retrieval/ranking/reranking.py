"""Orders the best chunks of a ranking again by a cross-encoder, which reads problem and code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import ProviderError
from agent.retrieval.ranking.explain import scored_chunk
from agent.retrieval.ranking.stages import files_in_order, in_order
from agent.retrieval.ranking.texts import document_text
from agent.types import Ranking, Reason, ScoredChunk, ScoredFile
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.types import Problem
    from agent.types.protocols import Reporter, Reranker, Retriever, Snapshot

RERANKED = 64
"""Chunks that are scored again: a default context holds at most 30."""

MAX_QUERY = 2_000
"""Characters of the problem. A cross-encoder reads it beside each text, in the same window."""


class RerankingRetriever:
    """A `Retriever` that adds a cross-encoder's relevance to the best chunks of another one.

    The relevance is scaled to the range of the scores that it is added to, so both orders have the
    same weight whatever the model's scale. If the server fails, the order stays, with a note.
    """

    def __init__(self, inner: Retriever, reranker: Reranker, reporter: Reporter) -> None:
        self._inner = inner
        self._reranker = reranker
        self._report = reporter
        self._said: set[str] = set()

    async def rank(self, problem: Problem, snapshot: Snapshot) -> Ranking:
        """Rank with the inner retriever, then order its best chunks again."""
        ranking = await self._inner.rank(problem, snapshot)
        head = ranking.chunks[:RERANKED]
        if len(head) < 2:
            return ranking
        query = f"{problem.title}\n{problem.body}"[:MAX_QUERY]
        try:
            values = await self._reranker.scores(query, [document_text(s.chunk) for s in head])
        except ProviderError as error:
            return self._unchanged(ranking, f"not ordered again by {self._reranker.name}: {error}")
        return reranked(ranking, values)

    def _unchanged(self, ranking: Ranking, note: str) -> Ranking:
        if note not in self._said:  # every problem of a batch fails for the same reason
            self._said.add(note)
            self._report(Notice(note, "warning"))
        return replace(ranking, notes=(*ranking.notes, note), degraded=ranking.degraded or note)


def reranked(ranking: Ranking, values: Sequence[float]) -> Ranking:
    """Return the ranking with the relevance of its first `len(values)` chunks added.

    These chunks stay before all others. A file gets the relevance of its best chunk.
    """
    head, tail = ranking.chunks[: len(values)], ranking.chunks[len(values) :]
    shares = _shares(values)
    spread = head[0].score - head[-1].score or 1.0
    chunks = [
        scored_chunk(
            one, [*one.reasons, Reason("rerank", spread * share, f"relevance {value:.3g}")]
        )
        for one, share, value in zip(head, shares, values, strict=True)
    ]
    files = _files(ranking.files, head, shares)
    return replace(ranking, chunks=in_order([*chunks, *tail]), files=files)


def _shares(values: Sequence[float]) -> list[float]:
    """Return the values scaled to [0, 1]; all 0 if they are equal."""
    least, range_ = min(values), max(values) - min(values)
    return [(value - least) / range_ if range_ else 0.0 for value in values]


def _files(
    files: Sequence[ScoredFile], head: Sequence[ScoredChunk], shares: Sequence[float]
) -> tuple[ScoredFile, ...]:
    best: dict[str, float] = {}
    for one, share in zip(head, shares, strict=True):
        best[one.chunk.path] = max(share, best.get(one.chunk.path, 0.0))
    scores = [file.score for file in files if file.path in best]
    spread = (max(scores) - min(scores) if scores else 0.0) or 1.0
    return files_in_order([_with_share(file, spread * best.get(file.path, 0.0)) for file in files])


def _with_share(file: ScoredFile, value: float) -> ScoredFile:
    if not value:
        return file
    reason = Reason("rerank", value, "of its best chunk")
    return ScoredFile(file.path, file.score + value, (*file.reasons, reason))
