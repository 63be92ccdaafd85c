"""The list prices of `prices.toml`, found by the model's name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from agent.types import Usage

_MILLION = 1_000_000

# What may follow a known name: nothing, a variant ("-preview", ":beta"), or a date or build number
# of three digits and more. One or two digits are another version, digits with a letter a size.
_CONTINUES = re.compile(r"$|[:@]|[-_](?!\d{1,2}(?!\d))(?!\d+(?:x\d+)?[a-z])")


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million input and output tokens.

    `cache_read`, `cache_write`: shares of the input price for input from and to the prompt cache.
    """

    input: float
    output: float
    cache_read: float = 1.0
    cache_write: float = 1.25  # Anthropic's; other providers charge nothing extra for writing

    def of(self, usage: Usage) -> float:
        """The cost of `usage` in US dollars."""
        cached = usage.cache_read_tokens * (self.cache_read - 1.0)
        cached += usage.cache_write_tokens * (self.cache_write - 1.0)
        input_tokens = usage.input_tokens + cached
        return (input_tokens * self.input + usage.output_tokens * self.output) / _MILLION


def read_price(text: str) -> Price:
    """The price that the setting `prices` gives: "IN,OUT"."""
    given = [float(part) for part in text.split(",")]
    return Price(given[0], given[1])


def bundled_prices() -> Mapping[str, Price]:
    """The table of this package, by model name.

    The shares of the cache are those of the family: the first word of the name.
    """
    table = tomllib.loads(files("agent.llm").joinpath("prices.toml").read_text("utf-8"))
    prices = {}
    for name, entry in table["models"].items():
        cache = table["cache"].get(name.partition("-")[0])
        shares = (cache["read"], cache["write"]) if cache else ()
        prices[name] = Price(entry["input"], entry["output"], *shares)
    return prices


def find_price(model: str, prices: Mapping[str, Price] | None = None) -> Price | None:
    """The price of the longest name in `prices` (default: the bundled ones) that `model` continues.

    None when no name fits: an unknown version is never priced as its predecessor.
    """
    model = _normal(model)
    if model.endswith(":free"):
        return Price(0.0, 0.0)
    table = {_normal(name): price for name, price in (prices or bundled_prices()).items()}
    fitting = [
        name for name in table if model.startswith(name) and _CONTINUES.match(model, pos=len(name))
    ]
    return table[max(fitting, key=len)] if fitting else None


def _normal(model: str) -> str:
    return model.strip().lower().rpartition("/")[2].replace(".", "-")
