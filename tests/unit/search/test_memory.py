from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.search.history import Memory, MemorySource
from agent.search.passages import CorpusUnavailable, Label
from agent.types import Problem
from tests.support.fakes import MemorySnapshot

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


def test_a_rejected_patch_is_no_entry_until_it_is_accepted_again(tmp_path: Path) -> None:
    memory, patch = Memory(tmp_path / "memory.jsonl"), (PROBLEM, DIFF.encode(), "0" * 40)
    assert not memory.take_back(*patch)
    for _ in range(2):
        assert memory.remember(*patch)
        assert not memory.remember(*patch)
        assert memory.take_back(*patch)
        assert memory.entries() == ()
