"""Looking into a store says what it holds, and leaves no trace: neither file nor table."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import StoreMismatch, StoreUnreachable
from agent.stores.base import CollectionInfo
from agent.stores.looking import collections_at
from agent.stores.sqlite import SqliteStore
from tests.support.postgres import PostgresServer
from tests.support.stores import DIMENSION, MODEL, Engine, entry, unit


def look(url: str) -> tuple[CollectionInfo, ...] | None:
    return collections_at(url, lambda _: None)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_store_that_is_not_there_is_empty_and_is_not_made(engine: Engine) -> None:
    assert look(engine.url) == ()
    assert list(engine.folder.iterdir()) == []


def test_what_is_there_is_told_by_name_and_left_alone(engine: Engine) -> None:
    with engine.open() as store:
        store.collection("things", MODEL, DIMENSION).upsert([entry("a", unit(1.0))])
        store.collection("empty", "other", 3)
    before = files(engine.folder)
    held = look(engine.url)
    if engine.lasting and engine.shared:
        assert held == (
            CollectionInfo("empty", "other", 3, 0),
            CollectionInfo("things", MODEL, DIMENSION, 1),
        )
    else:
        assert held == (None if engine.lasting else ())
    assert files(engine.folder) == before


def test_a_file_is_looked_at_while_another_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with SqliteStore(path, lambda _: None) as store:
        store.collection("things", MODEL, DIMENSION).upsert([entry("a", unit(1.0))])
        (info,) = look(f"sqlite://{path}") or ()
        assert info.entries == 1
        store.collection("more", MODEL, DIMENSION)
        assert len(look(f"sqlite://{path}") or ()) == 2


@pytest.mark.parametrize("content", [b"mine", b"SQLite format 3\0" + b"?" * 200])
def test_what_is_not_ours_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises((StoreMismatch, StoreUnreachable)):
        look(f"sqlite://{path}")
    assert files(tmp_path) == {path: content}


def test_a_damaged_file_is_not_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with SqliteStore(path, lambda _: None) as store:
        store.collection("things", MODEL, DIMENSION)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"?" * (len(data) - 4096))
    before = files(tmp_path)
    with pytest.raises(StoreUnreachable, match="cannot be used"):
        look(f"sqlite://{path}")
    assert files(tmp_path) == before


@pytest.mark.parametrize("scheme", ["sqlite", "lancedb"])
def test_a_place_below_a_file_cannot_be_one(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnreachable):
        look(f"{scheme}://{tmp_path}/file/store")


@pytest.mark.parametrize("url", ["qdrant://127.0.0.1:1", "postgresql://127.0.0.1:1/d"])
def test_a_server_that_is_down_is_said(url: str) -> None:
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1"):
        look(url)


@pytest.mark.slow
def test_no_schema_is_made(postgres: PostgresServer) -> None:
    import psycopg

    url = postgres.new_database()
    assert look(url) == ()
    with psycopg.connect(url) as connection:
        query = "SELECT 1 FROM pg_namespace WHERE nspname = 'patchshot'"
        assert connection.execute(query).fetchone() is None
