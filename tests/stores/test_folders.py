"""Stores in folders beside the embedded one: who shares them, other programs, old formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import StoreMismatch, StoreUnreachable
from tests.support import store_processes
from tests.support.full_disk import full_at
from tests.support.stores import DIMENSION, MODEL, Engine, engine_at, entry, ids_of, unit

pytestmark = pytest.mark.slow


@pytest.fixture
def shared(tmp_path: Path) -> Engine:
    """An engine that several processes may use at a time."""
    return engine_at("lancedb", tmp_path)


# --------------------------------------------------------------------------------- other processes


def test_two_writing_processes_lose_nothing(shared: Engine) -> None:
    store_processes.two_writers_lose_nothing(shared)


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


# ------------------------------------------------------------------- collections of other programs


def plant(engine: Engine, mark: dict[str, Any] | None) -> None:
    """Make a collection "things" as another program, or another version of this one, does."""
    if engine.name == "lancedb":
        import lancedb
        import pyarrow as pa

        vector = pa.field("vector", pa.list_(pa.float32(), DIMENSION), nullable=False)
        schema = pa.schema([vector], metadata={"patchshot": json.dumps(mark)} if mark else {})
        rows = pa.table([[unit(1).tolist()]], schema=schema)
        lancedb.connect(str(engine.folder / "lance")).create_table("things", rows)
        return
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(engine.folder / "qdrant"))
    size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    metadata = {"patchshot": mark} if mark else None
    client.create_collection("things", vectors_config=size, metadata=metadata)
    client.close()


@pytest.fixture(params=["lancedb", "qdrant-folder"])
def marked(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """An engine that keeps the metadata of a collection beside it."""
    return engine_at(request.param, tmp_path)


def test_a_collection_of_somebody_else_is_left_alone(marked: Engine) -> None:
    plant(marked, None)
    for _ in range(2):
        with marked.open() as store:
            with pytest.raises(StoreMismatch, match="not ours; name another"):
                store.collection("things", MODEL, DIMENSION)
            with pytest.raises(StoreMismatch, match="not ours; name another"):
                store.drop("things")
            assert store.collections() == ()


@pytest.mark.parametrize("version", [1, 3])
def test_a_collection_of_another_version_is_made_again_by_hand(
    marked: Engine, version: int
) -> None:
    plant(marked, {"model": MODEL, "dimension": DIMENSION, "version": version})
    with marked.open() as store:
        with pytest.raises(StoreMismatch, match=rf"version {version}.*--drop things"):
            store.collection("things", MODEL, DIMENSION)
        store.drop("things")
        assert store.collection("things", MODEL, DIMENSION).upsert([entry("new")]) == 1
        assert [(one.version, one.entries) for one in store.collections()] == [(2, 1)]


# ---------------------------------------------------------------------------------------- LanceDB


def test_a_full_disk_keeps_a_whole_call_out_of_a_table(tmp_path: Path) -> None:
    with engine_at("lancedb", tmp_path).open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a")])
        random = np.random.default_rng(1)
        many = [entry(f"b{n}", content=random.bytes(5_000).hex()) for n in range(200)]
        with full_at(100_000), pytest.raises(StoreUnreachable, match="space on its disk"):
            collection.upsert(many)
        assert ids_of(collection.search(unit(1), 5)) == ["a"]
        assert collection.upsert(many) == 200
