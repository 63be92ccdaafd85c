"""The corpus `vectors`: a folder of another program's vectors in a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import ConfigurationError, SemanticConfigError
from agent.search import Label, PoolResults
from agent.search.precomputed import SemanticContextRetriever, make_settings
from tests.support.corpora import pool_at
from tests.support.vectors import write_vector
from tests.support.word_embedder import WordEmbedder

Search = Callable[..., PoolResults]
VECTORS = {
    "near": ([1.0, 0.0], "crackers that went off"),
    "middle": ([0.8, 0.6], "a jar of glass"),
    "far": ([0.0, 1.0], "paint for a wall"),
    "silent": ([1.0, 0.0], None),
}


class FixedEmbedder(WordEmbedder):
    """Embeds every query as the first unit vector."""

    async def embed(self, texts: Any, *, kind: Any) -> Any:

        return np.tile(np.array([1.0, 0.0], np.float32), (len(texts), 1))


@pytest.fixture
def search(tmp_path: Path) -> Search:
    for name, (vector, text) in VECTORS.items():
        write_vector(tmp_path / "v", name, vector, text=text, tags=[name[0]])

    def run(
        query: str,
        embedder: Any = None,
        folder: Path | None = tmp_path / "v",
        labels: Sequence[Label] = (Label.VECTORS,),
    ) -> PoolResults:
        with pool_at(tmp_path, labels, embedder=embedder, precomputed=folder) as pool:
            return asyncio.run(pool.search(query))

    return run


def ids(found: PoolResults) -> list[str]:
    return [hit.passage.origin for hit in found.hits]


def test_vectors_find_what_has_other_words(search: Search) -> None:
    found = search("expired cookies", FixedEmbedder())
    assert ids(found) == ["near", "middle"]
    assert [round(hit.similarity, 6) for hit in found.hits] == [1.0, 0.8]
    assert found.hits[0].passage.place == "@ near"
    assert not found.notes


def test_without_their_model_they_are_searched_by_words(search: Search) -> None:
    found = search("a jar of glass")
    assert ids(found)[0] == "middle"
    (note,) = found.notes
    assert note.startswith("[vectors] searched by words alone: no embedder is configured")
    other = search("a jar of glass", WordEmbedder())
    assert ids(other)[0] == "middle"
    assert "embed the query with their model" in other.notes[0]


def test_a_missing_folder_leaves_out_only_its_own_results(search: Search, tmp_path: Path) -> None:
    both = (Label.DOCS, Label.VECTORS)
    found = search("expired cookies", folder=tmp_path / "nowhere", labels=both)
    assert {hit.passage.corpus for hit in found.hits} == {Label.DOCS}
    assert any("[vectors] left out" in note and "no such" in note.lower() for note in found.notes)
    with pytest.raises(ConfigurationError, match="give --precomputed FOLDER"):
        search("x", folder=None)


def test_a_folder_is_searched_by_settings_that_a_call_gives(tmp_path: Path) -> None:
    for name, (vector, text) in VECTORS.items():
        write_vector(tmp_path, name, vector, text=text, tags=[name[0]])
    retriever = SemanticContextRetriever(tmp_path, verbose=True)
    assert len(retriever) == 4
    config = make_settings(agent_name="reviewer", top_k=2, filter_by_tags=["m"])
    assert [r.chunk_id for r in retriever.retrieve([1.0, 0.0], config)] == ["middle"]
    results = retriever.retrieve([1.0, 0.0], top_k=3, threshold=0.7)
    assert [(r.chunk_id, round(r.score, 6)) for r in results] == [
        ("near", 1.0),
        ("silent", 1.0),
        ("middle", 0.8),
    ]
    assert results[2].embedding.tolist() == pytest.approx([0.8, 0.6])
    with pytest.raises(SemanticConfigError):
        retriever.retrieve([1.0, 0.0], top_k=0)
