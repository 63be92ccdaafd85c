"""Counting by lines gives the count of the whole text and counts no line twice."""

from __future__ import annotations

from pathlib import Path

import pytest

import agent.retrieval.context
from agent.retrieval.context.builder import PartCounter
from agent.shared.tokens import TiktokenCounter
from agent.types.protocols import TokenCounter
from tests.support.tokens import ApproximateCounter

SOURCES = sorted(Path(agent.retrieval.context.__file__).parent.glob("*.py"))
EDGES = ("", "\n", "\n\n\n", "a", "a\n", "a\n\n\n    b", "\n  \n\t\na):\n\n\n    # b\n", "é ⋮\n⋮\n")


class Recording(ApproximateCounter):
    def __init__(self) -> None:
        self.counted: list[str] = []

    def count(self, text: str) -> int:
        self.counted.append(text)
        return super().count(text)


@pytest.mark.parametrize("counter", [ApproximateCounter(), TiktokenCounter()], ids=["fake", "real"])
def test_is_exact_for_source_code(counter: TokenCounter) -> None:
    for text in (*EDGES, *(path.read_text("utf-8") for path in SOURCES)):
        assert PartCounter(counter).count(text) == counter.count(text)


def test_nothing_is_lost_and_nothing_counted_twice() -> None:
    counter = Recording()
    parts = PartCounter(counter)
    parts.count("a = 1\n\n\nb = 2\nb = 2\nend")
    parts.count("b = 2\nc\n")
    assert counter.counted == ["a = 1\n\n\n", "b = 2\n", "end", "c\n"]
