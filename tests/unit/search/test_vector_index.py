"""Search: the ranks of a naive search, whatever the batch; filters before the best are chosen."""

from __future__ import annotations

import math
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import SemanticConfigError, SemanticIndexError, SemanticQueryError
from agent.search.precomputed import (
    SemanticRetriever,
    SemanticSettings,
    VectorIndex,
    VectorMeta,
    load_vectors,
    make_settings,
)

# Small whole numbers: cosines of different vectors are equal, or far apart.
NUMBERS = st.integers(-3, 3)
TAGS = st.frozensets(st.sampled_from("xyz"))


def make_index(rows: list[list[int]], tags: list[frozenset[str]] | None = None) -> VectorIndex:
    metas = {i: VectorMeta(tags=tuple(sorted(own))) for i, own in enumerate(tags or []) if own}
    ids = tuple(f"v{i:02}" for i in range(len(rows)))
    return VectorIndex(ids, np.array(rows, dtype=np.float32), MappingProxyType(metas))


def cosine(one: list[int], other: list[int]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[list[int]], list[frozenset[str]], list[list[int]]]:
    size = draw(st.integers(1, 4))
    vectors = st.lists(NUMBERS, min_size=size, max_size=size)
    rows = draw(st.lists(vectors, min_size=1, max_size=12))
    tags = draw(st.lists(TAGS, min_size=len(rows), max_size=len(rows)))
    return rows, tags, draw(st.lists(vectors, min_size=1, max_size=4))


@given(worlds(), st.integers(1, 15), st.sampled_from([-1.0, -0.3, 0.0, 0.01, 0.6]), TAGS)
def test_ranks_are_those_of_a_naive_search(
    world: tuple[list[list[int]], list[frozenset[str]], list[list[int]]],
    top_k: int,
    at_least: float,
    wanted: frozenset[str],
) -> None:
    rows, tags, queries = world
    found = make_index(rows, tags).search(queries, top_k, at_least=at_least, tags=wanted)
    for query, results in zip(queries, found, strict=True):
        naive = [
            (round(cosine(query, row), 12), f"v{i:02}")
            for i, row in enumerate(rows)
            if wanted <= tags[i]
        ]
        naive = [(score, name) for score, name in naive if score >= at_least]
        best = sorted(naive, key=lambda pair: (-pair[0], pair[1]))[:top_k]
        assert [r.id for r in results] == [name for _, name in best]
        assert [r.score for r in results] == pytest.approx([score for score, _ in best], abs=1e-11)
        assert all(-1.0 <= r.score <= 1.0 for r in results)


def test_tags_are_applied_before_the_best_are_chosen() -> None:
    tags = [frozenset("x")] * 9 + [frozenset("xy")]
    index = make_index([[1, 0]] * 9 + [[-1, 1]], tags)
    (found,) = index.search([[1, 0]], 1, tags=["y"])
    assert [r.id for r in found] == ["v09"]
    assert index.search([[1, 0]], 1, tags=["nowhere"]) == ((),)


def test_a_zero_vector_scores_zero_on_either_side() -> None:
    index = make_index([[0, 0], [1, 0], [-1, 0]])
    assert [(r.id, r.score) for r in index.search([[1, 0]], 3)[0]] == [
        ("v01", 1.0),
        ("v00", 0.0),
        ("v02", -1.0),
    ]
    assert [r.score for r in index.search([[0, 0]], 3)[0]] == [0.0, 0.0, 0.0]


def test_huge_and_tiny_numbers_neither_overflow_nor_vanish() -> None:
    rows = np.array([[1e15, 1e15], [1e-20, 0.0]], dtype=np.float32)
    index = VectorIndex(("a", "b"), rows)
    found = index.search([[1e300, 0.0], [1e-20, 0.0]], 2)
    for results in found:
        assert [(r.id, round(r.score, 6)) for r in results] == [("b", 1.0), ("a", 0.707107)]


@pytest.mark.parametrize(
    "query",
    [[1.0, 2.0], [[1.0]], [[math.nan, 1.0]], [[math.inf, 1.0]], [["a", "b"]], [[1.0], [1.0, 2.0]]],
)
def test_a_query_that_cannot_be_compared_is_an_error(query: object) -> None:
    with pytest.raises(SemanticQueryError):
        make_index([[1, 0]]).search(query, 1)  # type: ignore[arg-type]


def make_retriever(*agents: SemanticSettings) -> SemanticRetriever:
    rows = np.array([[1, 0], [1, 1], [0, 1], [-1, 0]], dtype=np.float32)
    return SemanticRetriever(VectorIndex(("a", "b", "c", "d"), rows), agents)


def test_each_agent_gets_what_its_settings_say() -> None:
    retriever = make_retriever(
        make_settings(agent_name="few", top_k=1),
        make_settings(agent_name="alike", top_k=4, similarity_threshold=0.5),
        make_settings(agent_name="all", top_k=4, similarity_threshold=-1.0),
    )
    found = {n: [r.id for r in retriever.retrieve(n, [2, 0])] for n in ("few", "alike", "all")}
    assert found == {"few": ["a"], "alike": ["a", "b"], "all": ["a", "b", "c", "d"]}
    many = retriever.retrieve_batch("alike", [[2, 0], [0, 3]])
    assert [[r.id for r in one] for one in many] == [["a", "b"], ["c", "b"]]


def test_an_unknown_agent_and_a_bad_query_are_different_errors() -> None:
    retriever = make_retriever(make_settings(agent_name="x"))
    with pytest.raises(SemanticConfigError, match="no settings for the agent 'y'; known: x"):
        retriever.retrieve("y", [1, 0])
    with pytest.raises(SemanticQueryError, match="one dimension"):
        retriever.retrieve("x", [[1, 0]])
    with pytest.raises(SemanticQueryError, match="2 dimensions"):
        retriever.retrieve("x", [1, 0, 0])


@pytest.mark.parametrize(
    "values",
    [
        {"agent_name": ""},
        {"agent_name": "x", "top_k": 0},
        {"agent_name": "x", "top_k": "5"},
        {"agent_name": "x", "similarity_threshold": 1.01},
        {"agent_name": "x", "similarity_threshold": -1.01},
        {"agent_name": "x", "similarity_threshold": float("nan")},
        {"agent_name": "x", "filter_by_tags": "ab"},
        {"agent_name": "x", "typo": 1},
        {"agent_name": object()},
        {},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SemanticConfigError):
        make_settings(**values)


def test_one_agent_has_one_set_of_settings() -> None:
    with pytest.raises(SemanticConfigError, match="two settings"):
        make_retriever(make_settings(agent_name="x"), make_settings(agent_name="x", top_k=1))


def test_a_missing_folder_is_an_empty_index_unless_strict(tmp_path: Path) -> None:
    said: list[Any] = []
    index = load_vectors(tmp_path / "none", said.append)
    retriever = SemanticRetriever(index, [make_settings(agent_name="x")])
    assert (len(retriever), retriever.retrieve("x", [1, 0])) == (0, ())
    assert retriever.retrieve_batch("x", [[1, 0], [0, 1]]) == ((), ())
    assert [event.level for event in said] == ["warning"]
    assert "no such folder; the index is empty" in said[0].message
    (tmp_path / "empty").mkdir()
    assert len(load_vectors(tmp_path / "empty", said.append)) == 0
    assert len(said) == 2
    for name in ("none", "empty"):
        with pytest.raises(SemanticIndexError):
            load_vectors(tmp_path / name, said.append, strict=True)
