"""Support of the chosen code: constants, class attributes and overridden methods."""

from __future__ import annotations

import pytest

from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import pack
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.types import ContextBundle, Problem
from tests.support.chunks import make_ranking
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

FILLER = "".join(f"def filler_{n}():\n    return {n}\n\n\n" for n in range(40))
METHODS = "".join(f"    def method_{n}(self):\n        return {n}\n\n" for n in range(9))
ENTRIES = "".join(f'    "key{n}": "value{n}",\n' for n in range(30))
FILE = f'''\
"""Prices."""

import os

LIMIT = 3
UNUSED = 4
TABLE = {{
{ENTRIES}}}


{FILLER}class Base:
    def total(self):
        return self.rate


class Basket(Base):
    """A basket."""

    rate = 7
    other = 8
    currency: str
    country: str

{METHODS}    def total(self):
        return super().total() + LIMIT * self.rate + TABLE["key3"] + self.currency
'''


def packed(symbol: str, **options: float) -> ContextBundle:
    snapshot = MemorySnapshot({"a.py": FILE})
    chunker = TreeSitterChunker()
    chunks = chunker(snapshot.files["a.py"], FILE)
    (chosen,) = [chunk for chunk in chunks if chunk.symbol == symbol]
    return pack(
        Problem("wrong", ""),
        make_ranking([chosen]),
        snapshot,
        ApproximateCounter(),
        PackingOptions(budget=600, **options),
        chunker=chunker,
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("LIMIT = 3", True),
        ("    rate = 7", True),
        ("    currency: str", True),
        ("    country: str", False),
        ('    "key0": "value0",', True),  # a long table is begun
        ('    "key20": "value20",', False),
        ("        return self.rate", True),  # the method that is overridden
    ],
)
def test_what_the_code_uses_is_shown(line: str, expected: bool) -> None:
    text = packed("Basket.total", support_share=0.5).text
    assert (f"\n{line}\n" in text) is expected


def test_without_support_nothing_is_added() -> None:
    assert "LIMIT = 3" not in packed("Basket.total", support_share=0).text
