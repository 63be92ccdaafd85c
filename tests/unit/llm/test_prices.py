"""`agent.llm.prices`: a model's price by its name, never another model's."""

from __future__ import annotations

import pytest

from agent.llm import Price, find_price
from agent.llm.prices import bundled_prices

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


def test_every_bundled_name_finds_its_own_price() -> None:
    assert all(find_price(name) == price for name, price in bundled_prices().items())
