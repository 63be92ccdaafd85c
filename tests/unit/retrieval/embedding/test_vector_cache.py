from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from agent.retrieval.embedding import VectorCache, vector_key
from agent.types.events import Event, Notice


def vector(seed: int, dimension: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)


def notices(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


def limit_pages(cache: VectorCache, count: int) -> None:
    file = cache._records._file
    file.run(lambda database: database.execute(f"PRAGMA max_page_count = {count}"), None)


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


def test_round_trip_over_processes_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "vectors.sqlite"
    events: list[Event] = []
    vectors = {vector_key("m", "document", str(i)): vector(i, 384) for i in range(1200)}
    first = VectorCache(path, events.append)
    first.put(vectors)
    first.close()
    found = VectorCache(path, events.append).get([*vectors, b"x" * 32])
    assert found.keys() == vectors.keys()
    assert all(np.array_equal(found[key], vectors[key]) for key in vectors)
    assert all(value.dtype == np.float32 for value in found.values())
    assert events == []


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_a_damaged_file_is_rebuilt_with_a_notice(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vectors.sqlite"
    path.write_bytes(content)
    events: list[Event] = []
    cache = VectorCache(path, events.append)
    assert cache.get([b"k"]) == {}
    cache.put({b"k": vector(1)})
    assert np.array_equal(cache.get([b"k"])[b"k"], vector(1))
    assert len(notices(events)) == 1
    assert notices(events)[0].startswith(f"embedding cache {path} ")
    assert path.with_name("vectors.sqlite.bad").read_bytes() == content


def test_rows_that_cannot_be_vectors_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    cache = VectorCache(path, [].append)
    cache.put({b"good": vector(1)})
    cache.close()
    rows = [(b"odd", b"12345"), (b"empty", b""), (b"text", "abcd"), (b"nan", b"\xff" * 8)]
    with sqlite3.connect(path) as database:
        database.executemany("INSERT INTO record VALUES (?, 1, 4, ?)", rows)
    database.close()
    found = VectorCache(path, [].append).get([b"good", b"odd", b"empty", b"text", b"nan"])
    assert found.keys() == {b"good"}
