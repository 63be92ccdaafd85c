from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent.retrieval.ranking.ranker import Ensemble, read_ranker
from agent.retrieval.ranking.signals import PIECE_NAMES
from agent.retrieval.weights import read_arrays
from tests.support.models import random_ensemble, random_ranker, rows_at_random
from training.writing import write_arrays, write_ranker

NAMES = ("score", "a", "b", "c")


def predicted(ensemble: Ensemble, row: NDArray[np.float32]) -> float:
    """The prediction by the definition: recursively, tree by tree."""

    def leaf(node: int) -> float:
        feature = int(ensemble.feature[node])
        if feature < 0:
            return float(ensemble.value[node])
        low = row[feature] <= ensemble.threshold[node]
        return leaf(node + (1 if low else int(ensemble.right[node])))

    return float(ensemble.slope) * float(row[0]) + sum(leaf(int(root)) for root in ensemble.roots)


@given(st.integers(0, 1000), st.integers(0, 5), st.integers(1, 6))
def test_scores_are_those_of_the_definition(seed: int, depth: int, trees: int) -> None:
    ensemble = random_ensemble(NAMES, seed, trees=trees, depth=depth)
    rows = rows_at_random(NAMES, 7, seed)
    wanted = [predicted(ensemble, row) for row in rows]
    np.testing.assert_allclose(ensemble.scores(rows), wanted, atol=1e-12)


def test_written_and_read_again_it_is_the_same() -> None:
    ranker = random_ranker()
    data = write_ranker(ranker)
    again = read_ranker(data)
    assert again is not None
    assert write_ranker(again) == data
    rows = rows_at_random(PIECE_NAMES, 5, 3)
    np.testing.assert_array_equal(ranker.pieces.scores(rows), again.pieces.scores(rows))


@given(st.data())
def test_a_damaged_file_is_the_same_or_none(data: st.DataObject) -> None:
    whole = write_arrays({"a": np.arange(20, dtype=np.int32), "b": np.array("text")})
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(1, 255))
    damaged = bytearray(whole)
    damaged[at] ^= byte
    found = read_arrays(bytes(damaged))
    if found is not None and found.keys() == {"a", "b"}:
        assert found["a"].tolist() == list(range(20))
    assert read_arrays(whole[:at]) is None
