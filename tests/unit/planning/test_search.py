"""Mutations, and the search over them: deterministic, within its budget, never worse."""

from __future__ import annotations

from agent.planning.grounding import Grounded, Grounder
from agent.planning.intents import Plan, intents_in, plan_of
from agent.planning.mutations import MAX_INTENTS, Mutator
from agent.planning.scoring import scene_of
from agent.planning.search import PlanSearch, first_plan
from tests.support.planning import PROBLEM, found, intent, make_queries


def make_search(limit: int = 40, expansions: int = 6) -> PlanSearch:
    queries = make_queries()
    queries.prepare(PROBLEM.text)
    (signals,) = queries.signals([PROBLEM])
    scene = scene_of(PROBLEM, signals, {}, 1000)
    mutator = Mutator(queries.corpus, intents_in(PROBLEM))
    return PlanSearch(scene, Grounder(queries, limit), mutator, expansions)


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
    start = first_plan(intents_in(PROBLEM))
    alone = make_search(expansions=0).best(start)
    assert alone.plan == start
    for limit in (4, 8, 40):
        search = make_search(limit)
        best = search.best(start)
        assert best.value.total >= alone.value.total
        assert search.grounder.spent <= limit
    assert best.value.total > alone.value.total


def test_the_same_issue_gives_the_same_plan() -> None:
    start = first_plan(intents_in(PROBLEM))
    assert make_search().best(start) == make_search().best(start)


def test_a_budget_too_small_for_the_first_plan_gives_an_empty_one() -> None:
    assert make_search(limit=1).best(first_plan(intents_in(PROBLEM))).plan == Plan(())


def test_the_best_of_several_starts_wins() -> None:
    good, bad = plan_of((intent("cart total coupon"),)), plan_of((intent("zzz"),))
    assert make_search(expansions=0).best(bad, good).plan == good
