"""`agent.llm.budget` and `.prices`: refused before the call, in figures; recorded after it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.errors import BudgetExceeded
from agent.llm import (
    Budget,
    BudgetedChatModel,
    Price,
    ceiling,
    find_price,
)
from agent.llm.prices import bundled_prices
from agent.types import Completion, Usage
from tests.support.llm import make_prompt, run
from tests.support.scripted_model import ScriptedChatModel


@pytest.mark.parametrize(
    ("given", "expected"),
    [("0.29", 0.29), (" 9 ", 9.0), ("", None), ("free", None), ("nan", None), ("inf", None)],
)
def test_the_ceiling(given: str, expected: float | None) -> None:
    assert ceiling({"RIDGES_MAX_COST_USD": given}) == expected
    assert ceiling({}) is None


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


def test_the_bound_of_the_host_is_one_where_prices_are_known() -> None:
    Budget(ceiling=0.002, price=PRICE).reserve(1000, 100)
    Budget(ceiling=0.0).reserve(1000, 100)  # the host refuses itself
    with pytest.raises(BudgetExceeded, match=r"of \$0.0010 is left: raise RIDGES_MAX_COST_USD"):
        Budget(ceiling=0.001, price=PRICE).reserve(1000, 100)


def test_what_was_read_from_and_written_to_a_cache_is_priced() -> None:
    price = Price(1.0, 10.0, cache_read=0.1, cache_write=1.25)
    usage = Usage(1000, 0, None, 1, cache_read_tokens=600, cache_write_tokens=200)
    assert price.of(usage) == pytest.approx((200 + 60 + 250) / 1e6)


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


TABLE = {
    "gpt-5": Price(1, 10),
    "gpt-5-mini": Price(0.5, 5),
    "claude-opus-4": Price(15, 75),
    "claude-opus-4.5": Price(5, 25),
    "llama-3": Price(0.2, 0.2),
}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5", Price(1, 10)),
        ("openai/gpt-5", Price(1, 10)),
        ("GPT-5", Price(1, 10)),
        ("gpt-5-2025-08-07", Price(1, 10)),
        ("gpt-5-codex", Price(1, 10)),
        ("gpt-5:nitro", Price(1, 10)),
        ("openai/gpt-5:free", Price(0, 0)),
        ("gpt-5-mini-2025-08-07", Price(0.5, 5)),
        ("gpt-5.9", None),
        ("gpt-5-9-preview", None),
        ("gpt-50", None),
        ("gpt-5o", None),
        ("claude-opus-4-20250514", Price(15, 75)),
        ("anthropic/claude-opus-4.5", Price(5, 25)),
        ("claude-opus-4-5-20251101", Price(5, 25)),
        ("claude-opus-4@20250514", Price(15, 75)),
        ("llama-3-70b", None),
        ("llama-3-8x7b-instruct", None),
        ("unheard-of", None),
        ("", None),
    ],
)
def test_the_longest_fitting_name_wins(model: str, expected: Price | None) -> None:
    assert find_price(model, TABLE) == expected


def test_the_bundled_table() -> None:
    prices = bundled_prices()

    assert all(0 <= price.input <= 200 and price.output <= 1000 for price in prices.values())
    assert find_price("openai/gpt-4o-mini-2024-07-18") == Price(0.15, 0.6)
    assert find_price("claude-3-5-sonnet-20241022") == Price(3, 15, cache_read=0.1)


def test_a_refused_call_is_not_made() -> None:
    inner = ScriptedChatModel(["never"])
    model = BudgetedChatModel(inner, Budget(max_tokens=5))

    with pytest.raises(BudgetExceeded):
        run(model.complete(make_prompt(), max_output_tokens=9))
    assert inner.calls == []
    assert model.usage == Usage()
