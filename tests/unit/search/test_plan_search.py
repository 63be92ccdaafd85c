"""Mutations, and the search over them: deterministic, within its budget, never worse."""

from __future__ import annotations

import numpy as np
import pytest

from agent.search.plan_grounding import (
    TOKENS_A_TERM,
    Grounded,
    Grounder,
    IntentPlan,
    intents_in,
    plan_of,
)
from agent.search.plan_search import (
    MAX_INTENTS,
    NOTHING,
    PRICE,
    SUPPORT,
    IssueWords,
    Mutator,
    PlanSearch,
    PlanValue,
    Scene,
    scene_of,
)
from tests.support.planning import PROBLEM, found, intent, make_queries


def make_search(limit: int = 40, expansions: int = 6, width: int | None = None) -> PlanSearch:
    queries = make_queries()
    queries.prepare(PROBLEM.text)
    (signals,) = queries.signals([PROBLEM])
    scene = scene_of(PROBLEM, signals, {}, 1000)
    mutator = Mutator(queries.corpus, intents_in(PROBLEM))
    return PlanSearch(scene, Grounder(queries, limit), mutator, expansions, width)


def mutate(*grounded: Grounded) -> list[tuple[str, ...]]:
    return [plan.key for plan in make_search().mutator.mutated(grounded)]


def test_each_intent_can_be_dropped_but_the_last() -> None:
    plans = mutate(found("one", 0), found("two", 1))
    assert plans[:2] == [("two",), ("one",)]
    assert () not in mutate(found("one", 0))


def test_intents_for_the_same_code_are_merged() -> None:
    plans = mutate(found("one", 0, 1), found("x", 4), found("two", 1))
    assert ("one two", "x") in plans
    assert ("one", "x two") not in plans


def test_two_clauses_are_split() -> None:
    plans = mutate(found("reads the file but ignores the coupon, so it fails", 0))
    assert ("reads the file", "ignores the coupon so it fails") in plans
    single = mutate(found("the total of the cart", 0))
    assert all(plan[0].startswith("the total of the cart") for plan in single)


def test_an_intent_is_rephrased_by_the_names_of_what_it_found() -> None:
    search = make_search()
    piece = search.grounder.corpus.symbols.index("parse_price")
    plans = [plan.key for plan in search.mutator.mutated([found("one", piece)])]
    assert ("one parse_price in prices.py",) in plans


def test_unused_intents_of_the_issue_and_neighbours_are_added() -> None:
    search = make_search()
    piece = search.grounder.corpus.symbols.index("Cart.total")
    plans = [plan.key for plan in search.mutator.mutated([found("one", piece)])]
    assert ("one", PROBLEM.title) in plans
    assert ("one", "price_of in prices.py") in plans


def test_a_full_plan_is_not_added_to() -> None:
    full = [found(f"intent number {n}", n) for n in range(MAX_INTENTS)]
    assert all(len(plan.intents) <= MAX_INTENTS for plan in make_search().mutator.mutated(full))


def test_the_search_never_ends_below_its_start_and_keeps_its_budget() -> None:
    start = plan_of(intents_in(PROBLEM)[:4])
    alone = make_search(expansions=0).best(start)
    assert alone.plan == start
    for limit in (4, 8, 40):
        search = make_search(limit)
        best = search.best(start)
        assert best.value.total >= alone.value.total
        assert search.grounder.spent <= limit
    assert best.value.total > alone.value.total


def test_the_same_issue_gives_the_same_plan() -> None:
    start = plan_of(intents_in(PROBLEM)[:4])
    assert make_search().best(start) == make_search().best(start)


def test_a_budget_too_small_for_the_first_plan_gives_an_empty_one() -> None:
    assert make_search(limit=1).best(plan_of(intents_in(PROBLEM)[:4])).plan == IntentPlan(())


def test_the_best_of_several_starts_wins() -> None:
    good, bad = plan_of((intent("cart total coupon"),)), plan_of((intent("zzz"),))
    assert make_search(expansions=0).best(bad, good).plan == good


def test_a_beam_keeps_its_best_plans_and_is_as_deterministic() -> None:
    start = plan_of(make_search().mutator.pool[:4])
    alone = make_search(expansions=0).best(start).value.total
    for width in (1, 3):
        best = make_search(width=width).best(start)
        assert best == make_search(width=width).best(start)
        assert best.value.total >= alone


def test_a_beam_forgets_what_best_first_keeps() -> None:
    start = plan_of(intents_in(PROBLEM)[:4])
    narrow, whole = make_search(expansions=3, width=1), make_search(expansions=3)
    narrow.best(start)
    whole.best(start)
    assert len(narrow._frontier) < len(whole._frontier)


def make_scene(ranks: dict[int, int] | None = None, tokens: int = 1000) -> Scene:
    (signals,) = make_queries().signals([PROBLEM])
    return scene_of(PROBLEM, signals, ranks or {}, tokens)


def test_two_intents_for_other_code_are_worth_more_than_two_for_the_same() -> None:
    scene = make_scene()
    one = scene.value([found("a", 0)]).grounding
    same = scene.value([found("a", 0), found("b", 0)]).grounding
    other = scene.value([found("a", 0), found("b", 1)]).grounding
    assert (one, same, other) == (0.5, 0.5, 0.75)


def test_weak_and_vague_intents_are_worth_less() -> None:
    scene = make_scene()
    values = [
        scene.value([found("a", 0, strength=strength, specificity=specificity)]).grounding
        for strength, specificity in ((1, 1), (1, 0), (0.5, 0), (0, 1))
    ]
    assert values == [0.5, 0.25, 0.125, 0.0]


def test_support_falls_with_the_rank_in_the_issues_ranking() -> None:
    scene = make_scene({0: 0, 1: 10})
    supports = [scene.value([found("a", *pieces)]).support for pieces in ((0,), (1,), (2,), (0, 2))]
    assert supports == [1.0, 0.5, 0.0, 0.5]


def test_mentions_and_words_count_what_the_hits_hold() -> None:
    scene = make_scene()
    everything = tuple(range(len(scene.corpus.symbols)))
    whole, none = scene.value([found("a", *everything)]), scene.value([found("a")])
    assert whole.mentions == pytest.approx(
        sum(scene.mentioned[p] for p in everything[:6] if p in scene.mentioned)
        / sum(scene.mentioned.values())
    )
    assert (none.mentions, none.words, none.price) == (0.0, 0.0, 0.0)
    assert scene.words.share(everything) == pytest.approx(1.0)
    assert 0.0 < scene.words.share([0]) < 1.0


def test_the_price_is_the_hits_tokens_of_those_there_are() -> None:
    scene = make_scene(tokens=100)
    terms = float(scene.corpus.text_lengths[0] + scene.corpus.text_lengths[1])
    price = scene.value([found("a", 0, 1), found("b", 1)]).price
    assert price == pytest.approx(terms * TOKENS_A_TERM / 100)


def test_the_total_is_the_weighted_sum() -> None:
    assert PlanValue(0, 0, 1, 0, 1).total == pytest.approx(SUPPORT - PRICE)
    assert make_scene().value([]) == NOTHING


def test_words_that_no_piece_holds_do_not_count() -> None:
    (signals,) = make_queries().signals([PROBLEM])
    width = int(signals.corpus.term.max()) + 2
    words = IssueWords(signals.corpus, np.ones(width))
    assert words.share(range(len(signals.corpus.symbols))) == pytest.approx(1.0)
    assert words.share([]) == 0.0


def test_grounding_finds_the_code_and_asks_each_query_once() -> None:
    grounder = Grounder(make_queries(), limit=2)
    one, again, other = intent("render a receipt"), intent("render a receipt"), intent("coupon")
    grounded = grounder.ground([one, again, other])
    assert grounded is not None
    assert grounded[0] is grounded[1]
    assert grounder.corpus.symbols[grounded[0].hits[0]] == "render_receipt"
    assert grounder.spent == 2
    assert grounder.ground([intent("config")]) is None
    assert grounder.ground([other]) == (grounded[2],)


def test_an_intent_of_unknown_words_finds_nothing() -> None:
    (nothing,) = Grounder(make_queries(), limit=1).ground([intent("zzz qqq")]) or ()
    assert (nothing.pieces, nothing.quality) == ((), 0.0)
