from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.context.counting import PartCounter
from agent.context.order import by_worth
from agent.types import Chunk, ChunkKind, ScoredChunk
from tests.support.tokens import ApproximateCounter


def ranked(*sizes: int, kind: ChunkKind = ChunkKind.FUNCTION) -> list[tuple[int, ScoredChunk]]:
    """Chunks of so many lines, all of one kind, in rank order."""
    return [
        (rank, ScoredChunk(Chunk("a.py", 1, n, f"f{rank}", kind, "x = 1\n" * n, "", "python"), 1.0))
        for rank, n in enumerate(sizes)
    ]


def order(items: list[tuple[int, ScoredChunk]]) -> list[int]:
    return [rank for rank, _ in by_worth(items, PartCounter(ApproximateCounter()))]


def test_chunks_of_one_size_stay_in_rank_order() -> None:
    assert order(ranked(*[10] * 50)) == list(range(50))


def test_the_best_ranked_comes_first_whatever_its_size() -> None:
    assert order(ranked(1000, 1, 1)) == [0, 1, 2]


def test_a_long_chunk_waits_but_not_for_all() -> None:
    found = order(ranked(10, 200, *[10] * 40))
    assert 3 < found.index(1) < 20


def test_the_shortest_do_not_overtake_the_best() -> None:
    found = order(ranked(*[10] * 8, *[1] * 30))
    assert found[:4] == [0, 1, 2, 3]
    assert found.index(20) > found.index(7)


def test_what_is_no_definition_comes_after_those_of_like_rank() -> None:
    for kind in (ChunkKind.MODULE, ChunkKind.WINDOW):
        items = ranked(*[10] * 8)
        items[1] = (1, ranked(10, 10, kind=kind)[1][1])
        assert order(items) == [0, 2, 3, 4, 5, 6, 7, 1]


@given(st.lists(st.integers(1, 60), max_size=30), st.randoms())
def test_the_order_is_total_and_does_not_depend_on_that_of_the_input(
    sizes: list[int], random: object
) -> None:
    items = ranked(*sizes)
    found = order(items)
    assert sorted(found) == list(range(len(sizes)))
    random.shuffle(items)  # type: ignore[attr-defined]
    assert order(items) == found
