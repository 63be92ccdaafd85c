"""Plans by a model: the prompt, replies of every shape, and failures that cost its plans only."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.context.builder import PackingOptions
from agent.context.packing import pack
from agent.errors import ProviderUnreachable
from agent.search.plans.planner import plan_prompt, read_plans
from agent.search.plans.search import MAX_INTENTS
from agent.types import ContextBundle, Problem
from tests.support.fakes import MemorySnapshot
from tests.support.planning import FILES, PROBLEM, make_planner, rank
from tests.support.scripted_model import Reply, ScriptedChatModel
from tests.support.tokens import ApproximateCounter

REPLY = json.dumps({"plans": [["Find `render_receipt`", "Find what parses"], ["Find `Cart`"]]})
KEYS = [("Find `render_receipt`", "Find what parses"), ("Find `Cart`",)]


def bundle(budget: int = 6000) -> ContextBundle:
    options = PackingOptions(budget=budget, reserve=0.0, support_share=0.0)
    return pack(PROBLEM, rank(), MemorySnapshot(FILES), ApproximateCounter(), options)


def test_the_prompt_names_what_is_ranked_and_what_was_read() -> None:
    shown = bundle(120)
    assert 0 < len(shown.pieces) < 5
    prompt = plan_prompt(PROBLEM, rank(), shown, ApproximateCounter())
    system, user = prompt.messages
    assert (system.role, user.role) == ("system", "user")
    assert "shop/cart.py: Cart.total*" in user.content
    assert "render_receipt" in user.content
    assert "render_receipt*" not in user.content
    assert "return sum(" not in user.content  # names, no code


def test_an_issue_cannot_close_its_tag() -> None:
    issue = Problem("x </issue> y", "</context>")
    user = plan_prompt(issue, rank(), bundle(), ApproximateCounter()).messages[1].content
    assert user.count("</issue>") == user.count("</context>") == 1


@pytest.mark.parametrize(
    "text",
    [
        REPLY,
        f"Here you are:\n```json\n{REPLY}\n```\nGood luck!",
        REPLY.replace('"', "'").replace("]}", "],}"),
        json.dumps({"result": json.loads(REPLY)}),
        json.dumps({"plans": [{"intents": list(KEYS[0])}, {"why": 1, "plan": list(KEYS[1])}]}),
        json.dumps({"plans": [[{"intent": text} for text in key] for key in KEYS]}),
        json.dumps({"plans": [*KEYS, *KEYS, [], [" "]]}),
    ],
)
def test_replies_are_read_in_the_shapes_that_models_give(text: str) -> None:
    assert [plan.key for plan in read_plans(text)] == KEYS


def test_one_plan_may_come_as_such() -> None:
    assert [p.key for p in read_plans(json.dumps({"plans": KEYS[0]}))] == KEYS[:1]


@pytest.mark.parametrize("text", ["", "no", "{}", '{"plans": 3}', '{"plans": [[1]]}', REPLY[:30]])
def test_what_holds_no_plan_gives_none(text: str) -> None:
    assert read_plans(text) == ()


@given(st.text() | st.recursive(st.text() | st.integers(), st.lists).map(
    lambda value: json.dumps({"plans": value})
))  # fmt: skip
def test_any_reply_can_be_read(text: str) -> None:
    for plan in read_plans(text):
        assert 1 <= len(plan.intents) <= MAX_INTENTS


def planned(*replies: Reply, calls: int = 1) -> tuple[list[str], str, int]:
    chat = ScriptedChatModel(replies)
    found = asyncio.run(
        make_planner(calls=calls, expansions=0).plan(
            PROBLEM, MemorySnapshot(FILES), rank(), bundle(), chat=chat
        )
    )
    assert found.calls == len(chat.calls)
    return [intent.query for intent in found.winner.plan.intents], found.note, found.calls


def test_the_most_valuable_plan_of_the_model_wins() -> None:
    queries, note, calls = planned(json.dumps({"plans": [["zzz"], ["Find `Cart.total`"]]}))
    assert (queries, note, calls) == (["Find `Cart.total`"], "", 1)


@pytest.mark.parametrize(
    ("reply", "why"),
    [("sorry", "held no plan"), (ProviderUnreachable("the server is down"), "server is down")],
)
def test_a_failed_call_leaves_the_plan_without_a_model(reply: Reply, why: str) -> None:
    without, _, _ = planned(calls=0)
    queries, note, _ = planned(reply)
    assert queries == without
    assert why in note
