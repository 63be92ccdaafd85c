"""Grounding, the value of plans, and the search: deterministic, within its budget, never worse."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent.search.plan_search import (
    MAX_INTENT_CHARS,
    MAX_SENTENCES,
    TOKENS_A_TERM,
    Grounded,
    PlanSearch,
    intent_of,
    intents_in,
    key_of,
    mentioned,
    plan_of,
    sentences,
)
from agent.types import Problem
from tests.support.planning import PROBLEM, found, intent, make_grounder

START = intents_in(PROBLEM)[:4]
TEXTS = ("cart total", "`render_receipt` sends mail", "shop/config.py reads a path", "zzz unknown")


def make_search(limit: int = 40, expansions: int = 6, width: int | None = None) -> PlanSearch:
    grounder = make_grounder(limit)
    grounder.prepare(PROBLEM.text)
    (signals,) = grounder.signals([PROBLEM])
    pool = intents_in(PROBLEM)
    return PlanSearch(grounder, pool, {}, mentioned(signals), 1000, expansions, width)


def neighbours(search: PlanSearch, *grounded: Grounded) -> list[tuple[str, ...]]:
    return [key_of(plan) for plan in search.neighbours(grounded)]


# --------------------------------------------------------------------------------------- grounding


def test_a_query_scores_the_same_alone_and_among_others() -> None:
    together = make_grounder().signals([Problem(text, "") for text in TEXTS])
    for text, signals in zip(TEXTS, together, strict=True):
        (alone,) = make_grounder().signals([Problem(text, "")])
        assert np.array_equal(alone.pieces, signals.pieces)
        assert np.array_equal(alone.files, signals.files)
        for name, column in alone.piece_columns.items():
            assert np.array_equal(column, signals.piece_columns[name]), name
    assert make_grounder().signals([]) == []


def test_grounding_finds_the_code_and_asks_each_query_once() -> None:
    grounder = make_grounder(limit=2)
    one, again, other = intent("render a receipt"), intent("render a receipt"), intent("coupon")
    grounded = grounder.ground([one, again, other])
    assert grounded is not None
    assert grounded[0] is grounded[1]
    assert grounder.corpus.symbols[grounded[0].hits[0]] == "render_receipt"
    assert grounder.spent == 2
    assert grounder.ground([intent("config")]) is None
    assert grounder.ground([other]) == (grounded[2],)


# ---------------------------------------------------------------------------------- changed plans


def test_each_intent_can_be_dropped_but_the_last() -> None:
    plans = neighbours(make_search(), found("one", 0), found("two", 1))
    assert plans[:2] == [("two",), ("one",)]
    assert () not in neighbours(make_search(), found("one", 0))


def test_an_intent_is_rephrased_by_the_names_of_what_it_found() -> None:
    search = make_search()
    piece = search.grounder.corpus.symbols.index("parse_price")
    assert ("one parse_price in prices.py",) in neighbours(search, found("one", piece))


def test_unused_intents_of_the_issue_and_neighbours_are_added() -> None:
    search = make_search()
    piece = search.grounder.corpus.symbols.index("Cart.total")
    plans = neighbours(search, found("one", piece))
    assert ("one", PROBLEM.title) in plans
    assert ("one", "price_of in prices.py") in plans


# ----------------------------------------------------------------------------------------- search


def test_the_search_never_ends_below_its_start_and_keeps_its_budget() -> None:
    alone = make_search(expansions=0).best(START)
    assert alone.plan == START
    for limit in (4, 8, 40):
        search = make_search(limit)
        best = search.best(START)
        assert best.value >= alone.value
        assert search.grounder.spent <= limit
    assert best.value > alone.value


def test_the_same_issue_gives_the_same_plan() -> None:
    alone = make_search(expansions=0).best(START).value
    for width in (None, 1, 3):
        best = make_search(width=width).best(START)
        assert best == make_search(width=width).best(START)
        assert best.value >= alone


# ------------------------------------------------------------------------------------------ value


def value(*grounded: Grounded, ranks: dict[int, int] | None = None, tokens: int = 10**9) -> float:
    """The value of a plan in the project's corpus, without names in the issue."""
    return round(PlanSearch(make_grounder(), (), ranks or {}, {}, tokens).value(grounded), 6)


def test_a_value_counts_other_code_quality_rank_and_price() -> None:
    assert value() == 0.0
    assert value(found("a", 0)) == value(found("a", 0), found("b", 0)) == 0.5
    assert value(found("a", 0), found("b", 1)) == 0.75
    qualities = ((1, 1), (1, 0), (0.5, 0), (0, 1))
    assert [value(found("a", 0, strength=s, specificity=o)) for s, o in qualities] == [
        0.5, 0.25, 0.125, 0.0,
    ]  # fmt: skip
    ranks = {0: 0, 1: 10}
    supported = [value(found("a", *pieces), ranks=ranks) for pieces in ((0,), (1,), (2,), (0, 2))]
    assert supported == [1.5, 1.0, 0.5, 1.0]
    terms = float(make_grounder().corpus.text_lengths[0])
    assert value(found("a", 0), tokens=100) == round(0.5 - 0.3 * terms * TOKENS_A_TERM / 100, 6)


def test_names_of_the_issue_are_worth_something() -> None:
    grounder = make_grounder()
    (signals,) = grounder.signals([Problem("render_receipt", "`render_receipt` fails")])
    search = PlanSearch(grounder, (), {}, mentioned(signals), 10**9)
    piece = grounder.corpus.symbols.index("render_receipt")
    assert search.value([found("a", piece)]) > 0.5


def test_an_issue_gives_title_error_frame_and_sentences() -> None:
    found = [(i.origin, i.text) for i in intents_in(PROBLEM)]
    assert found == [
        ("title", "Find the code behind: Coupon discount is not in the total"),
        ("error", "Find what raises: AttributeError: no discount on coupon"),
        ("frame", "Look where the error passed: total in cart.py"),
        ("name", "Look at render_receipt"),
        ("name", "Look at cart.py"),
        ("name", "Look at AttributeError"),
        ("sentence", "Find what this says: The cart total ignores the coupon discount."),
        (
            "sentence",
            "Find what this says: The receipt mail shows the wrong total too, because "
            "render_receipt prints the old one.",
        ),
        ("sentence", 'Find what this says: File "shop/cart.py", line 9, in total'),
    ]


def test_marks_links_and_empty_phrases_are_left_out() -> None:
    text = "## Bug\n- [x] I have read [the manual](http://x.y/z)\n> Thanks!\nSee http://a.b/c\n\n"
    assert sentences(text) == ["I have read the manual"]


def test_a_long_paragraph_is_cut_at_a_word() -> None:
    cut = intent_of("word " * 100, "sentence").query
    assert len(cut) <= MAX_INTENT_CHARS
    assert cut.endswith("word")


def test_a_plan_holds_each_query_once_at_its_first_place() -> None:
    one, other = intent_of("a", "name"), intent_of("b", "name")
    assert plan_of((one, other, intent_of("a", "sentence"))) == (one, other)
    assert key_of(plan_of((one, other))) == ("a", "b")


@given(st.text(max_size=300), st.text(max_size=2000))
def test_any_text_gives_bounded_intents(title: str, body: str) -> None:
    found = intents_in(Problem(title, body))
    assert len({i.query for i in found}) == len(found)
    assert all(len(i.query) <= MAX_INTENT_CHARS for i in found)
    assert sum(i.origin == "sentence" for i in found) <= MAX_SENTENCES
