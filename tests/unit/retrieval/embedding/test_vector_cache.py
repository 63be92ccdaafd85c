from __future__ import annotations

import sqlite3
import threading
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


def test_a_file_damaged_in_its_middle_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    keys = {vector_key("m", "document", str(i)): vector(i, 384) for i in range(300)}
    cache = VectorCache(path, [].append)
    cache.put(keys)
    cache.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    events: list[Event] = []
    damaged = VectorCache(path, events.append)
    assert damaged.get(list(keys)) == {}
    damaged.put({b"k": vector(1)})
    assert damaged.get([b"k"]).keys() == {b"k"}
    assert len(notices(events)) == 1


def test_another_programs_database_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE vectors (key BLOB, used INTEGER, vector BLOB)")
        foreign.execute("INSERT INTO vectors VALUES (?, 1, ?)", (b"k", b"\0" * 32))
    foreign.close()
    events: list[Event] = []
    assert VectorCache(path, events.append).get([b"k"]) == {}
    assert "belongs to another program or version" in notices(events)[0]
    aside = sqlite3.connect(tmp_path / "vectors.sqlite.bad")
    assert aside.execute("SELECT key FROM vectors").fetchall() == [(b"k",)]
    aside.close()


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


def test_the_size_is_capped_and_the_longest_unused_go_first(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    cap = 400_000
    for run in range(6):
        cache = VectorCache(path, [].append, max_bytes=cap, clock=lambda day=run: day * 86_400.0)
        cache.get([b"kept"])
        cache.put({b"kept": vector(0, 384)} if run == 0 else {})
        cache.put({f"{run}-{i}".encode(): vector(i, 384) for i in range(100)})
        cache.close()
        assert path.stat().st_size < cap * 1.6
    cache = VectorCache(path, [].append)
    newest = [f"5-{i}".encode() for i in range(100)]
    assert cache.get([b"kept", *newest]).keys() == {b"kept", *newest}
    assert cache.get([b"0-1", b"1-1"]) == {}


def test_a_full_disk_is_told_once_and_tolerated() -> None:
    events: list[Event] = []
    cache = VectorCache(Path("/dev/full/vectors.sqlite"), events.append)
    for _ in range(3):
        cache.put({b"k": vector(1)})
        assert cache.get([b"k"]) == {}
    assert len(notices(events)) == 1
    assert "going on without it" in notices(events)[0]


def test_a_write_that_fails_midway_is_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    events: list[Event] = []
    cache = VectorCache(path, events.append)
    cache.put({b"k": vector(1)})
    limit_pages(cache, 8)  # "database or disk is full"
    cache.put({str(i).encode(): vector(i, 384) for i in range(200)})
    assert cache.get([b"k"]) == {}
    assert "full" in notices(events)[0]
    assert VectorCache(path, [].append).get([b"k"]).keys() == {b"k"}


def test_use_from_several_threads_and_two_caches_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    events: list[Event] = []
    caches = [VectorCache(path, events.append) for _ in range(2)]

    def _work(number: int) -> None:
        for i in range(20):
            caches[number % 2].put({f"{number}-{i}".encode(): vector(i)})

    threads = [threading.Thread(target=_work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [f"{n}-{i}".encode() for n in range(4) for i in range(20)]
    assert caches[0].get(keys).keys() == set(keys)
    assert events == []
