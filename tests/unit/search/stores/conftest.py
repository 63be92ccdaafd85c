from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.search.stores import VectorCollection, VectorStore
from tests.support.qdrant_server import QdrantServer
from tests.support.stores import DIMENSION, MODEL, Engine, engine_at

ENGINES = [
    "sqlite",
    "lancedb",
    "qdrant-memory",
    pytest.param("qdrant-folder", marks=pytest.mark.slow),  # a file is synced for every point
    pytest.param("qdrant-url", marks=pytest.mark.slow),
]


@pytest.fixture(scope="session")
def qdrant() -> Iterator[QdrantServer]:
    with QdrantServer() as server:
        yield server


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    if request.param == "qdrant-url":
        server: QdrantServer = request.getfixturevalue("qdrant")
        return Engine("qdrant-url", server.new_url(), tmp_path)
    return engine_at(request.param, tmp_path)


@pytest.fixture
def store(engine: Engine) -> Iterator[VectorStore]:
    with engine.open() as opened:
        yield opened


@pytest.fixture
def collection(store: VectorStore) -> VectorCollection:
    return store.collection("things", MODEL, DIMENSION)
