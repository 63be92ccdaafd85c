from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.search.fusion import (
    CORPUS_WEIGHTS,
    WordIndex,
    build_word_index,
    merged,
    ordered,
    rank_corpus,
    rank_score,
    weights_of,
)
from agent.search.passages import Label, Passage, PoolHit, read_query

MANY = 120


def word_index_of(texts: Sequence[str]) -> WordIndex:
    return build_word_index(
        [Passage(Label.DOCS, t[:20], t, f"{n:03}.md", 1, 1) for n, t in enumerate(texts)]
    )


def ranked(query: str, word_index: WordIndex, near: Sequence[int]) -> list[int]:
    words = weights_of(read_query(query), (), word_index)
    scores = [(number, 0.9 - place / 1_000) for place, number in enumerate(near)]
    hits = rank_corpus(word_index, words, scores, len(word_index.passages))
    return [int(hit.passage.path.removesuffix(".md")) for hit in hits]


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
    words = weights_of(read_query("NO_COLOR"), (), word_index)
    hits = rank_corpus(word_index, words, [(n, 0.5) for n in NEAR], 3)
    firsts = [hit.reasons[0].feature for hit in hits]
    assert firsts == ["verbatim", "verbatim", "words"]
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert [hit.similarity for hit in hits] == [0.5, 0.5, 0.5]
    relevance = [hit.relevance for hit in hits]
    assert relevance == sorted(relevance, reverse=True)


def test_where_words_tie_vectors_decide() -> None:
    word_index = word_index_of([*TEXTS[:MANY], "Set NO_COLOR here", "Set NO_COLOR here"])
    assert ranked("NO_COLOR", word_index, [MANY + 1, MANY])[:2] == [MANY + 1, MANY]


def test_a_name_that_stands_everywhere_leads_only_where_it_is_the_whole_query() -> None:
    word_index = word_index_of([f"parse_args of command {n}" for n in range(21)])
    assert not weights_of(read_query("why parse_args fails"), (), word_index).literals
    assert weights_of(read_query("parse_args"), (), word_index).literals


def test_an_issue_s_many_names_lead_nothing() -> None:
    word_index = word_index_of(TEXTS)
    issue = "NO_COLOR " + " ".join(f"word{n}" for n in range(30))
    assert not weights_of(read_query(issue), (), word_index).literals


def passage(label: Label, text: str, path: str = "a.py", start: int = 1) -> Passage:
    return Passage(label, text, text, path, start, start)


def test_the_sum_of_reciprocal_ranks_in_0_to_1() -> None:
    word_index = word_index_of(["red apples", "green pears", "red cars and apples"])
    words = weights_of(read_query("red apples"), (), word_index)
    first, second, third = rank_corpus(word_index, words, [(0, 0.9), (1, 0.8)], 9)
    assert [hit.passage.path for hit in (first, second, third)] == ["000.md", "001.md", "002.md"]
    assert sum(reason.value for reason in first.reasons) == 1.0
    assert [reason.note for reason in first.reasons] == ["place 1", "place 1"]
    assert second.reasons[0].value == pytest.approx(rank_score(2) / 2)


def test_every_corpus_named_is_among_the_first_results() -> None:
    scores = {label: CORPUS_WEIGHTS[label] * rank_score(1) for label in Label}
    assert max(scores, key=lambda label: scores[label]) is Label.CODE
    assert all(score > rank_score(4) for score in scores.values())
    assert set(CORPUS_WEIGHTS) == set(Label)


def test_near_duplicates_of_all_corpora_are_one_finding() -> None:
    words = " ".join(f"w{n}" for n in range(40))
    hits = [
        PoolHit(passage(Label.DOCS, words, "docs/a.md"), 0, similarity=0.6, rank=1),
        PoolHit(passage(Label.CODE, words), 0, similarity=0.9, rank=1),
        PoolHit(passage(Label.HISTORY, f"{words} more"), 0, similarity=0.95, rank=2),
        PoolHit(passage(Label.INTENT, "something else entirely"), 0, rank=1),
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
