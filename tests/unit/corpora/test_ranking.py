from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.corpora.formats import read_query
from agent.corpora.passages import Label, Passage
from agent.corpora.ranking import MAX_RARE, rank_corpus, weights_of
from agent.corpora.shelf import Shelf, make_shelf

MANY = 120


def shelf_of(texts: Sequence[str]) -> Shelf:
    return make_shelf(
        [Passage(Label.DOCS, t[:20], t, f"{n:03}.md", 1, 1) for n, t in enumerate(texts)]
    )


def ranked(query: str, shelf: Shelf, near: Sequence[int]) -> list[int]:
    words = weights_of(read_query(query), (), shelf, with_synonyms=False)
    scores = [(number, 0.9 - place / 1_000) for place, number in enumerate(near)]
    return [one.number for one in rank_corpus(shelf, words, scores)]


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
    assert set(ranked(query, shelf_of(TEXTS), NEAR)[:2]) == {BOTH, ONE}


def test_all_names_of_a_query_must_be_there() -> None:
    assert ranked("FORCE_COLOR or NO_COLOR", shelf_of(TEXTS), NEAR)[0] == BOTH
    assert ranked("FORCE_COLOR", shelf_of(TEXTS), NEAR)[0] == BOTH


def test_a_literal_says_so_in_its_reasons() -> None:
    shelf = shelf_of(TEXTS)
    words = weights_of(read_query("NO_COLOR"), (), shelf, with_synonyms=False)
    found = rank_corpus(shelf, words, [(n, 0.5) for n in NEAR])
    assert [one.literal for one in found[:3]] == [True, True, False]


def test_where_words_tie_vectors_decide() -> None:
    shelf = shelf_of([*TEXTS[:MANY], "Set NO_COLOR here", "Set NO_COLOR here"])
    assert ranked("NO_COLOR", shelf, [MANY + 1, MANY])[:2] == [MANY + 1, MANY]


def test_prose_is_ordered_by_both_as_before() -> None:
    shelf = shelf_of(TEXTS)
    words = weights_of(read_query("print without any styles"), (), shelf, with_synonyms=False)
    assert words.literals == frozenset()


def test_a_name_that_stands_everywhere_leads_only_where_it_is_the_whole_query() -> None:
    shelf = shelf_of([f"parse_args of command {n}" for n in range(MAX_RARE + 1)])
    assert not weights_of(read_query("why parse_args fails"), (), shelf, False).literals
    assert weights_of(read_query("parse_args"), (), shelf, False).literals


def test_an_issue_s_many_names_lead_nothing() -> None:
    shelf = shelf_of(TEXTS)
    issue = "NO_COLOR " + " ".join(f"word{n}" for n in range(30))
    assert not weights_of(read_query(issue), (), shelf, False).literals
