"""Stores beside the embedded one: who shares them, servers that are killed, old formats."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import StoreMismatch, StoreUnreachable
from agent.search.stores import open_store
from agent.types.events import Event
from tests.support import store_processes
from tests.support.full_disk import full_at
from tests.support.postgres import PostgresServer
from tests.support.stores import (
    DIMENSION,
    MODEL,
    Engine,
    engine_at,
    entry,
    ids_of,
    random_units,
    require,
    unit,
)

pytestmark = pytest.mark.slow


@pytest.fixture(params=["lancedb", "pgvector"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """An engine that several processes may use at a time."""
    if request.param == "pgvector":
        return server_engine(request.getfixturevalue("postgres"), tmp_path)
    return engine_at(request.param, tmp_path)


def server_engine(server: PostgresServer, folder: Path) -> Engine:
    return Engine("pgvector", server.new_database(), folder)


@pytest.fixture
def served(postgres: PostgresServer, tmp_path: Path) -> Engine:
    return server_engine(postgres, tmp_path)


# --------------------------------------------------------------------------------- other processes


def test_two_writing_processes_lose_nothing(shared: Engine) -> None:
    store_processes.two_writers_lose_nothing(shared)


def test_readers_beside_a_writing_process(shared: Engine) -> None:
    store_processes.readers_see_whole_batches(shared)


def test_a_writing_process_that_is_killed(shared: Engine) -> None:
    store_processes.a_killed_writer_leaves_whole_batches(shared)


def test_a_folder_of_qdrant_belongs_to_one_process(tmp_path: Path) -> None:
    engine = engine_at("qdrant-folder", tmp_path)
    with engine.open() as store:
        store.collection("things", MODEL, DIMENSION).upsert([entry("a")])
        with pytest.raises(StoreUnreachable, match=r"in use by another process.*share a server"):
            engine.open()
    with engine.open() as store:
        assert store.collection("things", MODEL, DIMENSION).count() == 1


# -------------------------------------------------------------------------------- a killed server


def test_a_killed_server_is_connected_to_again(postgres: PostgresServer, served: Engine) -> None:
    entries = [entry(f"e{n}", v) for n, v in enumerate(random_units(50, seed=1))]
    with served.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert(entries)
        postgres.kill()
        starting = threading.Timer(0.5, postgres.start)
        starting.start()
        assert collection.count() == 50
        starting.join()
        postgres.kill()
        postgres.start()
        assert collection.upsert([*entries, entry("new")]) == 1
        assert ids_of(collection.search(entries[3].vector[None], 1)[0]) == ["e3"]
    assert served.notices == []


def test_a_server_that_stays_away_is_said(
    postgres: PostgresServer,
    served: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent.search.stores.base.PAUSES", (0.05, 0.05))
    with served.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a")])
        postgres.kill()
        try:
            with pytest.raises(StoreUnreachable, match="start it, or check the address"):
                collection.search(unit(1)[None], 1)
            with pytest.raises(StoreUnreachable):
                served.open()
        finally:
            postgres.start()
        assert collection.count() == 1


def test_a_password_is_never_shown() -> None:
    require("psycopg")
    said: list[Event] = []
    url = "postgresql://me:hidden@127.0.0.1:1/db?connect_timeout=1"
    with pytest.raises(StoreUnreachable) as caught:
        open_store(url, said.append)
    assert "hidden" not in f"{caught.value}{said}"
    assert "postgresql://me@127.0.0.1:1/db" in str(caught.value)


# ------------------------------------------------------------------------------------- PostgreSQL


def ways(engine: Engine, query: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(engine.url, autocommit=True) as connection:
        return connection.execute(query).fetchall()


def execute(engine: Engine, *statements: str) -> None:
    import psycopg

    with psycopg.connect(engine.url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_schema_of_somebody_else_is_left_alone(served: Engine) -> None:
    execute(served, "CREATE SCHEMA patchshot", "CREATE TABLE patchshot.collection (mine TEXT)")
    with pytest.raises(StoreMismatch, match="not ours; name another database"):
        served.open()
    assert ways(served, "SELECT * FROM patchshot.collection") == []


def test_a_newer_schema_is_refused(served: Engine) -> None:
    with served.open():
        pass
    mark = "vectors of patchshot, version 2"
    execute(served, f"COMMENT ON SCHEMA patchshot IS '{mark}'")
    with pytest.raises(StoreMismatch, match=r"version 2.*name another database"):
        served.open()


def test_an_older_schema_is_refused_and_left_as_it_was(served: Engine) -> None:
    mark = "vectors of patchshot, version 0"
    execute(served, "CREATE EXTENSION vector", "CREATE SCHEMA patchshot")
    execute(served, f"COMMENT ON SCHEMA patchshot IS '{mark}'")
    with pytest.raises(StoreMismatch, match=r"version 0.*DROP SCHEMA patchshot CASCADE"):
        served.open()
    query = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"
    assert ways(served, query.replace("%s", "'patchshot'")) == [(mark,)]


# ---------------------------------------------------------------------------------------- LanceDB


def test_a_table_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    engine = engine_at("lancedb", tmp_path)
    import lancedb

    table = lancedb.connect(str(tmp_path / "lance")).create_table("things", [{"mine": 1}])
    with engine.open() as store:
        for action in (lambda: store.collection("things", MODEL, DIMENSION), _drop(store)):
            with pytest.raises(StoreMismatch, match="not ours; name another"):
                action()
        assert store.collections() == ()
    assert table.to_arrow().to_pylist() == [{"mine": 1}]


def _drop(store: Any) -> Any:
    return lambda: store.drop("things")


@pytest.mark.parametrize("version", [0, 2])
def test_tables_of_other_versions(tmp_path: Path, version: int) -> None:
    engine = engine_at("lancedb", tmp_path)
    import lancedb
    import pyarrow as pa

    names = ("id", "content", "project", "corpus", "path", "tags", "payload")
    fields = [pa.field(name, pa.string(), nullable=False) for name in names]
    fields.append(pa.field("vector", pa.list_(pa.float32(), DIMENSION), nullable=False))
    mark = json.dumps({"model": MODEL, "dimension": DIMENSION, "version": version})
    values = [[text] for text in ("old", "hash", "project", "code", "a.py", "", "p")]
    rows = [*values, [unit(1).tolist()]]
    schema = pa.schema(fields, metadata={"patchshot": mark})
    lancedb.connect(str(tmp_path / "lance")).create_table("things", pa.table(rows, schema=schema))
    with engine.open() as store:
        if version > 1:
            with pytest.raises(StoreMismatch, match=r"version 2.*upgrade patchshot"):
                store.collection("things", MODEL, DIMENSION)
            return
        assert store.collections()[0].version == 0
        with pytest.raises(StoreMismatch, match=r"version 0.*--drop things and index again"):
            store.collection("things", MODEL, DIMENSION)
        store.drop("things")
        assert store.collection("things", MODEL, DIMENSION).upsert([entry("new")]) == 1
        assert [(one.version, one.entries) for one in store.collections()] == [(1, 1)]


def test_a_full_disk_keeps_a_whole_call_out_of_a_table(tmp_path: Path) -> None:
    with engine_at("lancedb", tmp_path).open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a")])
        random = np.random.default_rng(1)
        many = [entry(f"b{n}", payload=random.bytes(5_000).hex()) for n in range(200)]
        with full_at(100_000), pytest.raises(StoreUnreachable, match="space on its disk"):
            collection.upsert(many)
        assert ids_of(collection.search(unit(1)[None], 5)[0]) == ["a"]
        assert collection.upsert(many) == 200


def test_a_table_that_is_written_often_stays_in_few_pieces(tmp_path: Path) -> None:
    engine = engine_at("lancedb", tmp_path)
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        for number in range(40):
            collection.upsert([entry(f"e{number}")])
        assert collection.count() == 40
        assert collection._table.stats()["fragment_stats"]["num_fragments"] < 33


# ----------------------------------------------------------------------------------------- Qdrant


@pytest.mark.parametrize("version", [0, 2])
def test_collections_of_other_versions(tmp_path: Path, version: int) -> None:
    engine = engine_at("qdrant-folder", tmp_path)
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(tmp_path / "qdrant"))
    mark = {"patchshot": {"model": MODEL, "dimension": DIMENSION, "version": version}}
    size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    client.create_collection("things", vectors_config=size, metadata=mark)
    payload = dict.fromkeys(("project", "corpus", "path"), "x")
    payload |= {"id": "old", "content": "hash", "payload": "p", "tags": [], "folders": ["x"]}
    point = models.PointStruct(
        id="00000000-0000-0000-0000-000000000001",
        vector=unit(1).tolist(),
        payload=payload | {"zero": False},
    )
    client.upsert("things", [point])
    client.close()
    with engine.open() as store:
        if version > 1:
            with pytest.raises(StoreMismatch, match=r"version 2.*upgrade patchshot"):
                store.collection("things", MODEL, DIMENSION)
            return
        assert [one.version for one in store.collections()] == [0]
        with pytest.raises(StoreMismatch, match=r"version 0.*--drop things and index again"):
            store.collection("things", MODEL, DIMENSION)
        store.drop("things")
        assert store.collection("things", MODEL, DIMENSION).upsert([entry("new")]) == 1
        assert [(one.version, one.entries) for one in store.collections()] == [(1, 1)]


def test_a_collection_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    engine = engine_at("qdrant-folder", tmp_path)
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(tmp_path / "qdrant"))
    size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    client.create_collection("things", vectors_config=size)
    client.close()
    with engine.open() as store:
        for action in (lambda: store.collection("things", MODEL, DIMENSION), _drop(store)):
            with pytest.raises(StoreMismatch, match="not ours; name another"):
                action()
        assert store.collections() == ()
