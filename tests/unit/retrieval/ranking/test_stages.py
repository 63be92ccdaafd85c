"""Ranking with missing and with damaged models."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.retrieval.ranking.ranker import RetrievalOptions
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.types import Problem, Ranking
from agent.types.events import Event, Notice
from tests.support.fakes import MemorySnapshot
from tests.support.models import write_models

FILES = {
    "pkg/client.py": "class Client:\n    def get(self, url):\n        return follow(url)\n",
    "pkg/follow.py": "def follow(url):\n    return url\n",
}
PROBLEM = Problem(
    "Client ignores the timeout", '`follow` waits.\n\n  File "pkg/follow.py", line 2, in follow\n'
)


def rank(models: Path, events: list[Event], **options: bool) -> Ranking:
    retriever = HybridRetriever(
        RetrievalOptions(embedding=False, **options),  # type: ignore[arg-type]
        embedder=None,
        index_path=None,
        reporter=events.append,
        models=models,
    )
    return asyncio.run(retriever.rank(PROBLEM, MemorySnapshot(FILES)))


def scores(ranking: Ranking) -> dict[str, float]:
    return {scored.chunk.id: scored.score for scored in ranking.chunks}


def notices(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


def test_without_the_ranker_the_plain_sum_decides_and_a_notice_says_so(tmp_path: Path) -> None:
    events: list[Event] = []
    ranking = rank(write_models(tmp_path, ranker=False), events)
    assert scores(ranking) == pytest.approx(scores(rank(tmp_path, [], learned=False)))
    notice = "ranker.json is missing from the installation; ranked by the plain sum"
    assert notices(events) == [notice]
    assert ranking.notes == (notice,)
    reasons = {r.feature: r.note for s in ranking.chunks[:1] for r in s.reasons}
    assert "pkg/follow.py:2 in follow" in reasons["traceback"]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_damaged_models_are_like_missing_ones(tmp_path: Path, content: bytes) -> None:
    for name in ("ranker.json", "static.npz"):
        (tmp_path / name).write_bytes(content)
    events: list[Event] = []
    without = rank(tmp_path, [], learned=False, static=False)
    assert scores(rank(tmp_path, events)) == scores(without)
    assert notices(events) == [
        "static.npz is damaged or was made for another version; ranked without its vectors",
        "ranker.json is damaged or was made for another version; ranked by the plain sum",
    ]
