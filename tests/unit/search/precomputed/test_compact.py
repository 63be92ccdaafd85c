"""Vectors as int8: bounds that hold, and searches that give what the vectors themselves give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from agent.search.precomputed.compact import CompactVectors, compact
from agent.search.precomputed.index import VectorIndex, lengths_of

NUMBERS = st.floats(-(2.0**49), 2.0**49, width=32) | st.sampled_from([0.0, 1.0, -1.0, 2.0**-66])


def both(vectors: NDArray[np.float32]) -> tuple[VectorIndex, VectorIndex]:
    ids = tuple(f"v{number:05}" for number in range(len(vectors)))
    plain = VectorIndex(Path(), ids, vectors)
    return plain, replace(plain, compact=in_pieces(vectors))


def in_pieces(vectors: NDArray[np.float32], size: int = 7) -> CompactVectors:
    pieces = (vectors[first : first + size] for first in range(0, len(vectors), size))
    return compact(pieces, lengths_of(vectors), vectors.shape[1])


def found(index: VectorIndex, query: NDArray[np.float32], top_k: int) -> list[tuple[str, float]]:
    (results,) = index.search(query[None, :], top_k, at_least=-1.0)
    return [(result.id, result.score) for result in results]


@given(st.data())
def test_a_search_of_int8_gives_the_results_and_scores_of_an_exact_one(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 30), st.integers(1, 9)))
    plain, small = both(data.draw(arrays(np.float32, shape, elements=NUMBERS)))
    query = data.draw(arrays(np.float32, shape[1], elements=NUMBERS))
    top_k = data.draw(st.integers(1, 12))
    assert found(small, query, top_k) == found(plain, query, top_k)


@pytest.mark.parametrize("kind", ["even", "close", "one large component"])
def test_many_dimensions_keep_the_best(kind: str) -> None:
    random = np.random.default_rng(3)
    vectors = random.standard_normal((2_000, 384)).astype(np.float32)
    if kind == "close":
        vectors = vectors * np.float32(0.1) + random.standard_normal(384).astype(np.float32)
    elif kind == "one large component":
        vectors[:, 7] += 30.0
    plain, small = both(vectors)
    for query in random.standard_normal((20, 384)).astype(np.float32) * 0.5 + vectors[:20]:
        assert found(small, query, 10) == found(plain, query, 10)


def test_errors_of_cosines_are_within_their_bounds() -> None:
    random = np.random.default_rng(4)
    vectors = random.standard_normal((1_300, 96)).astype(np.float32)
    vectors[5] = 0.0
    units = random.standard_normal((3, 96))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    small = in_pieces(vectors, 500)
    safe = np.maximum(np.linalg.norm(vectors, axis=1), 1e-9)
    exact = units @ (vectors / safe[:, None]).astype(np.float64).T
    difference = np.abs(small.cosines(units, None) - exact)
    assert (difference <= small.errors + 1e-6).all()
    assert difference.max() < 0.01
    rows = np.array([5, 1_299, 0])
    assert np.allclose(small.cosines(units, rows), small.cosines(units, None)[:, rows], atol=1e-6)
    assert small.codes.nbytes == vectors.nbytes // 4
