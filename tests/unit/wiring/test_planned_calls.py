from __future__ import annotations

from typing import Any

import pytest

from agent.llm import Budget, Price
from agent.settings import Settings
from agent.types import Problem
from agent.wiring.planned_calls import plan_in_words

PROBLEM = Problem("t", "b")


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({}, "usually 1 or 2 calls, never more than 46 calls, "),
        ({"locate": "never"}, "usually 1 or 2 calls, never more than 45 calls, "),
        ({"locate": "never", "tests": False}, "usually 1 or 2 calls, never more than 44 calls, "),
        ({"samples": 3}, "usually 3 or 4 calls, never more than 48 calls, "),
        ({"max_calls": 1}, "never more than 1 call, "),
    ],
)
def test_the_calls_of_a_run(settings: dict[str, Any], calls: str) -> None:
    budget = Budget(max_calls=settings.get("max_calls"))
    assert plan_in_words(Settings(**settings), PROBLEM, budget).startswith(calls)


def test_limits_of_tokens_and_dollars() -> None:
    budget = Budget(max_tokens=400_000, price=Price(2.0, 8.0))
    assert plan_in_words(Settings(), PROBLEM, budget).endswith(" calls, 400,000 tokens, $3.06")
    capped = Budget(max_tokens=400_000, max_cost=0.5, price=Price(2.0, 8.0))
    assert plan_in_words(Settings(), PROBLEM, capped).endswith("tokens, $0.50")
