"""Mutations, and the search over them: deterministic, within its budget, never worse."""

from __future__ import annotations

from agent.search.plan_search import (
    MAX_INTENTS,
    TOKENS_A_TERM,
    Grounded,
    Grounder,
    IntentPlan,
    Mutator,
    PlanSearch,
    Scene,
    intents_in,
    mentioned,
    plan_of,
)
from agent.types import Problem
from tests.support.planning import PROBLEM, found, intent, make_queries


def make_search(limit: int = 40, expansions: int = 6, width: int | None = None) -> PlanSearch:
    queries = make_queries()
    queries.prepare(PROBLEM.text)
    (signals,) = queries.signals([PROBLEM])
    scene = Scene(queries.corpus, {}, mentioned(signals), 1000)
    mutator = Mutator(queries.corpus, intents_in(PROBLEM))
    return PlanSearch(scene, Grounder(queries, limit), mutator, expansions, width)


def mutate(*grounded: Grounded) -> list[tuple[str, ...]]:
    return [plan.key for plan in make_search().mutator.mutated(grounded)]


def test_each_intent_can_be_dropped_but_the_last() -> None:
    plans = mutate(found("one", 0), found("two", 1))
    assert plans[:2] == [("two",), ("one",)]
    assert () not in mutate(found("one", 0))


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


def test_the_search_never_ends_below_its_start_and_keeps_its_budget() -> None:
    start = plan_of(intents_in(PROBLEM)[:4])
    alone = make_search(expansions=0).best(start)
    assert alone.plan == start
    for limit in (4, 8, 40):
        search = make_search(limit)
        best = search.best(start)
        assert best.value >= alone.value
        assert search.grounder.spent <= limit
    assert best.value > alone.value


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
    alone = make_search(expansions=0).best(start).value
    for width in (1, 3):
        best = make_search(width=width).best(start)
        assert best == make_search(width=width).best(start)
        assert best.value >= alone


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
    assert (nothing.hits, nothing.quality) == ((), 0.0)


def test_a_full_plan_is_not_added_to() -> None:
    full = [found(f"intent number {n}", n) for n in range(MAX_INTENTS)]
    assert all(len(plan.intents) <= MAX_INTENTS for plan in make_search().mutator.mutated(full))


def value(*grounded: Grounded, ranks: dict[int, int] | None = None, tokens: int = 10**9) -> float:
    """The value of a plan in the project's corpus, without names in the issue."""
    return round(Scene(make_queries().corpus, ranks or {}, {}, tokens).value(grounded), 6)


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
    terms = float(make_queries().corpus.text_lengths[0])
    assert value(found("a", 0), tokens=100) == round(0.5 - 0.3 * terms * TOKENS_A_TERM / 100, 6)


def test_names_of_the_issue_are_worth_something() -> None:
    queries = make_queries()
    (signals,) = queries.signals([Problem("render_receipt", "`render_receipt` fails")])
    scene = Scene(queries.corpus, {}, mentioned(signals), 10**9)
    piece = queries.corpus.symbols.index("render_receipt")
    assert scene.value([found("a", piece)]) > 0.5
