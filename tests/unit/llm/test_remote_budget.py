"""`agent.llm.remote_budget`: what the run's host says is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from agent.events import Event
from agent.llm.endpoint import Endpoint
from agent.llm.http import create_client
from agent.llm.protocols.base import Spent
from agent.llm.remote_budget import ceiling, read_spent, remote_budget
from tests.support.llm import KEY, endpoint, run

MINER = endpoint("http://proxy", key=None, kind="miner", run_id="run 1")
P4 = replace(
    endpoint("https://openrouter.ai/api/v1", kind="openrouter"),
    usage_url="http://sandbox-proxy/api/v1/usage",
)
P3_BODY = {"used_cost_usd": 0.1, "remaining_cost_usd": 0.19, "max_cost_usd": 0.29}
P4_BODY = {"total_cost_usd": 0.0123, "budget_remaining_usd": 4.9877, "requests": 5, "models": []}


def ask(
    place: Endpoint, answer: Callable[[httpx.Request], httpx.Response], times: int = 1
) -> tuple[list[Spent | None], list[Event]]:
    events: list[Event] = []

    async def go() -> list[Spent | None]:
        async with create_client(transport=httpx.MockTransport(answer)) as client:
            budget = remote_budget(place, client, events.append)
            assert budget is not None
            return [await budget.ask() for _ in range(times)]

    return run(go()), events


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (P3_BODY, Spent(0.1, 0.19, 0.29)),
        (P4_BODY, Spent(0.0123, 4.9877, None)),
        ({"used_cost_usd": 0.3, "remaining_cost_usd": -0.01}, Spent(0.3, 0.0)),
        ({"used_cost_usd": "0.5"}, Spent(0.5)),
        ({"used_cost_usd": None, "remaining_cost_usd": "x"}, None),
        ({"used_cost_usd": True}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_figures(value: Any, expected: Spent | None) -> None:
    assert read_spent(value) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("0.29", 0.29), (" 9 ", 9.0), ("", None), ("free", None), ("nan", None), ("inf", None)],
)
def test_the_ceiling(given: str, expected: float | None) -> None:
    assert ceiling({"RIDGES_MAX_COST_USD": given}) == expected
    assert ceiling({}) is None


def test_the_miners_proxy_is_asked_for_the_run() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.path.startswith("/api/"):
            return httpx.Response(404, json={"detail": "Not Found"})
        return httpx.Response(200, json=P3_BODY)

    spent, events = ask(MINER, answer, times=2)

    assert spent == [Spent(0.1, 0.19, 0.29)] * 2
    assert events == []
    urls = [str(request.url) for request in seen]
    served = "http://proxy/agents/usage?evaluation_run_id=run%201"
    assert urls == [served.replace("agents", "api"), served, served]  # what works is remembered


def test_the_proxy_of_the_newest_containers_gets_no_key() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=P4_BODY)

    assert ask(P4, answer)[0] == [Spent(0.0123, 4.9877, None)]
    assert str(seen[0].url) == "http://sandbox-proxy/api/v1/usage"
    assert KEY not in str(seen[0].headers.raw)


@pytest.mark.parametrize("place", [MINER, P4])
def test_what_does_not_answer_bounds_nothing_and_is_said_once(place: Endpoint) -> None:
    asked = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        raise httpx.ConnectError("refused")

    spent, events = ask(place, answer, times=6)

    assert spent == [None] * 6
    assert len(events) == 1
    assert asked == 3  # after three failures in a row nobody waits for it any more


@pytest.mark.parametrize(("place", "requests"), [(MINER, 2), (P4, 1)])  # a miner's has two roots
def test_a_proxy_without_an_account_is_asked_once(place: Endpoint, requests: int) -> None:
    asked = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        return httpx.Response(404, json={"detail": "Not Found"})

    spent, events = ask(place, answer, times=3)

    assert spent == [None] * 3
    assert len(events) == 1
    assert asked == requests


def test_a_failure_in_between_does_no_harm() -> None:
    replies = [P4_BODY, None, P4_BODY, None, None, P4_BODY]

    def answer(request: httpx.Request) -> httpx.Response:
        body = replies.pop(0)
        return httpx.Response(200, json=body) if body else httpx.Response(500)

    spent, _ = ask(P4, answer, times=6)

    assert [found is None for found in spent] == [False, True, False, True, True, False]


def test_nobody_is_asked_where_there_is_no_host() -> None:
    async def go() -> None:
        async with create_client() as client:
            assert remote_budget(endpoint(), client, lambda _: None) is None

    run(go())
