"""The probability that a context is complete, and the budget that follows it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.context import (
    PackingOptions,
    likely_complete,
    make_receipt,
    pack,
    render_receipt,
)
from agent.retrieval.context.asked import put_first
from agent.retrieval.context.packing import (
    CONFIDENT,
    LARGE,
    SMALL,
    WEIGHTS,
    probability,
    signals,
    sized,
)
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.types import Problem, Ranking, Reason
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


def test_a_clear_first_place_makes_completeness_likely():
    clear, flat = (likely_complete(PackingOptions(budget=400), r, COUNTER) for r in (CLEAR, FLAT))
    assert clear is not None
    assert flat is not None
    assert flat < 0.5 < clear < 1


def test_the_probability_is_known_where_the_first_chunk_has_no_part_of_the_plain_sum():
    first = replace(CLEAR.chunks[0], reasons=(Reason("lexical", 9.0),))
    ranking = replace(CLEAR, chunks=(first, *CLEAR.chunks[1:]))
    assert sized(AUTO, ranking, COUNTER.count) == sized(AUTO, CLEAR, COUNTER.count)
    other = replace(CLEAR, chunks=tuple(replace(s, reasons=first.reasons) for s in CLEAR.chunks))
    assert sized(AUTO, other, COUNTER.count) == (AUTO, None)


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


def test_a_fixed_budget_stays():
    fixed = PackingOptions(budget=1234)
    assert sized(fixed, FLAT, COUNTER.count)[0] is fixed


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


def test_nothing_is_said_for_the_original_packing():
    original = PackingOptions(stop_at_oversized=True)
    assert sized(original, CLEAR, COUNTER.count) == (original, None)


def test_the_receipt_tells_it():
    bundle = pack(Problem("x", ""), CLEAR, SNAPSHOT, COUNTER, AUTO, chunker=CHUNKER)
    receipt = make_receipt(CLEAR, bundle)
    assert bundle.budget + bundle.reserve == SMALL
    assert receipt.likely_complete == bundle.likely_complete
    assert f", likely complete: {bundle.likely_complete:.1f}" in render_receipt(receipt)


@given(
    st.lists(st.tuples(st.floats(-20, 20), st.integers(1, 5000)), min_size=1, max_size=120),
    st.integers(170, 20_400),
)
def test_it_is_a_probability(chunks, limit):
    scores = sorted((score for score, _ in chunks), reverse=True)
    tokens = [size for _, size in chunks]
    found = signals(scores, tokens, limit)
    assert set(found) == set(WEIGHTS)
    assert 0 <= found["covered"] <= 1 + 1e-9
    assert 0 < probability(found) < 1
