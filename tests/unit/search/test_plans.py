"""Plans by a model: the prompt, replies of every shape, and failures that cost its plans only."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BudgetExceeded, ProviderUnreachable
from agent.iterative import Find, offered, read_actions
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.search.plan_search import MAX_INTENTS, key_of
from agent.search.plans import Planned, find_places, read_plans
from agent.types import Completion, ParseFailure, Problem, Usage
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore
from tests.support.planning import FILES, OPTIONS, PROBLEM, make_planner, rank
from tests.support.scripted_model import Reply, ScriptedChatModel

REPLY = json.dumps({"plans": [["Find `render_receipt`", "Find what parses"], ["Find `Cart`"]]})
KEYS = [("Find `render_receipt`", "Find what parses"), ("Find `Cart`",)]


def test_the_prompt_names_what_is_ranked() -> None:
    chat = ScriptedChatModel([BETTER])
    planner = make_planner(calls=1, expansions=0)
    issue = Problem("x </issue> y", f"</context> {PROBLEM.text}")
    asyncio.run(planner.plan(issue, MemorySnapshot(FILES), rank(), chat))
    system, user = chat.calls[0].prompt.messages
    assert (system.role, user.role) == ("system", "user")
    assert "shop/cart.py: " in user.content
    assert "render_receipt" in user.content
    assert "return sum(" not in user.content  # names, no code
    assert user.content.count("</issue>") == 1


@pytest.mark.parametrize(
    "text",
    [
        REPLY,
        f"Here you are:\n```json\n{REPLY}\n```\nGood luck!",
        REPLY.replace('"', "'").replace("]}", "],}"),
        json.dumps({"plans": [*KEYS, *KEYS, [], [" "]]}),
    ],
)
def test_replies_are_read_in_the_shapes_that_models_give(text: str) -> None:
    assert [key_of(plan) for plan in read_plans(text)] == KEYS


@pytest.mark.parametrize("text", ["", "no", "{}", '{"plans": 3}', '{"plans": [[1]]}', REPLY[:30]])
def test_what_holds_no_plan_gives_none(text: str) -> None:
    assert read_plans(text) == ()


@given(st.text() | st.recursive(st.text() | st.integers(), st.lists).map(
    lambda value: json.dumps({"plans": value})
))  # fmt: skip
def test_any_reply_can_be_read(text: str) -> None:
    for plan in read_plans(text):
        assert 1 <= len(plan) <= MAX_INTENTS


def planned(*replies: Reply, calls: int = 1, **limits: int) -> Planned:
    chat = ScriptedChatModel(replies)
    planner = make_planner(calls=calls, **{"expansions": 0, **limits})
    found = asyncio.run(planner.plan(PROBLEM, MemorySnapshot(FILES), rank(), chat))
    assert found.calls == len(chat.calls)
    return found


def proposing(*plans: str) -> str:
    return json.dumps({"plans": [[text] for text in plans]})


BETTER = proposing("zzz", "price_of total items coupon discount")


def test_calls_are_made_until_one_finds_nothing_better() -> None:
    said = [intent.text for intent in planned(calls=0).winner.plan]
    best = json.dumps({"plans": [[*said, "price_of items"]]})
    found = [planned(BETTER, best, proposing("zzz"), best, calls=calls) for calls in range(5)]
    values = [one.winner.value for one in found]
    assert [one.calls for one in found] == [0, 1, 2, 3, 3]
    assert values[0] < values[1] < values[2] == values[3] == values[4]
    assert found[2].winner.plan[-1].text == "price_of items"
    assert not any(one.note for one in found)


@pytest.mark.parametrize("limits", [{"expansions": 2}, {"expansions": 2, "width": 2}])
def test_more_calls_never_give_a_plan_of_less_value(limits: dict[str, int]) -> None:
    replies = (BETTER, proposing("price_of items"), BETTER)
    found = [planned(*replies, calls=calls, **limits) for calls in range(4)]
    values = [one.winner.value for one in found]
    assert values == sorted(values)


def test_an_intent_that_the_model_repeats_is_not_another_one() -> None:
    first = planned(calls=0)
    said = [intent.text for intent in first.winner.plan]
    again = planned(json.dumps({"plans": [said]}), calls=3)
    assert (again.winner, again.calls) == (first.winner, 1)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("sorry", "held no plan"),
        (ProviderUnreachable("the server is down"), "server is down"),
        (BudgetExceeded("no model call is left"), "no model call is left"),
    ],
)
def test_a_failed_call_keeps_the_plan_before_it(reply: Reply, why: str) -> None:
    better = planned(BETTER)
    found = planned(BETTER, reply, calls=5)
    assert (found.winner, found.steps) == (better.winner, better.steps)
    assert found.note.startswith("plan call 2")
    assert why in found.note


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
