"""Qdrant by URL, over real HTTP: keys, crashes, slow and broken servers, several writers.

The server is `tests.support.qdrant_http`, a process that speaks Qdrant's REST interface.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import ConfigurationError, StoreError, StoreMismatch, StoreUnreachable
from agent.search.stores.base import EntryFilter
from agent.search.stores.registry import open_store
from agent.types.events import Event, Notice
from tests.support import store_processes
from tests.support.agent_process import run_agent
from tests.support.qdrant_http import Fault
from tests.support.qdrant_server import QdrantServer, qdrant_server
from tests.support.store_writer import lines, start
from tests.support.stores import DIMENSION, MODEL, Engine, entry, ids_of, random_units, unit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[QdrantServer]:
    with qdrant_server() as running:
        yield running


@pytest.fixture
def engine(server: QdrantServer, tmp_path: Path) -> Engine:
    return Engine("qdrant-url", server.new_url(), tmp_path)


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[QdrantServer]:
    """A server that finds its data again when it is killed and started again."""
    with qdrant_server(tmp_path / "data") as running:
        yield running


@contextmanager
def reviving(server: QdrantServer) -> Iterator[None]:
    """Started again half a second after it has ended by itself, which it must within the block."""

    def revive() -> None:
        server.wait()
        time.sleep(0.5)
        server.start()

    thread = threading.Thread(target=revive)
    thread.start()
    yield
    thread.join()


def plain_client(url: str) -> Any:
    from qdrant_client import QdrantClient

    return QdrantClient(url=url.replace("qdrant:", "http:"), check_compatibility=False)


# ---------------------------------------------------------------------------------------- the key


def test_every_request_carries_the_key(tmp_path: Path) -> None:
    said: list[Event] = []
    with qdrant_server(key="s3cret") as server:
        place = f"127.0.0.1:{server.port}"
        with open_store(f"qdrant://:s3cret@{place}", said.append) as store:
            collection = store.collection("things", MODEL, DIMENSION)
            assert collection.upsert([entry("a"), entry("b", unit(0, 1))]) == 2
            assert ids_of(collection.search(unit(1)[None], 1)[0]) == ["a"]
            assert collection.contents({"b"}) == {"b": "hash of b"}
            assert collection.delete(EntryFilter(ids=frozenset({"b"}))) == 1
            assert [one.entries for one in store.collections()] == [1]
            store.drop("things")
            assert store.collections() == ()
        for wrong in (f"qdrant://:other@{place}", f"qdrant://{place}"):
            with pytest.raises(StoreUnreachable, match="refused the key"):
                open_store(wrong, said.append)
        with open_store(f"qdrant://{place}", said.append, api_key=" s3cret\n") as store:
            assert store.collections() == ()
    assert "s3cret" not in repr(said)


@pytest.mark.parametrize("key", ["s3cret\nother", "schlüssel-s3cret"])
def test_a_key_that_no_header_can_carry_is_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="no header can carry") as caught:
        open_store("qdrant://127.0.0.1:1", lambda _: None, api_key=key)
    assert "s3cret" not in str(caught.value)


# ------------------------------------------------------------------------------------- kill -9


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "route",
    [
        "PUT /1/collections/things",
        "/index",
        "PUT /1/collections/things/points",
        "/points/query",
        "/points/delete",
    ],
    ids=["create", "index", "upsert", "query", "delete"],
)
def test_a_server_that_is_killed_in_the_middle_of_a_request(
    lasting: QdrantServer, tmp_path: Path, route: str, moment: str
) -> None:
    entries = [entry(f"e{n:02}", v) for n, v in enumerate(random_units(20, seed=1))]
    engine = Engine("qdrant-url", lasting.new_url(), tmp_path)
    lasting.fail(Fault(route=route, kill=moment))
    with engine.open() as store, reviving(lasting):
        collection = store.collection("things", MODEL, DIMENSION)
        assert collection.upsert(entries) == 20
        assert ids_of(collection.search(entries[3].vector[None], 1)[0]) == ["e03"]
        assert collection.delete(EntryFilter(ids=frozenset({"e05"}))) == 1
        assert collection.upsert(entries) == 1
        assert collection.count() == 20
    assert engine.notices == []


def test_a_server_that_is_killed_while_a_process_writes(
    lasting: QdrantServer, tmp_path: Path
) -> None:
    engine = Engine("qdrant-url", lasting.new_url(), tmp_path)
    writer = start(engine.url, "w", batches=12, size=10)
    for told in (4, 4):
        lines(writer, told)
        lasting.kill()
        lasting.start()
    writer.communicate(timeout=100)
    assert writer.returncode == 0
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        assert collection.count() == 12 * 10 + 1
        assert len(collection.search(unit(1)[None], 500)[0]) == 12 * 10 + 1


def test_what_a_killed_creation_left_out_is_made_up(server: QdrantServer, engine: Engine) -> None:
    server.fail(Fault(route="/index", skip=2, status=500, body='{"status": {"error": "no"}}'))
    with engine.open() as store:
        with pytest.raises(StoreError, match="refused"):
            store.collection("things", MODEL, DIMENSION)
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a", tags=("t",))])
        chosen = EntryFilter("project", tags=frozenset({"t"}), under="src")
        assert ids_of(collection.search(unit(1)[None], 5, chosen)[0]) == ["a"]


def test_a_server_that_stays_away(
    lasting: QdrantServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.search.stores.qdrant.client._PAUSES", (0.05, 0.05))
    engine = Engine("qdrant-url", lasting.new_url(), tmp_path)
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        lasting.kill()
        with pytest.raises(StoreUnreachable, match=r"cannot be reached.*start it"):
            collection.upsert([entry("a")])
        with open_store(engine.url, engine.said.append, tmp_path / "own.db") as other:
            assert other.url.startswith("sqlite://")
        lasting.start()
        assert collection.upsert([entry("a")]) == 1
    assert ["going on with the embedded store" in text for text in engine.notices] == [True]


# ------------------------------------------------------------------------- slow, busy and broken


def test_a_slow_server_is_waited_for_once(
    server: QdrantServer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.search.stores.qdrant.client._SECONDS", 1)
    monkeypatch.setattr("agent.search.stores.qdrant.client._PATIENCE", 0.9)
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        collection.upsert([entry("a")])
        server.fail(Fault(route="/query", delay=0.4))
        assert ids_of(collection.search(unit(1)[None], 1)[0]) == ["a"]
        server.fail(*[Fault(route="/query", delay=2.5)] * 9)
        query = f"POST /{engine.url.rpartition('/')[2]}/collections/things/points/query"
        asked = server.asked().count(query)
        started = time.monotonic()
        with pytest.raises(StoreUnreachable, match="timed out"):
            collection.search(unit(1)[None], 1)
        assert time.monotonic() - started < 2.4
        assert server.asked().count(query) == asked + 1
        server.fail()
        assert collection.count() == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, headers={"Retry-After": "1"}, body='{"status": {"error": "slower"}}'),
        Fault(status=429, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        Fault(status=429),
        Fault(status=408, body='{"status": {"error": "time"}}'),
        Fault(status=502, body="<html>Bad Gateway</html>", content_type="text/html"),
        Fault(status=503, body='{"status": "AlreadyInProgress"}'),
        Fault(status=504),
    ],
    ids=["429-seconds", "429-date", "429", "408", "502-html", "503", "504"],
)
def test_a_busy_server_is_asked_again(server: QdrantServer, engine: Engine, fault: Fault) -> None:
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        server.fail(fault, fault)
        started = time.monotonic()
        assert collection.upsert([entry("a")]) == 1
        assert time.monotonic() - started >= (2.0 if fault.headers.get("Retry-After") == "1" else 0)
        assert collection.count() == 1


def test_a_server_that_asks_for_a_long_rest_is_not_waited_for(
    server: QdrantServer, engine: Engine
) -> None:
    with engine.open() as store:
        server.fail(Fault(status=429, headers={"Retry-After": "3600"}))
        with pytest.raises(StoreUnreachable, match=r"too busy.*try again later"):
            store.collections()


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (Fault(status=500, body='{"status": {"error": "oops"}}'), StoreError, "refused .*oops"),
        (Fault(status=500, body="<html>", content_type="text/html"), StoreError, "refused"),
        (Fault(status=507, body='{"status": {"error": "disk"}}'), StoreError, "refused .*disk"),
        (Fault(status=413, body="<html>too large"), StoreError, "refused .*413"),
        (Fault(status=401, body="key"), StoreUnreachable, "refused the key"),
        (Fault(status=403, body="key"), StoreUnreachable, "refused the key"),
        (Fault(status=200, body="<html>Welcome"), StoreMismatch, "is no Qdrant .*no JSON"),
        (Fault(status=200, body="\x00\ufffd{"), StoreMismatch, "is no Qdrant"),
        (Fault(status=200, body=""), StoreMismatch, "is no Qdrant"),
        (Fault(status=200, body='{"result": [1]}'), StoreMismatch, "another form"),
        (Fault(status=200, body='"text"'), StoreMismatch, "another form"),
        (Fault(status=404, body="<html>"), StoreMismatch, "no Qdrant .*404.*check host"),
        (Fault(status=301, headers={"Location": "https://x"}), StoreMismatch, "no Qdrant .*301"),
    ],
)  # fmt: skip
def test_broken_answers_are_one_line(
    server: QdrantServer, engine: Engine, fault: Fault, kind: type[StoreError], said: str
) -> None:
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        asked = len(server.asked())
        server.fail(fault)
        with pytest.raises(kind, match=said) as caught:
            collection.count()
        assert type(caught.value) is kind
        assert "\n" not in str(caught.value)
        assert len(server.asked()) == asked + 1
        server.fail(fault)
        with pytest.raises(kind, match=said):
            engine.open()
        assert collection.count() == 0


# --------------------------------------------------------------------------------- several writers


def test_two_writing_processes_lose_nothing(engine: Engine) -> None:
    store_processes.two_writers_lose_nothing(engine)


def test_what_a_killed_process_began_the_next_one_ends(engine: Engine) -> None:
    killed = start(engine.url, "w", batches=200, size=300)
    assert lines(killed, 4)[0] == "ready"
    killed.kill()
    killed.communicate(timeout=30)
    follower = start(engine.url, "w", batches=5, size=300)
    follower.communicate(timeout=100)
    assert follower.returncode == 0
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        found = ids_of(collection.search(unit(1)[None], 100_000)[0])
        assert len(found) == collection.count()
        whole = {f"w-{batch:03}-{n:04}" for batch in range(5) for n in range(300)}
        assert whole <= set(found)


# ------------------------------------------------------------------------------- what is not ours


def make_plainly(client: Any, **options: Any) -> None:
    from qdrant_client import models

    size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    client.create_collection("things", vectors_config=size, **options)


def test_a_collection_of_somebody_else_is_left_alone(engine: Engine) -> None:
    client = plain_client(engine.url)
    make_plainly(client)
    with engine.open() as store:
        with pytest.raises(StoreMismatch, match="not ours; name another"):
            store.collection("things", MODEL, DIMENSION)
        with pytest.raises(StoreMismatch, match="not ours"):
            store.drop("things")
        assert store.collections() == ()
    assert client.get_collection("things").payload_schema == {}
    client.close()


def test_another_model_or_dimension_is_refused(engine: Engine) -> None:
    with engine.open() as store:
        store.collection("things", MODEL, DIMENSION).upsert([entry("a")])
    with engine.open() as store:
        for model, dimension in ((MODEL, DIMENSION + 1), ("another", DIMENSION)):
            with pytest.raises(StoreMismatch, match=r"holds vectors of test-model \(8 numbers"):
                store.collection("things", model, dimension)
        assert store.collection("things", MODEL, DIMENSION).count() == 1


def test_an_older_collection_is_refused_until_it_is_dropped(engine: Engine) -> None:
    from qdrant_client import models

    client = plain_client(engine.url)
    mark = {"patchshot": {"model": MODEL, "dimension": DIMENSION, "version": 0}}
    make_plainly(client, metadata=mark)
    payload = dict.fromkeys(("project", "corpus", "path"), "x")
    payload |= {"id": "old", "content": "hash", "payload": "p", "tags": [], "folders": ["x"]}
    number = "00000000-0000-0000-0000-000000000001"
    point = models.PointStruct(
        id=number, vector=unit(1).tolist(), payload=payload | {"zero": False}
    )
    client.upsert("things", [point])
    client.close()
    with engine.open() as store:
        assert [one.version for one in store.collections()] == [0]
        with pytest.raises(StoreMismatch, match=r"version 0.*--drop things and index again"):
            store.collection("things", MODEL, DIMENSION)
        store.drop("things")
        assert store.collection("things", MODEL, DIMENSION).upsert([entry("new")]) == 1
        assert [(one.version, one.entries) for one in store.collections()] == [(1, 1)]


def test_a_server_that_is_too_old_is_left_as_it_was(tmp_path: Path) -> None:
    with qdrant_server(version="1.15.4") as server:
        engine = Engine("qdrant-url", server.new_url(), tmp_path)
        old = pytest.raises(StoreError, match=r"no metadata of collections.*1\.16")
        with engine.open() as store, old:
            store.collection("things", MODEL, DIMENSION)
        client = plain_client(engine.url)
        assert client.get_collections().collections == []
        client.close()


# ---------------------------------------------------------------------------------- large requests


def test_a_large_call_is_sent_in_parts_that_a_server_takes(
    server: QdrantServer, engine: Engine
) -> None:
    entries = [entry(f"e{n}", payload="x" * 60_000) for n in range(450)]
    wide = [
        entry(f"w{n}", np.full(4_096, n + 1, np.float32) + random_units(1, n, 4_096)[0])
        for n in range(450)
    ]
    with engine.open() as store:
        asked = len(server.asked())
        assert store.collection("things", MODEL, DIMENSION).upsert(entries) == 450
        assert store.collection("wide", MODEL, 4_096).upsert(wide) == 450
        writes = [text for text in server.asked()[asked:] if text.startswith("PUT")]
        assert sum(text.endswith("things/points") for text in writes) == 2
        assert sum(text.endswith("wide/points") for text in writes) == 3
        assert store.collection("wide", MODEL, 4_096).upsert(wide) == 0


# -------------------------------------------------------------------------------- from the command


def test_a_team_shares_it_by_command(server: QdrantServer, engine: Engine, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "README.md").write_text("# Shop\n\n## Cookies\n\nCookies expire after a day.\n")
    (repo / "shop.py").write_text('def total(items):\n    """Add up prices."""\n    return 0\n')
    data = {"XDG_DATA_HOME": str(tmp_path / "data")}

    def agent(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = run_agent(
            *arguments, "--store", engine.url, "--json", home=tmp_path, cwd=repo, **data
        )
        assert done.returncode == 0, done.stderr
        return done

    filled = json.loads(agent("index", "--corpus", "docs").stdout)
    assert filled["store"] == engine.url
    assert filled["corpora"]["docs"]["embedded"] == filled["corpora"]["docs"]["passages"] > 0
    again = json.loads(agent("index", "--corpus", "docs").stdout)
    assert again["corpora"]["docs"]["embedded"] == 0
    found = json.loads(agent("search", "when do cookies expire", "--corpus", "docs").stdout)
    assert found["results"][0]["path"] == "README.md"
    listed = json.loads(agent("index", "--list").stdout)
    assert [one["entries"] for one in listed["collections"]] == [again["corpora"]["docs"]["known"]]
    server.fail(*[Fault(status=503)] * 9)
    down = agent("search", "when do cookies expire", "--corpus", "docs")
    server.fail()
    assert json.loads(down.stdout)["results"][0]["path"] == "README.md"
    assert "going on with the embedded store" in down.stderr


def test_a_warning_says_that_the_key_is_not_encrypted(server: QdrantServer) -> None:
    said: list[Event] = []
    with open_store(f"qdrant://:k@127.0.0.1:{server.port}", said.append):
        pass
    assert ["unencrypted" in one.message for one in said if isinstance(one, Notice)] == [True]
