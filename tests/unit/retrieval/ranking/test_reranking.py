from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agent.errors import ProviderError
from agent.retrieval.ranking.options import preset
from agent.retrieval.ranking.reranking import RERANKED, RerankingRetriever, reranked
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.types import Chunk, ChunkKind, Problem, Ranking, Reason, ScoredChunk, ScoredFile
from agent.types.events import Event
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

FILES = {
    "pkg/cookies.py": "def set_cookie(jar, name):\n    jar[name] = name\n",
    "pkg/colors.py": "def paint(text):\n    return text\n",
}
PROBLEM = Problem("set_cookie loses names", "The jar keeps one cookie.")


class Liking:
    """A `Reranker` that likes texts with one phrase; "" fails."""

    name = "liking"

    def __init__(self, phrase: str) -> None:
        self.phrase = phrase
        self.texts: Sequence[str] = ()

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        assert PROBLEM.title in query
        self.texts = texts
        if not self.phrase:
            raise ProviderError("no model is loaded")
        return [7.5 if self.phrase in text else -3.0 for text in texts]


def rank(reranker: Liking | None, said: list[Event] | None = None) -> Ranking:
    inner = HybridRetriever(preset("lexical"), embedder=None, index_path=None, reporter=ignore)
    if reranker is None:
        return asyncio.run(inner.rank(PROBLEM, MemorySnapshot(FILES)))
    report = ignore if said is None else said.append
    retriever = RerankingRetriever(inner, reranker, report)
    return asyncio.run(retriever.rank(PROBLEM, MemorySnapshot(FILES)))


def test_the_reranker_moves_what_it_finds_relevant() -> None:
    plain = rank(None)
    assert plain.chunks[0].chunk.symbol == "set_cookie"
    moved = rank(Liking("def paint"))
    assert moved.chunks[0].chunk.symbol == "paint"
    assert {one.chunk.id for one in moved.chunks} == {one.chunk.id for one in plain.chunks}
    for one in (*moved.chunks, *moved.files):
        assert one.score == pytest.approx(sum(reason.value for reason in one.reasons))
    assert any(r.feature == "rerank" for r in moved.chunks[0].reasons)
    agreeing = rank(Liking("def set_cookie"))
    assert agreeing.chunks[0].chunk.symbol == "set_cookie"


def test_a_reranker_that_fails_changes_nothing_and_is_named_once() -> None:
    said: list[Event] = []
    plain, failed = rank(None), rank(Liking(""), said)
    assert failed.chunks == plain.chunks
    assert "not ordered again by liking: no model is loaded" in failed.notes
    assert failed.degraded
    assert len(said) == 1


def ranking_of(count: int) -> Ranking:
    chunks = tuple(
        ScoredChunk(
            Chunk(f"f{n:03}.py", 1, 1, "", ChunkKind.MODULE, f"text {n}", "", "python"),
            float(count - n),
            (Reason("words", float(count - n)),),
        )
        for n in range(count)
    )
    files = tuple(ScoredFile(one.chunk.path, one.score, one.reasons) for one in chunks)
    return Ranking(chunks, files, count)


def test_only_the_best_are_scored_and_they_stay_before_the_others() -> None:
    whole = ranking_of(RERANKED + 5)
    result = reranked(whole, [float(n) for n in range(RERANKED)])
    assert result.chunks[RERANKED:] == whole.chunks[RERANKED:]
    keys = [(-one.score, one.chunk.path) for one in result.chunks]
    assert keys == sorted(keys)


def test_equal_scores_of_the_reranker_keep_the_order() -> None:
    whole = ranking_of(4)
    assert reranked(whole, [0.5] * 4) == whole
