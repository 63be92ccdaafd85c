"""The map: names by file, likely files first, within a budget, and what is left out is said."""

from __future__ import annotations

import pytest

from agent.context.map import make_map
from agent.index.chunking import TreeSitterChunker
from agent.types import Ranking, Reason, ScoredChunk, ScoredFile
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

BASKET = """\
import os

RATES = {"north": 3}


class Basket:
    currency: str = "EUR"
    limit = 3

    def total(self):
        rest = 1
        return rest

    class Line:
        price = 0


def checkout(basket):
    local = basket
    return local
"""
WEB = "const LIMIT = 3;\nfunction send(x) {\n  return x;\n}\n"
MANY = "".join(f"def function_{n}():\n    return {n}\n\n\n" for n in range(200))
COUNTER = ApproximateCounter()


def ranked(snapshot: MemorySnapshot, *symbols: str) -> Ranking:
    """A ranking of all files in path order, and of these symbols."""
    chunker = TreeSitterChunker()
    chunks = [
        c for path, file in snapshot.files.items() for c in chunker(file, snapshot.text(path))
    ]
    by_name = {chunk.symbol: chunk for chunk in chunks}
    scored = tuple(ScoredChunk(by_name[s], 1.0, (Reason("lexical", 1.0),)) for s in symbols)
    return Ranking(scored, tuple(ScoredFile(path, 1.0) for path in snapshot.files), len(chunks))


def map_of(files: dict[str, str], budget: int = 1000, *symbols: str):
    snapshot = MemorySnapshot(files)
    return make_map(ranked(snapshot, *symbols), snapshot, COUNTER, TreeSitterChunker(), budget)


def test_a_line_has_names_functions_and_classes_with_attributes_and_methods():
    made = map_of({"shop/basket.py": BASKET})
    assert made.text == (
        "shop/basket.py: RATES, Basket(currency, limit, total, Line), Basket.Line(price), checkout"
    )
    assert (made.files, made.left_out, made.tokens) == (1, 0, COUNTER.count(made.text))


def test_declarations_of_other_languages_are_listed():
    assert map_of({"web/send.js": WEB}).text == "web/send.js: LIMIT, send"


@pytest.mark.parametrize("budget", [30, 60, 150, 400])
def test_the_budget_holds_and_what_is_left_out_is_counted(budget):
    made = map_of({"a.py": MANY, "b.py": BASKET, "c.py": MANY}, budget)
    assert made.tokens == COUNTER.count(made.text) <= budget
    assert made.names + made.left_out == 200 * 2 + 8
    first = made.text.split("\n")[0]
    assert first.startswith("a.py: function_0,") or budget == 30
    listed = first.count("function_")
    assert first.endswith(f"+{200 - listed} names")


def test_the_likelier_file_has_more_names_and_no_file_is_lost():
    made = map_of({"a.py": MANY, "b.py": MANY, "c.py": MANY}, 400)
    counts = [line.count("function_") for line in made.text.split("\n")]
    assert len(counts) == 3
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2] > 0


def test_what_ranks_high_is_listed_where_names_are_left_out():
    made = map_of({"a.py": MANY}, 40, "function_150", "function_7")
    assert "function_7, " in made.text
    assert "function_150" in made.text
    assert made.text.index("function_7,") < made.text.index("function_150")


def test_files_with_secrets_are_left_out():
    made = map_of({".env": "KEY=1\n", "a.py": "x = 1\n"})
    assert made.text == "a.py: x"


def test_the_map_of_no_files_is_empty():
    made = make_map(Ranking((), (), 0), MemorySnapshot({}), COUNTER, TreeSitterChunker(), 100)
    assert (made.text, made.tokens, made.files) == ("", 0, 0)
