"""The embedded store's file: whose it is, damage, versions, full disks, other processes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agent.errors import StoreMismatch, StoreUnreachable
from agent.search.stores import EVERYTHING
from agent.search.stores.embedded import EmbeddedStore
from agent.types.events import Event, Notice
from tests.support import store_processes
from tests.support.full_disk import full_at
from tests.support.stores import (
    DIMENSION,
    MODEL,
    Engine,
    engine_at,
    entry,
    ids_of,
    random_units,
    unit,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "vectors.db"


@pytest.fixture
def said() -> list[Event]:
    return []


def filled(path: Path, count: int = 300) -> None:
    with EmbeddedStore(path, lambda _: None) as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert(entry(f"e{n}", v) for n, v in enumerate(random_units(count, seed=1)))


def notices(said: list[Event]) -> list[str]:
    return [event.message for event in said if isinstance(event, Notice)]


# --------------------------------------------------------------------------------- whose file it is


def test_another_programs_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE entry (mine TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match="not a vector store"):
        EmbeddedStore(path, lambda _: None)
    assert path.read_bytes() == before


def test_damage_that_shows_while_it_is_in_use(path: Path, said: list[Event]) -> None:
    with EmbeddedStore(path, said.append) as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a")])
        with sqlite3.connect(path) as other:
            other.execute("UPDATE entry SET vector = x'00'")
        other.close()
        assert collection.search(unit(1), 5) == ()
        assert collection.upsert([entry("b")]) == 1
        assert ids_of(collection.search(unit(1), 5)) == ["b"]
    assert len(notices(said)) == 1


# ------------------------------------------------------------------------------------- what fails


def test_a_full_disk_keeps_a_whole_call_out(path: Path) -> None:
    with EmbeddedStore(path, lambda _: None) as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a", content="x" * 1000)])
        many = [entry(f"b{n}", content="y" * 5_000) for n in range(300)]
        with full_at(300_000), pytest.raises(StoreUnreachable, match="space"):
            collection.upsert(many)
        assert ids_of(collection.search(unit(1), 5)) == ["a"]
        assert collection.upsert(many) == 300
    with EmbeddedStore(path, lambda _: None) as store:
        assert store.collection("things", MODEL, DIMENSION).count() == 301


def test_a_place_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "vectors.db", tmp_path):
        with pytest.raises(StoreUnreachable, match="cannot be used"):
            EmbeddedStore(path, lambda _: None)


def test_a_dropped_collection_is_empty_for_who_has_it_open(path: Path) -> None:
    with EmbeddedStore(path, lambda _: None) as store, EmbeddedStore(path, lambda _: None) as other:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a")])
        collection.search(unit(1), 1)
        other.drop("things")
        assert collection.search(unit(1), 5) == ()
        assert collection.count() == 0
        assert collection.delete(EVERYTHING) == 0
        other.collection("things", "another", 4)
        assert collection.count() == 0
        with pytest.raises(StoreUnreachable):
            collection.upsert([entry("a")])


# --------------------------------------------------------------------------------- other processes


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return engine_at("sqlite", tmp_path)


def test_two_writing_processes_lose_nothing(engine: Engine) -> None:
    store_processes.two_writers_lose_nothing(engine)


def test_a_writing_process_that_is_killed(engine: Engine) -> None:
    store_processes.a_killed_writer_leaves_whole_batches(engine)
