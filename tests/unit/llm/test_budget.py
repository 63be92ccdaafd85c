"""`agent.llm.budget`: refused before the call, in figures; recorded after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from agent.errors import BudgetExceeded
from agent.llm import (
    Budget,
    BudgetedChatModel,
    Endpoint,
    Price,
    Spent,
    ask_remote_budget,
    ceiling,
    create_client,
)
from agent.llm.budget import read_spent
from agent.types import Completion, Usage
from agent.types.events import Event
from tests.support.llm import KEY, endpoint, make_prompt, run
from tests.support.scripted_model import ScriptedChatModel

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
            budget = ask_remote_budget(place, client, events.append)
            assert budget is not None
            return [await budget() for _ in range(times)]

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


PRICE = Price(1.0, 10.0)  # USD per million: 1,000 in + 100 out = $0.002


def reply(usage: Usage) -> Completion:
    return Completion("{}", "m", "stop", usage, 0.1)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(),
        Budget(max_cost=0.002, price=PRICE),
        Budget(max_tokens=1100),
        Budget(max_calls=1),
        Budget(max_cost=0.0, price=Price(0, 0)),
    ],
)
def test_what_fits_exactly_is_allowed(budget: Budget) -> None:
    budget.reserve(1000, 100)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (
            Budget(max_cost=0.01, price=PRICE, spent=Usage(1, 1, 0.009, 1)),
            "the next call may cost $0.0020 (1,000 in and up to 100 out), but $0.0010 of $0.0100 "
            "is left: raise PATCHSHOT_MAX_COST or lower PATCHSHOT_MAX_OUTPUT_TOKENS",
        ),
        (
            Budget(max_tokens=2000, spent=Usage(900, 50, None, 1)),
            "the next call may use 1,100 tokens (1,000 in and up to 100 out), but 1,050 of 2,000 "
            "are left: raise PATCHSHOT_MAX_TOKENS or lower PATCHSHOT_MAX_OUTPUT_TOKENS",
        ),
        (
            Budget(max_calls=2, spent=Usage(calls=2)),
            "no model call is left (2 of 2 made): raise PATCHSHOT_MAX_CALLS",
        ),
        (
            Budget(max_cost=5.0),
            "PATCHSHOT_MAX_COST is set, but the model's price is not known: set "
            "PATCHSHOT_PRICES to IN,OUT (US dollars per million tokens)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_figures(budget: Budget, message: str) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        budget.reserve(1000, 100)

    assert str(caught.value) == message


def test_usage_and_cost_are_recorded() -> None:
    inner = ScriptedChatModel([reply(Usage(1000, 100, None, 1)), reply(Usage(10, 10, 0.5, 1))])
    model = BudgetedChatModel(inner, Budget(price=PRICE))

    first = run(model.complete(make_prompt(), max_output_tokens=9))
    run(model.complete(make_prompt(), max_output_tokens=9))

    assert first.usage == Usage(1000, 100, 0.002, 1)
    assert model.usage == Usage(1010, 110, 0.502, 2)


def test_a_refused_call_is_not_made() -> None:
    inner = ScriptedChatModel(["never"])
    model = BudgetedChatModel(inner, Budget(max_tokens=5))

    with pytest.raises(BudgetExceeded):
        run(model.complete(make_prompt(), max_output_tokens=9))
    assert inner.calls == []
    assert model.usage == Usage()


def test_calls_in_flight_are_held_at_their_worst_case() -> None:
    class Slow(ScriptedChatModel):
        async def complete(self, *args: object, **named: object) -> Completion:
            await asyncio.sleep(0.01)
            return reply(Usage(1, 1, None, 1))

    prompt = make_prompt()
    model = BudgetedChatModel(Slow([]), Budget(max_tokens=prompt.tokens * 2 + 10))

    async def both() -> list[Completion | BaseException]:
        calls = [model.complete(prompt, max_output_tokens=9) for _ in range(2)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second = run(both())
    assert isinstance(first, Completion)
    assert isinstance(second, BudgetExceeded)
    run(model.complete(prompt, max_output_tokens=1))  # what was held is free again


class Host:
    """A run's host that tells these figures, one after the other; the last repeats."""

    def __init__(self, *told: Spent | None) -> None:
        self.told = list(told)
        self.asked = 0

    async def __call__(self) -> Spent | None:
        self.asked += 1
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


class TestHost:
    """The bounds of the machine that the run is on."""

    @pytest.mark.parametrize(
        ("budget", "words"),
        [
            (Budget(ceiling=0.001, price=PRICE), ["$0.0020", "of $0.0010", "RIDGES_MAX_COST_USD"]),
            (Budget(account=Spent(1.0, 0.001), price=PRICE), ["$0.0020", "$0.0010", "at its host"]),
            (Budget(account=Spent(1.0, 0.0)), ["an unknown amount", "$0.0000"]),
        ],
    )
    def test_what_exceeds_them_is_refused(self, budget: Budget, words: list[str]) -> None:
        with pytest.raises(BudgetExceeded) as caught:
            budget.reserve(1000, 100)
        assert all(word in str(caught.value) for word in words)

    @pytest.mark.parametrize(
        "budget",
        [
            Budget(ceiling=0.002, price=PRICE),
            Budget(ceiling=0.0),  # without a price it bounds nothing here: the host refuses itself
            Budget(account=Spent(1.0, 0.002), price=PRICE),
            Budget(account=Spent(1.0, 0.002)),
            Budget(account=Spent(1.0, None), price=PRICE),
        ],
    )
    def test_what_fits_or_is_not_known_is_allowed(self, budget: Budget) -> None:
        budget.reserve(1000, 100)

    def test_it_is_asked_before_the_first_call_and_after_each(self) -> None:
        host = Host(Spent(0.0, 1.0))
        inner = ScriptedChatModel([reply(Usage(1, 1, None, 1))] * 2)
        model = BudgetedChatModel(inner, Budget(), host)

        run(model.complete(make_prompt(), max_output_tokens=9))
        run(model.complete(make_prompt(), max_output_tokens=9))

        assert host.asked == 3

    def test_its_own_figure_is_what_the_run_has_spent(self) -> None:
        host = Host(Spent(0.01, 1.0), Spent(0.25, 0.76))
        inner = ScriptedChatModel([reply(Usage(5, 6, None, 1))])
        model = BudgetedChatModel(inner, Budget(), host)

        run(model.complete(make_prompt(), max_output_tokens=9))

        assert model.usage == Usage(5, 6, 0.25, 1)


class TestCaching:
    """Prompts that go into the provider's cache, and come from it."""

    price = Price(1.0, 10.0, cache_read=0.1, cache_write=1.25)

    def test_what_was_read_and_written_is_priced(self) -> None:
        usage = Usage(1000, 0, None, 1, cache_read_tokens=600, cache_write_tokens=200)

        assert self.price.of(usage) == pytest.approx((200 + 60 + 250) / 1e6)


class TestBeside:
    """Another model that spends from the same budget."""

    def test_both_spend_from_one_budget_at_their_own_prices(self) -> None:
        main = BudgetedChatModel(
            ScriptedChatModel([reply(Usage(1000, 0, None, 1))]), Budget(price=Price(10.0, 10.0))
        )
        small = ScriptedChatModel([reply(Usage(1000, 0, None, 1))])
        other = main.beside(Usage(), small, Price(1.0, 1.0))
        run(other.complete(make_prompt(), max_output_tokens=9))
        run(main.complete(make_prompt(), max_output_tokens=9))
        assert main.usage.calls == other.usage.calls == 2
        assert main.usage.cost_usd == pytest.approx(0.011)
        assert (main.budget.price, other.budget.price) == (Price(10.0, 10.0), Price(1.0, 1.0))

    @pytest.mark.parametrize("limits", [{"max_calls": 1}, {"max_tokens": 5000}, {"max_cost": 0.05}])
    def test_it_leaves_what_the_first_model_needs(self, limits: dict[str, Any]) -> None:
        inner = ScriptedChatModel([reply(Usage(10, 1, None, 1))])
        main = BudgetedChatModel(inner, Budget(price=Price(10.0, 10.0), **limits))
        other = main.beside(main.budget.worst_case(4990, 9))
        with pytest.raises(BudgetExceeded):
            run(other.complete(make_prompt(), max_output_tokens=9))
        assert run(main.complete(make_prompt(), max_output_tokens=9)).usage.calls == 1
