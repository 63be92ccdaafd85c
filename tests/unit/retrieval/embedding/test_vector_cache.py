from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from agent.retrieval.embedding import ParallelEmbedder, open_vector_cache, vector_key
from tests.support.embedders import FakeBatchEmbedder


def test_keys_tell_embedder_kind_and_text_apart() -> None:
    keys = {
        vector_key("m", "query", "text"),
        vector_key("m", "document", "text"),
        vector_key("mquery", "document", "text"),
        vector_key("m2", "query", "text"),
        vector_key("m", "query", "text "),
        vector_key("m", "query", "\ud800"),
    }
    assert len(keys) == 6
    assert {len(key) for key in keys} == {32}


def test_rows_that_cannot_be_vectors_are_not_used(tmp_path: Path) -> None:
    model, rows = FakeBatchEmbedder(), {"odd": b"12345", "empty": b"", "nan": b"\xff" * 8}
    with closing(open_vector_cache(tmp_path / "vectors.sqlite", [].append)) as cache:
        cache.put((vector_key(model.name, "document", text), data) for text, data in rows.items())
        embedder = ParallelEmbedder(model, [].append, cache=cache)
        vectors = asyncio.run(embedder.embed(list(rows), kind="document"))
        asyncio.run(embedder.embed(list(rows), kind="document"))
    assert vectors.any(axis=1).all()
    assert sorted(text for call in model.calls for text in call) == sorted(rows)
