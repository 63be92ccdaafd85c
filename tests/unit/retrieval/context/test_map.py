"""The map: names by file, likely files first, within a budget, and what is left out is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.retrieval.context.map import make_map
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.types import Problem, Ranking, Reason, ScoredChunk, ScoredFile
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

BASKET = """\
import os

RATES = {"north": 3}


class Basket:
    currency: str = "EUR"
    limit = 3

    def __init__(self, owner=None):
        self.owner = owner

    def total(self):
        rest = 1
        return rest

    class Line:
        price = 0


def checkout(basket: Basket, *, rate: dict[str, int] = {"a": 1}):
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
    return made_of(snapshot, ranked(snapshot, *symbols), budget)


def made_of(snapshot: MemorySnapshot, ranking: Ranking, budget: int = 1000, issue: str = "Fix it"):
    problem = Problem(issue, "")
    return make_map(problem, ranking, snapshot, COUNTER, TreeSitterChunker(), budget)


def test_a_line_has_names_functions_and_classes_with_attributes_and_methods():
    made = map_of({"shop/basket.py": BASKET})
    assert made.text == (
        "shop/basket.py: RATES, Basket[currency, limit, owner, total, Line], "
        "Basket.Line[price], checkout"
    )
    assert (made.files, made.left_out, made.tokens) == (1, 0, COUNTER.count(made.text))


def test_declarations_of_other_languages_are_listed():
    assert map_of({"web/send.js": WEB}).text == "web/send.js: LIMIT, send"


def test_exports_and_functions_inside_functions_are_listed():
    rule = (
        "module.exports = {\n  create(context) {\n    function fix(a) {\n      return a;\n    }\n"
        "    return fix;\n  },\n};\n"
    )
    assert map_of({"lib/rule.js": rule}).text == (
        "lib/rule.js: module.exports, create, create > fix"
    )


@pytest.mark.parametrize("budget", [10, 30, 60, 150, 400])
def test_the_budget_holds_and_what_is_left_out_is_counted(budget):
    made = map_of({"a.py": MANY, "b.py": BASKET, "c.py": MANY}, budget)
    assert made.tokens == COUNTER.count(made.text) <= budget
    assert made.names + made.left_out == 200 * 2 + 9
    if made.names:
        first = made.text.split("\n")[0]
        listed = first.count("function_")
        assert first.startswith("a.py: function_0")
        assert first.endswith(f"+{200 - listed} names")
    named = {line.split(":")[0] for line in made.text.split("\n")}
    assert made.files == len(named & {"a.py", "b.py", "c.py"})


def test_files_without_room_for_names_are_listed_by_folder_or_counted():
    files = {f"pkg/part_{n:02}.py": MANY for n in range(90)}
    made = map_of(files, 300)
    lines = made.text.split("\n")
    others = lines[made.files].removeprefix("pkg/: ").split(", ")
    assert others[0] == f"part_{made.files:02}.py"
    assert lines[-1] == f"+{90 - made.files - len(others)} files"


def test_files_of_other_languages_are_left_out_unless_the_issue_names_them():
    files = {"a.py": "x = 1\n", "b.css": "a { }\n", "c.css": "a { }\n", "Makefile": "all:\n"}
    snapshot = MemorySnapshot(files)
    ranking = ranked(snapshot)
    best = replace(ranking, files=tuple(sorted(ranking.files, key=lambda f: f.path != "a.py")))
    made = made_of(snapshot, best, issue="c.css is wrong")
    assert made.text == "a.py: x\n./: c.css"


def test_a_readme_that_ranks_first_does_not_hide_the_code():
    made = map_of({"README.md": "# Send\n", "index.js": WEB})
    assert made.text == "index.js: LIMIT, send"


def test_files_with_secrets_are_left_out():
    made = map_of({".env": "KEY=1\n", "a.py": "x = 1\n"})
    assert made.text == "a.py: x"
