from __future__ import annotations

import pytest

from agent.corpora.fusion import CORPUS_WEIGHTS, RRF_K, Order, fuse_orders, pool_score
from agent.corpora.merging import Hit, merged, ordered
from agent.corpora.passages import Finding, Label, Passage
from agent.types import Reason


def passage(label: Label, text: str, path: str = "a.py", start: int = 1) -> Passage:
    return Passage(label, text, text, path, start, start)


def test_the_sum_of_reciprocal_ranks_in_0_to_1() -> None:
    first, second, third = fuse_orders([Order("a", [7, 5], 1.0), Order("b", [7, 9], 2.0)])
    assert (first.number, first.score, first.ranks) == (7, 1.0, (("a", 1), ("b", 1)))
    assert (second.number, third.number) == (9, 5)
    assert second.score == pytest.approx(2 / 3 * (RRF_K + 1) / (RRF_K + 2))
    assert third.score == pytest.approx(1 / 3 * (RRF_K + 1) / (RRF_K + 2))


def test_ties_are_in_the_order_of_numbers_and_doubles_count_once() -> None:
    fused = fuse_orders([Order("a", [2, 2, 3], 1.0), Order("b", [3, 2], 1.0)])
    assert [(one.number, one.ranks) for one in fused] == [
        (2, (("a", 1), ("b", 2))),
        (3, (("a", 2), ("b", 1))),
    ]


def test_every_corpus_named_is_among_the_first_results() -> None:
    scores = {label: pool_score(label, 1) for label in Label}
    assert max(scores, key=lambda label: scores[label]) is Label.CODE
    assert all(score > pool_score(Label.CODE, 4) for score in scores.values())
    assert set(CORPUS_WEIGHTS) == set(Label)


def test_near_duplicates_of_all_corpora_are_one_finding() -> None:
    words = " ".join(f"w{n}" for n in range(40))
    hits = [
        Hit(passage(Label.DOCS, words, "docs/a.md"), 1, (Reason("words", 1.0),), 0.6),
        Hit(passage(Label.CODE, words), 1, (), 0.9),
        Hit(passage(Label.HISTORY, f"{words} more"), 2, (), 0.95),
        Hit(passage(Label.INTENT, "something else entirely"), 1),
    ]
    first, second = merged(hits)
    assert first.passage.corpus is Label.CODE
    assert first.score == 1.0
    assert [one.corpus for one in first.same] == [Label.DOCS, Label.HISTORY]
    assert first.similarity == 0.95
    assert second.passage.corpus is Label.INTENT
    assert second.same == ()


def test_the_order_is_total() -> None:
    findings = [
        Finding(passage(label, text, path, start), 0.5)
        for label in (Label.DOCS, Label.CODE)
        for path in ("b.py", "a.py")
        for start in (2, 1)
        for text in ("y", "x")
    ]
    assert ordered(findings) == ordered(list(reversed(findings)))
    assert ordered(findings)[0].passage == passage(Label.CODE, "x", "a.py", 1)
