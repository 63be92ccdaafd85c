from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.search.merging import NEAR, jaccard, merge_near, shingles

WORDS = st.lists(st.sampled_from("abcdef"), min_size=0, max_size=12).map(" ".join)


@given(st.lists(WORDS, max_size=12), st.sampled_from([0.5, 0.9, 1.0]))
@settings(max_examples=200, deadline=None)
def test_the_same_groups_as_comparing_all_with_all(texts: list[str], threshold: float) -> None:
    sets = [shingles(text) for text in texts]
    leaders: list[int] = []
    for number, own in enumerate(sets):
        before = [n for n in range(number) if leaders[n] == n]
        same = (n for n in before if jaccard(own, sets[n]) >= threshold)
        leaders.append(next(same, number))
    assert merge_near(texts, threshold) == tuple(leaders)


def test_labels_and_case_are_no_difference() -> None:
    assert merge_near(["NAME: a b c\nFILE: d", "A B C d", "other words here"]) == (0, 0, 2)


def test_nearly_the_same_means_nine_tenths() -> None:
    words = [f"w{n}" for n in range(100)]
    near = [*words[:-2], "x", "y"]
    far = [*words[:50], *(f"x{n}" for n in range(50))]
    texts = [" ".join(words), " ".join(near), " ".join(far)]
    assert jaccard(shingles(texts[0]), shingles(texts[1])) >= NEAR
    assert merge_near(texts) == (0, 0, 2)


def test_empty_texts_are_not_alike() -> None:
    assert merge_near(["", "", "a b c"]) == (0, 1, 2)


def test_only_few_of_all_pairs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counted(left: frozenset[int], right: frozenset[int]) -> float:
        nonlocal compared
        compared += 1
        return jaccard(left, right)

    monkeypatch.setattr("agent.search.merging.jaccard", counted)
    rng = random.Random(3)
    texts = [" ".join(f"w{rng.randrange(5_000)}" for _ in range(40)) for _ in range(4_000)]
    merge_near([*texts, *texts[:100]])
    assert 100 <= compared < 400  # of 8 million pairs
