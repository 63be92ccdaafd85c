from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.search.merging import CorpusHit, merged, ordered
from agent.search.passages import Label, Passage, PoolHit
from agent.search.ranking import (
    CORPUS_WEIGHTS,
    MAX_RARE,
    RRF_K,
    RankedList,
    fuse_orders,
    rank_corpus,
    rank_score,
    weights_of,
)
from agent.search.text_format import read_query
from agent.search.word_index import WordIndex, build_word_index
from agent.types import Reason

MANY = 120


def word_index_of(texts: Sequence[str]) -> WordIndex:
    return build_word_index(
        [Passage(Label.DOCS, t[:20], t, f"{n:03}.md", 1, 1) for n, t in enumerate(texts)]
    )


def ranked(query: str, word_index: WordIndex, near: Sequence[int]) -> list[int]:
    words = weights_of(read_query(query), (), word_index, with_synonyms=False)
    scores = [(number, 0.9 - place / 1_000) for place, number in enumerate(near)]
    return [one.number for one in rank_corpus(word_index, words, scores)]


TEXTS = [
    *(f"The color of part {n} is set by a style." for n in range(MANY)),
    "Set NO_COLOR to print without styles. Set FORCE_COLOR to print them anyway.",
    "Where NO_COLOR is set, nothing of a long text about terminals and pipes is coloured at all.",
]
BOTH, ONE = MANY, MANY + 1
# Vectors that know nothing of the names: the passages that have them come last.
NEAR = [*range(MANY), ONE, BOTH]


@pytest.mark.parametrize("query", ["NO_COLOR", "what does NO_COLOR do to the color of a style"])
def test_what_has_a_rare_name_comes_first(query: str) -> None:
    assert set(ranked(query, word_index_of(TEXTS), NEAR)[:2]) == {BOTH, ONE}


def test_all_names_of_a_query_must_be_there() -> None:
    assert ranked("FORCE_COLOR or NO_COLOR", word_index_of(TEXTS), NEAR)[0] == BOTH
    assert ranked("FORCE_COLOR", word_index_of(TEXTS), NEAR)[0] == BOTH


def test_a_literal_says_so_in_its_reasons() -> None:
    word_index = word_index_of(TEXTS)
    words = weights_of(read_query("NO_COLOR"), (), word_index, with_synonyms=False)
    found = rank_corpus(word_index, words, [(n, 0.5) for n in NEAR])
    assert [one.literal for one in found[:3]] == [True, True, False]


def test_where_words_tie_vectors_decide() -> None:
    word_index = word_index_of([*TEXTS[:MANY], "Set NO_COLOR here", "Set NO_COLOR here"])
    assert ranked("NO_COLOR", word_index, [MANY + 1, MANY])[:2] == [MANY + 1, MANY]


def test_prose_is_ordered_by_both_as_before() -> None:
    word_index = word_index_of(TEXTS)
    words = weights_of(read_query("print without any styles"), (), word_index, with_synonyms=False)
    assert words.literals == frozenset()


def test_a_name_that_stands_everywhere_leads_only_where_it_is_the_whole_query() -> None:
    word_index = word_index_of([f"parse_args of command {n}" for n in range(MAX_RARE + 1)])
    assert not weights_of(read_query("why parse_args fails"), (), word_index, False).literals
    assert weights_of(read_query("parse_args"), (), word_index, False).literals


def test_an_issue_s_many_names_lead_nothing() -> None:
    word_index = word_index_of(TEXTS)
    issue = "NO_COLOR " + " ".join(f"word{n}" for n in range(30))
    assert not weights_of(read_query(issue), (), word_index, False).literals


def passage(label: Label, text: str, path: str = "a.py", start: int = 1) -> Passage:
    return Passage(label, text, text, path, start, start)


def test_the_sum_of_reciprocal_ranks_in_0_to_1() -> None:
    first, second, third = fuse_orders([RankedList("a", [7, 5], 1.0), RankedList("b", [7, 9], 2.0)])
    assert (first.number, first.score, first.ranks) == (7, 1.0, (("a", 1), ("b", 1)))
    assert (second.number, third.number) == (9, 5)
    assert second.score == pytest.approx(2 / 3 * (RRF_K + 1) / (RRF_K + 2))
    assert third.score == pytest.approx(1 / 3 * (RRF_K + 1) / (RRF_K + 2))


def test_ties_are_in_the_order_of_numbers_and_doubles_count_once() -> None:
    fused = fuse_orders([RankedList("a", [2, 2, 3], 1.0), RankedList("b", [3, 2], 1.0)])
    assert [(one.number, one.ranks) for one in fused] == [
        (2, (("a", 1), ("b", 2))),
        (3, (("a", 2), ("b", 1))),
    ]


def test_every_corpus_named_is_among_the_first_results() -> None:
    scores = {label: CORPUS_WEIGHTS[label] * rank_score(1) for label in Label}
    assert max(scores, key=lambda label: scores[label]) is Label.CODE
    assert all(score > rank_score(4) for score in scores.values())
    assert set(CORPUS_WEIGHTS) == set(Label)


def test_near_duplicates_of_all_corpora_are_one_finding() -> None:
    words = " ".join(f"w{n}" for n in range(40))
    hits = [
        CorpusHit(passage(Label.DOCS, words, "docs/a.md"), 1, (Reason("words", 1.0),), 0.6),
        CorpusHit(passage(Label.CODE, words), 1, (), 0.9),
        CorpusHit(passage(Label.HISTORY, f"{words} more"), 2, (), 0.95),
        CorpusHit(passage(Label.INTENT, "something else entirely"), 1),
    ]
    first, second = merged(hits, CORPUS_WEIGHTS)
    assert first.passage.corpus is Label.CODE
    assert first.score == 1.0
    assert [one.corpus for one in first.same] == [Label.DOCS, Label.HISTORY]
    assert first.similarity == 0.95
    assert second.passage.corpus is Label.INTENT
    assert second.same == ()


def test_the_order_is_total() -> None:
    findings = [
        PoolHit(passage(label, text, path, start), 0.5)
        for label in (Label.DOCS, Label.CODE)
        for path in ("b.py", "a.py")
        for start in (2, 1)
        for text in ("y", "x")
    ]
    assert ordered(findings) == ordered(list(reversed(findings)))
    assert ordered(findings)[0].passage == passage(Label.CODE, "x", "a.py", 1)
