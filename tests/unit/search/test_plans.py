"""The plan that a model is shown, and the action `find`."""

from __future__ import annotations

import asyncio
import json

from agent.iterative import Find, offered, read_actions
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.search.plans import find_places
from agent.types import Completion, ParseFailure, Usage
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore
from tests.support.planning import FILES, OPTIONS, PROBLEM, make_planner, rank


def test_a_plan_is_shown_as_far_as_it_fits() -> None:
    planner, snapshot, ranking = make_planner(), MemorySnapshot(FILES), rank()
    whole = asyncio.run(planner.find(PROBLEM, snapshot, ranking, 1_000))
    steps = whole.split("\n")[1:]
    assert len(steps) > 1
    assert "shop/cart.py:8-9 Cart.total" in whole
    room = planner.counter.count(whole) - 1
    shorter = asyncio.run(planner.find(PROBLEM, snapshot, ranking, room))
    assert shorter.split("\n")[1:] == steps[:-1]
    assert asyncio.run(planner.find(PROBLEM, snapshot, ranking, 10)) == ""


def test_each_intent_names_its_places_and_no_symbol_twice() -> None:
    retriever = HybridRetriever(OPTIONS, embedder=None, index_path=None, reporter=ignore)
    intents = ("Find what parses a price", "Find what renders the receipt")
    text = asyncio.run(find_places(intents, retriever, MemorySnapshot(FILES)))
    first, second = text.split("\n\n")
    assert first.startswith("Find what parses a price\nshop/prices.py:L5-6 parse_price")
    assert "render_receipt" in text
    places = [line for line in text.split("\n") if ":L" in line]
    assert len(places) == len(set(places))
    assert max(len(part.split("\n")) - 1 for part in (first, second)) <= 6


def test_the_action_is_read_and_bounded() -> None:
    def read(**fields: object) -> object:
        (asked,) = read_actions(Completion(json.dumps(fields), "m", "stop", Usage(), 0.0)).asked
        return asked.read

    assert read(action="find", intents=["x"]) == Find(action="find", intents=["x"])
    assert isinstance(read(action="find", intents=[]), ParseFailure)
    assert isinstance(read(action="find", intents=["x"] * 7), ParseFailure)


def test_the_action_is_offered_only_where_it_is_switched_on() -> None:
    _, off = offered(find=False, run=False, lines=9)
    _, on = offered(find=True, run=False, lines=9)
    assert '"find"' not in off
    added = [line for line in on.split("\n") if line not in off.split("\n")]
    assert len(added) == 2
    assert '"action": "find"' in added[0]
