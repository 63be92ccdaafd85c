"""What a repair needs, whether a context shows it, and a model that learns what holds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from agent.retrieval.context.confidence import WEIGHTS
from agent.types import ContextBundle, ContextPiece
from tests.support.fakes import MemorySnapshot
from training.completeness import BUDGETS, fit, main, needs_of, read_rows, share_shown, table_of

TEXT = "a = 1\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n"
PATCH = """\
diff --git a/pkg/m.py b/pkg/m.py
--- a/pkg/m.py
+++ b/pkg/m.py
@@ -5 +5 @@
-    return 1
+    return 3
@@ -6,0 +7 @@
+# new
diff --git a/tests/test_m.py b/tests/test_m.py
--- a/tests/test_m.py
+++ b/tests/test_m.py
@@ -1 +1 @@
-x = 1
+x = 2
"""


def bundle(*shown: tuple[int, int]) -> ContextBundle:
    piece = ContextPiece("pkg/m.py", 1, 9, "", "whole", 1, 1.0, shown=shown)
    return ContextBundle((piece,), "", 1, 10)


def test_removed_lines_and_a_neighbour_of_an_insertion_are_needed() -> None:
    snapshot = MemorySnapshot({"pkg/m.py": TEXT, "tests/test_m.py": "x = 1\n"})
    needs = needs_of(PATCH, snapshot)
    assert needs == (("pkg/m.py", (5,)), ("pkg/m.py", (5, 8)))
    assert share_shown(bundle((4, 5)), needs) == 1.0
    assert share_shown(bundle((8, 9)), needs) == 0.5
    assert share_shown(bundle((1, 1)), needs) == 0.0


def write_rows(path: Path) -> None:
    """Rows of which those with a clear first place are complete in any context."""
    dice = random.Random(3)
    lines = []
    for number in range(120):
        gap = dice.uniform(0, 8)
        chunks = [
            ["a.py", "f", "function", 1, 9, 100, gap if n == 0 else 0.0, {}] for n in range(60)
        ]
        share = 1.0 if gap > 4 else 0.5
        budgets = {str(b): {"share": share, "tokens": b} for b in BUDGETS}
        row = {"name": f"r{number}", "repo": f"p{number % 8}", "chunks": chunks, "budgets": budgets}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def test_what_decides_is_learnt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "rows.jsonl")
    names, table, truth = table_of(read_rows(tmp_path / "rows.jsonl"))
    assert set(names) == set(WEIGHTS)
    made = fit(names, table.reshape(-1, len(names)), truth.ravel())
    likely = made.probabilities(table)
    assert ((likely > 0.5) == (truth > 0.5)).mean() > 0.9
    assert main(["train", str(tmp_path / "rows.jsonl")]) == 0
    told = capsys.readouterr().out
    own, plain = next(line for line in told.splitlines() if line.startswith("| all")).split("|")[
        3:5
    ]
    assert float(own) < 0.1 < 0.2 < float(plain)
    assert "BIAS = " in told
