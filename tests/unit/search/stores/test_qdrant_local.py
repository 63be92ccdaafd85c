"""Qdrant in this process: what it is not made for is said once, in our words."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.search.stores.registry import open_store
from agent.types.events import Event, Notice
from tests.support.stores import require

LIMIT = 3
"""In place of the library's 20,000, which take half a minute to write."""


@pytest.fixture(autouse=True)
def _library() -> None:
    require("qdrant_client")


def texts(said: list[Event]) -> list[str]:
    return [event.message for event in said if isinstance(event, Notice)]


def test_a_store_in_memory_says_that_nothing_is_kept() -> None:
    said: list[Event] = []
    with open_store("qdrant://:memory:", said.append):
        pass

    assert texts(said) == [
        "vector store qdrant://:memory: is in memory: nothing is kept when the command ends"
    ]


def test_too_many_vectors_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qdrant_client import models
    from qdrant_client.local.local_collection import LocalCollection
    from qdrant_client.local.qdrant_local import QdrantLocal

    from agent.search.stores.qdrant.store import QdrantStore

    monkeypatch.setattr(LocalCollection, "LARGE_DATA_THRESHOLD", LIMIT)
    monkeypatch.setattr(QdrantLocal, "LARGE_DATA_THRESHOLD", LIMIT)
    url, said, again = f"qdrant://{tmp_path}/vectors", list[Event](), list[Event]()
    with open_store(url, said.append) as store:
        assert isinstance(store, QdrantStore)
        shape = models.VectorParams(size=2, distance=models.Distance.COSINE)
        store._client.call("create_collection", "c", vectors_config=shape)
        for number in range(LIMIT + 2):
            point = models.PointStruct(id=number, vector=[1.0, float(number)])
            store._client.call("upsert", "c", points=[point])
    with open_store(url, again.append):
        pass

    assert texts(said) == texts(again)
    (told,) = texts(said)
    assert "more than 20,000 vectors" in told
    assert "use sqlite:///FILE" in told


def test_a_store_without_a_place_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name a folder"):
        open_store("qdrant://", lambda _: None)
