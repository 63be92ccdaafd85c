"""The probability that a context is complete, and the budget that follows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.retrieval.context import (
    PackingOptions,
)
from agent.retrieval.context.asked import put_first
from agent.retrieval.context.packing import (
    CONFIDENT,
    LARGE,
    SMALL,
    sized,
)
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.types import Ranking, Reason
from tests.support.chunks import make_ranking
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

COUNTER = ApproximateCounter()
CHUNKER = TreeSitterChunker()
FILES = {"a.py": "".join(f"def other_{n}(x):\n    return x + {n}\n\n\n" for n in range(120))}
SNAPSHOT = MemorySnapshot(FILES)
CHUNKS = CHUNKER(SNAPSHOT.files["a.py"], FILES["a.py"])
AUTO = PackingOptions(automatic=True)


def learned(scores: list[float], total: int = 1000) -> Ranking:
    """A ranking by the learned ranker with these scores."""
    ranking = make_ranking(CHUNKS[: len(scores)], total)
    chunks = tuple(
        replace(scored, score=score, reasons=(Reason("ranker", score),))
        for scored, score in zip(ranking.chunks, scores, strict=True)
    )
    return replace(ranking, chunks=chunks)


CLEAR = learned([9.0] + [0.0] * 99)
FLAT = learned([1.0] * 100)


def test_the_budget_is_small_where_that_is_likely_enough():
    small, likely = sized(AUTO, CLEAR, COUNTER.count)
    assert (small.budget, small.limit) == (SMALL, int(SMALL * 0.85))
    assert likely is not None
    assert likely >= CONFIDENT
    long = replace(FLAT, chunks=tuple(
        replace(s, chunk=replace(s.chunk, text="x = 1\n" * 400)) for s in FLAT.chunks
    ))  # fmt: skip
    large, unlikely = sized(AUTO, long, COUNTER.count)
    assert large.budget == LARGE
    assert unlikely is not None
    assert unlikely < CONFIDENT


@pytest.mark.parametrize(
    "ranking",
    [
        Ranking((), (), 0),
        make_ranking(CHUNKS),  # not by the learned ranker
        put_first(["other_5"], CLEAR, SNAPSHOT, CHUNKER).ranking,
    ],
)
def test_nothing_is_said_where_nothing_is_known(ranking):
    assert sized(AUTO, ranking, COUNTER.count) == (AUTO, None)
