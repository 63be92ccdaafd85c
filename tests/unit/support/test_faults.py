"""The fault server does what its faults are called, and checks input as the real servers do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.faults import Fault, FaultServer, always, at_random, never, once
from tests.support.faults_dialects import KEY, LIMIT, MODEL, SPENT, Generation

RUN = str(uuid.UUID(int=1))
HELLO: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
MINER = {**HELLO, "temperature": 0.0, "run_id": RUN, "evaluation_run_id": RUN}
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=2.0) as made:
        yield made


def post(client: httpx.Client, server: FaultServer, path: str, body: Any) -> httpx.Response:
    return client.post(server.url + path, json=body, headers=BEARER)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.DROP, httpx.RemoteProtocolError),
        (Fault.HALF_BODY, httpx.RemoteProtocolError),
        (Fault.RESET, httpx.ReadError),
        (Fault.HANG, httpx.ReadTimeout),
    ],
)
def test_faults_of_the_connection(
    client: httpx.Client, fault: Fault, error: type[Exception]
) -> None:
    client.timeout = 0.3
    with FaultServer(once(fault)) as server:
        with pytest.raises(error):
            post(client, server, "/v1/chat/completions", HELLO)
        assert post(client, server, "/v1/chat/completions", HELLO).is_success


@pytest.mark.parametrize(
    ("fault", "status", "content_type"),
    [
        (Fault.RATE_LIMIT, 429, "application/json"),
        (Fault.RATE_LIMIT_WAIT, 429, "application/json"),
        (Fault.SERVER_ERROR, 500, "application/json"),
        (Fault.GATEWAY, 502, "text/html"),
        (Fault.GARBAGE, 200, "application/json"),
        (Fault.NO_BODY, 200, "application/json"),
        (Fault.ERROR_IN_200, 200, "application/json"),
        (Fault.EMPTY, 200, "application/json"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/inference"])
def test_faults_that_are_answers(
    client: httpx.Client, path: str, fault: Fault, status: int, content_type: str
) -> None:
    with FaultServer(always(fault), keys=False) as server:
        answer = post(client, server, path, {**MINER, "max_tokens": 9})
    assert (answer.status_code, answer.headers["content-type"]) == (status, content_type)
    assert ("retry-after" in answer.headers) == (fault is Fault.RATE_LIMIT_WAIT)
    if fault is Fault.ERROR_IN_200:
        assert "error" in answer.json()
    if fault in (Fault.GARBAGE, Fault.NO_BODY):
        with pytest.raises(ValueError, match=r"."):
            answer.json()


def test_latency_and_dripping(client: httpx.Client) -> None:
    with FaultServer(once(Fault.LATENCY), latency=0.1) as server:
        for least in (0.4, 0.1):
            started = time.monotonic()
            post(client, server, "/v1/chat/completions", HELLO)
            assert time.monotonic() - started >= least
    with FaultServer(once(Fault.DRIP)) as server:
        with client.stream(
            "POST", f"{server.url}/v1/chat/completions", json=HELLO, headers=BEARER
        ) as answer:
            first = next(answer.iter_raw())
        assert len(first) < 5


def test_connections_are_kept_and_counted(client: httpx.Client) -> None:
    with FaultServer() as server:
        for _ in range(5):
            post(client, server, "/v1/chat/completions", HELLO)
        assert (server.accepted, server.open, server.calls) == (1, 1, 5)


def test_a_rate_of_faults_is_the_same_each_time() -> None:
    plan = at_random(0.1, seed=3)
    drawn = [plan(number) for number in range(5_000)]
    assert drawn == [plan(number) for number in range(5_000)]
    assert 0.08 < sum(fault is not Fault.NONE for fault in drawn) / 5_000 < 0.12
    assert never(0) is Fault.NONE


@pytest.mark.parametrize(
    ("generation", "change", "status"),
    [
        ("p1", {"run_id": "nocache-1"}, 200),
        ("p2", {"run_id": "nocache-1"}, 422),
        ("p3", {"evaluation_run_id": "nocache-1"}, 422),
        ("p3", {"evaluation_run_id": RUN}, 200),
        ("p1", {"temperature": None}, 200),
        ("p2", {"temperature": ...}, 422),
        ("p3", {"temperature": ...}, 422),
        ("p3", {"model": "another"}, 404),
        ("p3", {"messages": [{"role": "user", "content": None}]}, 422),
        ("p3", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 422),
    ],
)
def test_the_miners_proxy_checks_its_input(
    client: httpx.Client, generation: Generation, change: dict[str, Any], status: int
) -> None:
    body = {name: value for name, value in {**MINER, **change}.items() if value is not ...}
    with FaultServer(generation=generation) as server:
        assert post(client, server, "/api/inference", body).status_code == status


@pytest.mark.parametrize(
    ("generation", "status", "shape"),
    [("p1", 200, list), ("p2", 501, dict), ("p3", 200, dict)],
)
def test_the_miners_embeddings(
    client: httpx.Client, generation: Generation, status: int, shape: type
) -> None:
    with FaultServer(generation=generation) as server:
        answer = post(client, server, "/agents/embedding", {**MINER, "input": "a text"})
        assert (answer.status_code, type(answer.json())) == (status, shape)
        several = post(client, server, "/agents/embedding", {**MINER, "input": ["a", "b"]})
        assert several.status_code in (422, 501)


def test_keys_usage_and_lists(client: httpx.Client) -> None:
    with FaultServer(missing=("/api/inference",)) as server:
        refused = client.post(f"{server.url}/v1/chat/completions", json=HELLO)
        assert refused.status_code == 401
        spent = client.get(f"{server.url}/api/v1/usage").json()
        assert spent == {"total_cost_usd": SPENT, "budget_remaining_usd": LIMIT - SPENT}
        used = client.get(f"{server.url}/api/usage?evaluation_run_id={RUN}").json()
        assert used["used_cost_usd"] == SPENT
        assert client.get(f"{server.url}/v1/models").json()["data"][0]["id"] == MODEL
        assert post(client, server, "/api/inference", MINER).status_code == 404
        assert client.get(f"{server.url}/nowhere").status_code == 404
