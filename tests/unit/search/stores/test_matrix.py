"""The index of a matrix in no store: what it finds, when it is built, what it does not trust."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.search.stores.sqlite import MatrixIndex, open_matrix_index
from agent.types.events import Event, Notice
from tests.support.stores import random_units, require

COUNT, DIMENSION = 600, 16


@pytest.fixture
def vectors() -> NDArray[np.float32]:
    require("faiss")
    rows = random_units(COUNT, seed=5, dimension=DIMENSION)
    rows[40:45] = 0.0
    return rows


def opened(folder: Path, vectors: NDArray[np.float32]) -> tuple[MatrixIndex | None, list[str]]:
    said: list[Event] = []
    lengths = np.linalg.norm(vectors, axis=1).astype(np.float64)
    index = open_matrix_index(folder, vectors, lengths, said.append, narrow=0)
    return index, [one.message for one in said if isinstance(one, Notice)]


def near(
    index: MatrixIndex | None,
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    top_k: int,
    chosen: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64] | None:
    assert index is not None
    every = np.ones(len(vectors), dtype=bool)
    unit = query.astype(np.float64)
    return index.near(
        unit, top_k, lambda rows: vectors[rows] @ unit, every if chosen is None else chosen
    )


def test_near_rows_hold_the_best_of_the_chosen(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    index, _ = opened(tmp_path / "a", vectors)
    odd = np.arange(COUNT) % 2 == 1
    hits = 0
    for query in random_units(20, seed=6, dimension=DIMENSION):
        for chosen in (np.ones(COUNT, dtype=bool), odd):
            best = np.flatnonzero(chosen)[np.argsort(-(vectors[chosen] @ query))[:5]]
            found = near(index, vectors, query, 5, chosen)
            assert found is not None
            assert chosen[found].all()
            hits += len(set(best) & set(found))
    assert hits >= 0.98 * 2 * 20 * 5


def test_what_lists_cannot_answer_is_left_to_a_comparison(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    index, _ = opened(tmp_path / "a", vectors)
    assert near(index, vectors, np.zeros(DIMENSION, np.float32), 5) is None
    assert near(index, vectors, vectors[0], COUNT) is None  # zero vectors are in no list
    assert near(index, vectors, vectors[0], 5, np.arange(COUNT) < 3) is None


def test_an_index_is_built_once_and_again_after_damage(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    folder = tmp_path / "all" / "a"
    assert opened(folder, vectors)[1] == [f"{COUNT} vectors are searched by an index (int8)"]
    assert opened(folder, vectors)[1] == []
    for pattern in ("shard-*", "lists-*", "index.json"):
        (file,) = folder.glob(pattern)
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        index, said = opened(folder, vectors)
        assert len(said) == 1
        found = near(index, vectors, vectors[3], 1)
        assert found is not None
        assert 3 in found


def test_a_manifest_of_other_rows_is_not_believed(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    index, _ = opened(tmp_path / "a", vectors)
    few = vectors[:300]
    found = near(index, few, few[9], 5)  # lists with rows that the matrix does not have
    assert found is None or found.max() < 300
    assert len(opened(tmp_path / "a", few)[1]) == 1


def test_an_index_of_another_content_goes_when_one_is_built(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    opened(tmp_path / "all" / "a", vectors)
    opened(tmp_path / "all" / "b", vectors[::-1])
    assert [one.name for one in (tmp_path / "all").iterdir()] == ["b"]


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, vectors: NDArray[np.float32]
) -> None:
    (tmp_path / "file").write_text("")
    index, (said,) = opened(tmp_path / "file" / "a", vectors)
    assert index is None
    assert "cannot be written" in said
