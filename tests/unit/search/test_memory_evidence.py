from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.retrieval.ranking import HybridRetriever, mention_evidence, preset
from agent.search import SearchPaths
from agent.search.history import Memory, MemoryEvidence
from agent.search.project import project_name
from agent.types import Problem, Ranking
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

FILES = {
    "shop/cart.py": "def add(item):\n    return item\n",
    "shop/invoice.py": "def write(order):\n    return order\n",
    "shop/stock.py": "def count(things):\n    return things\n",
    "shop/total.py": "def rounding_again(amounts):\n    return amounts\n",
}
SNAPSHOT = MemorySnapshot(FILES)
OLD = Problem("Rounding of the Swiss franc is wrong", "Cash amounts end in five centimes.")
NEW = Problem("Swiss franc: wrong rounding again", "Amounts in cash do not end in five centimes.")
DIFF = b"--- a/shop/stock.py\n+++ b/shop/stock.py\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.fixture
def places(tmp_path: Path) -> SearchPaths:
    return SearchPaths(tmp_path, tmp_path)


def memory_in(places: SearchPaths) -> Memory:
    return Memory(places.memory(project_name(SNAPSHOT)))


def rank(places: SearchPaths, problem: Problem) -> Ranking:
    retriever = HybridRetriever(
        preset("lexical"),
        embedder=None,
        index_path=None,
        reporter=ignore,
        sources=[mention_evidence, MemoryEvidence(places)],
    )
    return asyncio.run(retriever.rank(problem, SNAPSHOT))


def score(places: SearchPaths, problem: Problem) -> float:
    return next(f.score for f in rank(places, problem).files if f.path == "shop/stock.py")


def test_an_accepted_patch_raises_its_files_for_similar_issues_only(places: SearchPaths) -> None:
    before = score(places, NEW)
    memory_in(places).remember(OLD, DIFF, "0" * 40)
    assert score(places, NEW) > before + 0.5
    other = Problem("The page of prices is slow", "It takes a minute to load all pictures.")
    assert "memory" not in {r.feature for f in rank(places, other).files for r in f.reasons}


def test_a_rejected_patch_counts_no_more_until_it_is_accepted_again(places: SearchPaths) -> None:
    memory, plain = memory_in(places), rank(places, NEW)
    assert not memory.take_back(OLD, DIFF, "0" * 40)
    for _ in range(2):
        assert memory.remember(OLD, DIFF, "0" * 40)
        assert not memory.remember(OLD, DIFF, "0" * 40)
        assert memory.take_back(OLD, DIFF, "0" * 40)
        assert memory.entries() == ()
        assert rank(places, NEW) == plain
