from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agent.retrieval.ranking import HybridRetriever, mention_evidence, preset
from agent.search import SearchPaths
from agent.search.history import (
    Memory,
    MemoryEvidence,
    MemorySource,
)
from agent.search.passages import CorpusUnavailable, Label
from agent.search.project import project_name
from agent.types import Problem, Ranking
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

DIFF = (
    "diff --git a/shop/cart.py b/shop/cart.py\n--- a/shop/cart.py\n+++ b/shop/cart.py\n"
    "@@ -10,3 +10,3 @@ class Cart:\n     def total(self):\n-        return sum(self.prices[1:])\n"
    "+        return sum(self.prices)\n"
)
PROBLEM = Problem("Totals are wrong", "The first price is left out.")


def passages(memory: Memory) -> list[str]:
    found = MemorySource(memory).passages(MemorySnapshot({"a.py": ""}), threading.Event())
    return [passage.text for passage in found]


def test_an_accepted_patch_is_remembered_once(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "data" / "memory.jsonl")
    assert memory.remember(PROBLEM, DIFF.encode(), "c" * 40)
    assert not memory.remember(PROBLEM, DIFF.encode(), "d" * 40)
    (passage,) = MemorySource(memory).passages(MemorySnapshot({"a.py": ""}), threading.Event())
    assert (passage.corpus, passage.path, passage.title) == (
        Label.MEMORY,
        "shop/cart.py",
        "Totals are wrong",
    )
    assert passage.text == (
        "NAME: Totals are wrong\nTYPE: patch\nFILE: shop/cart.py\n"
        "DESCRIPTION: Totals are wrong\n\nThe first price is left out.\nshop/cart.py\nclass Cart:\n"
        "-        return sum(self.prices[1:])\n+        return sum(self.prices)"
    )
    assert memory.path.stat().st_mode & 0o077 == 0


def test_forgetting_is_whole(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory.jsonl")
    memory.remember(PROBLEM, DIFF.encode(), "c" * 40)
    assert memory.forget() == 1
    assert not memory.path.exists()
    with pytest.raises(CorpusUnavailable, match="--remember"):
        passages(memory)


def test_secrets_are_not_kept(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    memory = Memory(tmp_path / "memory.jsonl")
    diff = DIFF + f'+    token = "{key}"\n+++ b/.env\n@@ -0,0 +1 @@\n+PASSWORD=hunter22\n'
    memory.remember(Problem("Token", f"It is {key}."), diff.encode(), "c" * 40)
    kept = memory.path.read_text()
    assert key not in kept
    assert "hunter22" not in kept


def test_sizes_are_bounded(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory.jsonl")
    memory.remember(Problem("Long", "word " * 10_000), (DIFF + "+x\n" * 9_000).encode(), "c" * 40)
    assert memory.path.stat().st_size < 20_000


FILES = {
    "shop/cart.py": "def add(item):\n    return item\n",
    "shop/invoice.py": "def write(order):\n    return order\n",
    "shop/stock.py": "def count(things):\n    return things\n",
    "shop/total.py": "def rounding_again(amounts):\n    return amounts\n",
}
SNAPSHOT = MemorySnapshot(FILES)
OLD = Problem("Rounding of the Swiss franc is wrong", "Cash amounts end in five centimes.")
NEW = Problem("Swiss franc: wrong rounding again", "Amounts in cash do not end in five centimes.")
STOCK_DIFF = b"--- a/shop/stock.py\n+++ b/shop/stock.py\n@@ -1 +1 @@\n-a\n+b\n"


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
    memory_in(places).remember(OLD, STOCK_DIFF, "0" * 40)
    assert score(places, NEW) > before + 0.5
    other = Problem("The page of prices is slow", "It takes a minute to load all pictures.")
    assert "memory" not in {r.feature for f in rank(places, other).files for r in f.reasons}


def test_a_rejected_patch_counts_no_more_until_it_is_accepted_again(places: SearchPaths) -> None:
    memory, plain = memory_in(places), rank(places, NEW)
    assert not memory.take_back(OLD, STOCK_DIFF, "0" * 40)
    for _ in range(2):
        assert memory.remember(OLD, STOCK_DIFF, "0" * 40)
        assert not memory.remember(OLD, STOCK_DIFF, "0" * 40)
        assert memory.take_back(OLD, STOCK_DIFF, "0" * 40)
        assert memory.entries() == ()
        assert rank(places, NEW) == plain
