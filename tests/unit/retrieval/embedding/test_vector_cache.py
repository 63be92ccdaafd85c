from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from agent.retrieval.embedding import VectorCache, vector_key


def vector(seed: int, dimension: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)


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
    path = tmp_path / "vectors.sqlite"
    with closing(VectorCache(path, [].append)) as cache:
        cache.put({b"good": vector(1)})
    rows = [(b"odd", b"12345"), (b"empty", b""), (b"text", "abcd"), (b"nan", b"\xff" * 8)]
    with sqlite3.connect(path) as database:
        database.executemany("INSERT INTO record VALUES (?, 1, 4, ?)", rows)
    database.close()
    with closing(VectorCache(path, [].append)) as cache:
        assert cache.get([b"good", b"odd", b"empty", b"text", b"nan"]).keys() == {b"good"}
