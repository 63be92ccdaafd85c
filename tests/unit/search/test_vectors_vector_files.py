"""What is written can be loaded again; nothing is ever half there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import SemanticIndexError
from agent.search.precomputed import load_vectors, why_no_id, write_vector

IDS = st.text(min_size=1, max_size=12).filter(lambda text: why_no_id(text) is None)
NUMBERS = st.lists(st.floats(-1e10, 1e10, width=32), min_size=3, max_size=3)


@given(st.dictionaries(IDS, NUMBERS, min_size=1, max_size=5))
def test_what_is_written_is_what_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, vectors: dict[str, list[float]]
) -> None:
    folder = tmp_path_factory.mktemp("v")
    for name, numbers in vectors.items():
        write_vector(folder, name, numbers, tags=["t", name], metadata={"at": [name]})
    index = load_vectors(folder, lambda _: None)
    assert index.skipped == ()
    assert dict(zip(index.ids, index.vectors.tolist(), strict=True)) == vectors
    for row, name in enumerate(index.ids):
        assert index.metas[row].metadata == {"at": [name]}
        assert set(index.metas[row].tags) == {"t", name}


def test_a_vector_without_metadata_loses_that_of_its_predecessor(tmp_path: Path) -> None:
    write_vector(tmp_path, "a", [1.0], text="old")
    path = write_vector(tmp_path, "a", np.array([2.0]))
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "[2.0]\n"


@pytest.mark.parametrize("name", ["", ".a", "a/b", "../a", "a.meta", "a\n", "\ud800", "é" * 101])
def test_ids_that_are_no_names_of_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SemanticIndexError, match="choose another"):
        write_vector(tmp_path, name, [1.0])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("vector", "options"),
    [
        ([np.nan], {}),
        ([np.inf], {}),
        ([], {}),
        ([[1.0]], {}),
        (["x"], {}),
        ([1.0], {"metadata": {"x": object()}}),
        ([1.0], {"metadata": {"x": float("nan")}}),
        ([1.0], {"text": "x", "metadata": {"text_file": "y"}}),
        ([1.0], {"text": "x" * 4_000_001}),
    ],
)
def test_what_could_not_be_loaded_is_not_written(
    tmp_path: Path, vector: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(SemanticIndexError):
        write_vector(tmp_path, "a", vector, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SemanticIndexError, match="cannot be written"):
        write_vector(tmp_path / "file", "a", [1.0])
