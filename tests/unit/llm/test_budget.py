"""`agent.llm.budget`: refused before the call, in figures; recorded after it."""

from __future__ import annotations

import asyncio

import pytest

from agent.errors import BudgetExceeded, ProviderUnreachable
from agent.llm.budget import Budget, BudgetedChatModel
from agent.llm.prices import Price
from agent.types import Completion, Usage
from tests.support.llm import make_prompt, run
from tests.support.scripted_model import ScriptedChatModel

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
            "PATCHSHOT_PRICE_INPUT and PATCHSHOT_PRICE_OUTPUT (US dollars per million tokens)",
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


def test_an_unknown_price_leaves_the_cost_unknown() -> None:
    model = BudgetedChatModel(ScriptedChatModel([reply(Usage(5, 5, None, 1))]), Budget())

    run(model.complete(make_prompt(), max_output_tokens=9))

    assert model.usage == Usage(5, 5, None, 1)


def test_a_refused_call_is_not_made() -> None:
    inner = ScriptedChatModel(["never"])
    model = BudgetedChatModel(inner, Budget(max_tokens=5))

    with pytest.raises(BudgetExceeded):
        run(model.complete(make_prompt(), max_output_tokens=9))
    assert inner.calls == []
    assert model.usage == Usage()


def test_a_failed_call_counts_as_a_call() -> None:
    inner = ScriptedChatModel([ProviderUnreachable("gone: wait"), "never"])
    model = BudgetedChatModel(inner, Budget(max_calls=1))

    with pytest.raises(ProviderUnreachable):
        run(model.complete(make_prompt(), max_output_tokens=9))
    assert model.usage == Usage(calls=1)
    with pytest.raises(BudgetExceeded):
        run(model.complete(make_prompt(), max_output_tokens=9))


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


def test_the_model_keeps_its_name() -> None:
    assert BudgetedChatModel(ScriptedChatModel([], model="x"), Budget()).model == "x"
