"""The benchmark of the embedded store, at a size of seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.code_vectors import code_vectors
from benchmarks.vectors import HEAD, LIMITS, Figures, line, make, measure, missed
from tests.support.histories import git

FIGURES = Figures(
    size=1_000_000,
    dimension=384,
    data="clustered",
    way="int8 lists",
    filled_s=1.0,
    built_s=2.0,
    recall=0.96,
    query_ms=4.0,
    slowest_ms=5.0,
    cpu_ms=3.0,
    numpy_ms=50.0,
    quarter_recall=0.95,
    quarter_ms=6.0,
    index_mb=400.0,
    memory_share=0.26,
    file_mb=900.0,
    peak_mb=2_000.0,
    load=0.5,
)


def test_a_small_store_is_measured_against_numpy(tmp_path: Path) -> None:
    figures = measure(tmp_path, "clustered", *make(400, even=False))
    assert (figures.size, figures.dimension, figures.way) == (400, 384, "exact")
    assert figures.recall > 0.99 < figures.quarter_recall + 0.05
    assert line(figures).count("|") == HEAD.splitlines()[0].count("|")


def test_what_misses_a_limit_is_named() -> None:
    assert missed([FIGURES]) == []
    slow = replace(FIGURES, query_ms=LIMITS["query, ms"] + 1, recall=0.9, memory_share=0.31)
    assert len(missed([slow])) == 3
    assert missed([replace(slow, data="even")]) == []


def test_vectors_of_code_are_distinct_units_and_messages_are_the_questions(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    source = (
        "def parse_url(text):\n    return text.split('/')\n\n\ndef add(a, b):\n    return a + b\n"
    )
    for name in ("one.py", "copy.py"):
        (tmp_path / name).write_text(source)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "Fix how the parser splits a URL with a query")
    (tmp_path / "two.py").write_text("def subtract(a, b):\n    return a - b\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "Fix typo")
    vectors, queries = code_vectors([tmp_path], 10)
    assert len(vectors) == 3
    assert len(queries) == 1
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
