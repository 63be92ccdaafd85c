"""Qdrant by URL, over real HTTP: keys, crashes and broken servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError, StoreError, StoreUnreachable
from agent.search.stores import EntryFilter, open_store
from agent.types.events import Event
from tests.support.loopback import Scripted
from tests.support.qdrant_server import QdrantServer
from tests.support.stores import DIMENSION, MODEL, Engine, entry, ids_of, unit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[QdrantServer]:
    with QdrantServer() as running:
        yield running


@pytest.fixture
def engine(server: QdrantServer, tmp_path: Path) -> Engine:
    return Engine("qdrant-url", server.new_url(), tmp_path)


def plain_client(url: str) -> Any:
    from qdrant_client import QdrantClient

    return QdrantClient(url=url.replace("qdrant:", "http:"), check_compatibility=False)


# ---------------------------------------------------------------------------------------- the key


def test_every_request_carries_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Event] = []
    with QdrantServer(key="s3cret") as server:
        place = server.address
        with open_store(f"qdrant://:s3cret@{place}", said.append) as store:
            collection = store.collection("things", MODEL, DIMENSION)
            assert collection.upsert([entry("a"), entry("b", unit(0, 1))]) == 2
            assert ids_of(collection.search(unit(1), 1)) == ["a"]
            assert collection.contents({"b"}) == {"b": "hash of b"}
            assert collection.delete(EntryFilter(corpus="none")) == 0
            assert [one.entries for one in store.collections()] == [2]
            store.drop("things")
            assert store.collections() == ()
        for wrong in (f"qdrant://:other@{place}", f"qdrant://{place}"):
            with pytest.raises(StoreUnreachable, match="its key"):
                open_store(wrong, said.append)
        monkeypatch.setenv("QDRANT_API_KEY", " s3cret\n")
        with open_store(f"qdrant://{place}", said.append) as store:
            assert store.collections() == ()
    assert "goes unencrypted" in str(said)
    assert "s3cret" not in repr(said)


@pytest.mark.parametrize("key", ["s3cret\nother", "schlüssel-s3cret"])
def test_a_key_that_no_header_can_carry_is_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", key)
    with pytest.raises(ConfigurationError, match="the key is not valid") as caught:
        open_store("qdrant://127.0.0.1:1", lambda _: None)
    assert "s3cret" not in str(caught.value)


# --------------------------------------------------------------------------------- broken servers


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Scripted('{"status": {"error": "oops"}}', 500), "oops"),
        (Scripted("busy", 503), "busy"),
        (Scripted("<html>Welcome"), ""),
        (Scripted('{"result": [1]}'), ""),
        (Scripted(status=301, headers={"Location": "https://x"}), ""),
        (Scripted(fault="drop"), ""),
    ],
)
def test_broken_answers_are_one_line(
    server: QdrantServer, engine: Engine, fault: Scripted, reason: str
) -> None:
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        server.faults.append(fault)
        with pytest.raises(StoreUnreachable, match=f"cannot be used .*{reason}") as caught:
            collection.count()
        assert "\n" not in str(caught.value)
        server.faults.append(fault)
        with pytest.raises(StoreUnreachable):
            engine.open()
        assert collection.count() == 0


# ------------------------------------------------------------------------------- what is not ours


def test_a_server_that_is_too_old_is_left_as_it_was(tmp_path: Path) -> None:
    with QdrantServer(keeps_metadata=False) as server:
        engine = Engine("qdrant-url", server.new_url(), tmp_path)
        old = pytest.raises(StoreError, match=r"too old.*1\.16")
        with engine.open() as store, old:
            store.collection("things", MODEL, DIMENSION)
        client = plain_client(engine.url)
        assert client.get_collections().collections == []
        client.close()
