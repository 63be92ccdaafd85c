"""The corpus `vectors`: a folder of another program's vectors in a pool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import ConfigurationError
from agent.search import Label, PoolResults
from agent.search.precomputed import import_vectors, imported_filter, load_vectors, read_payload
from agent.search.stores.embedded import EmbeddedStore
from agent.types.events import Event
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
        import numpy as np

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


def test_a_missing_folder_leaves_out_only_its_own_results(search: Search, tmp_path: Path) -> None:
    both = (Label.DOCS, Label.VECTORS)
    found = search("expired cookies", folder=tmp_path / "nowhere", labels=both)
    assert {hit.passage.corpus for hit in found.hits} == {Label.DOCS}
    assert any("[vectors] left out" in note and "no such" in note.lower() for note in found.notes)
    with pytest.raises(ConfigurationError, match="give --precomputed FOLDER"):
        search("x", folder=None)


def ignore(_: Event) -> None:
    """No one listens."""


def test_imported_vectors_are_found_by_direction_and_tag(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    write_vector(folder, "a", [3.0, 0.0], tags=["x"], text="A", metadata={"path": "p/a.py"})
    write_vector(folder, "b", [0.0, 2.0], tags=["x", "y"])
    write_vector(folder, "c", [0.0, 0.0])
    index = load_vectors(folder, ignore)
    with EmbeddedStore(tmp_path / "store.db", ignore) as store:
        collection = store.collection("memory", "their-model", index.dimension)
        assert import_vectors(index, collection, ignore) == 2
        assert import_vectors(index, collection, ignore) == 0
        query = np.array([[1.0, 0.0]], dtype=np.float32)
        (found,) = collection.search(query, 3)
        assert [(match.id, match.fields.path) for match in found] == [
            ("precomputed/a", "p/a.py"),
            ("precomputed/b", ""),
        ]
        assert found[0].score == pytest.approx(1.0)
        assert read_payload(found[0]) == ("a", "A", {"path": "p/a.py"})
        (tagged,) = collection.search(query, 3, imported_filter(["y"]))
        assert [match.id for match in tagged] == ["precomputed/b"]


def imported(folder: Path) -> tuple[dict[str, Any], int]:
    """The payload of the one vector, and how many entries were written."""
    with EmbeddedStore(folder.parent / "store.db", ignore) as store:
        index = load_vectors(folder, ignore)
        collection = store.collection("c", "m", index.dimension)
        written = import_vectors(index, collection, ignore)
        (match,) = collection.search(index.vectors, 1)[0]
        assert len(match.payload) <= 64 * 1024
        return json.loads(match.payload), written


def test_a_changed_vector_or_text_is_written_again(tmp_path: Path) -> None:
    for vector, text in (([1.0, 0.0], "A"), ([1.0, 0.5], "A"), ([1.0, 0.5], "B")):
        write_vector(tmp_path / "v", "a", vector, text=text)
        assert [imported(tmp_path / "v")[1] for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 20_000, '"' * 60_000])
def test_long_texts_are_cut_to_what_a_store_takes(tmp_path: Path, text: str) -> None:
    write_vector(tmp_path / "v", "a", [1.0], text=text, metadata={"k": "v" * 1000})
    payload, _ = imported(tmp_path / "v")
    assert payload["text"].endswith("... [cut]")
    assert payload["metadata"] == {"k": "v" * 1000}


def test_metadata_that_alone_is_too_large_is_left_out(tmp_path: Path) -> None:
    write_vector(tmp_path / "v", "a", [1.0], text="T", metadata={"k": "v" * 70_000})
    assert imported(tmp_path / "v")[0] == {"id": "a", "text": "T", "metadata": {}}
