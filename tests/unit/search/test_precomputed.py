"""The corpus `vectors`: a folder of another program's vectors in a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from agent.search import PoolResults, open_pool
from agent.search.precomputed import make_settings, write_vector
from tests.support.word_embedder import WordEmbedder

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]
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
        import numpy as np

        return np.tile(np.array([1.0, 0.0], np.float32), (len(texts), 1))


@pytest.fixture
def search(make_repository: MakeRepository, tmp_path: Path) -> Search:
    root = make_repository({"a.py": "x = 1\n"})
    for name, (vector, text) in VECTORS.items():
        write_vector(tmp_path / "v", name, vector, text=text, tags=[name[0]])

    def run(query: str, embedder: Any = None, corpora: str = "vectors", **more: Any) -> PoolResults:
        given = {"precomputed": tmp_path / "v", **more}
        places = {"cache": tmp_path / "c", "data": tmp_path / "d"}

        async def go() -> PoolResults:
            async with open_pool(
                root, corpora=corpora.split(","), embedder=embedder, **places, **given
            ) as pool:
                await pool.fill()
                return await pool.search(query)

        return asyncio.run(go())

    return run


def ids(found: PoolResults) -> list[str]:
    return [hit.passage.origin for hit in found.hits]


def test_vectors_find_what_has_other_words(search: Search) -> None:
    found = search("expired cookies", FixedEmbedder())
    assert ids(found) == ["near", "middle", "far"]
    assert [round(hit.similarity, 6) for hit in found.hits] == [1.0, 0.9, 0.5]
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


def test_an_agent_limits_the_corpus(search: Search) -> None:
    two = make_settings(agent_name="a", top_k=2)
    assert ids(search("expired cookies", FixedEmbedder(), agent=two)) == ["near", "middle"]
    close = make_settings(agent_name="a", similarity_threshold=0.7)
    assert ids(search("expired cookies", FixedEmbedder(), agent=close)) == ["near", "middle"]
    tagged = make_settings(agent_name="a", filter_by_tags=["f"])
    assert ids(search("expired cookies", FixedEmbedder(), agent=tagged)) == ["far"]


def test_a_missing_folder_leaves_out_only_its_own_results(search: Search, tmp_path: Path) -> None:
    found = search("x", corpora="code,vectors", precomputed=tmp_path / "nowhere")
    assert [hit.passage.corpus.value for hit in found.hits] == ["code"]
    assert any("[vectors] left out" in note and "no such" in note.lower() for note in found.notes)
    with pytest.raises(ConfigurationError, match="give --precomputed FOLDER"):
        search("x", precomputed=None)
