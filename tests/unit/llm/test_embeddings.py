"""`agent.llm.clients`: shapes of vectors, and what refusals mean for the retrieval."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import respx
from numpy.typing import NDArray

from agent.errors import EmbeddingsUnsupported, InputTooLong, ProviderError
from agent.llm import HttpBatchEmbedder, create_client
from agent.llm.replies import read_vectors
from tests.support.llm import endpoint, run

ROWS = [[1.0, 2.0], [3.0, 4.0]]


@pytest.fixture
def route() -> Iterator[respx.Route]:
    with respx.mock(assert_all_called=False) as router:
        router.get("https://llm.example/v1/models").mock(return_value=httpx.Response(404))
        yield router.post("https://llm.example/v1/embeddings")


def embed(*texts: str) -> NDArray[np.float32]:
    async def go() -> NDArray[np.float32]:
        async with create_client() as client:
            embedder = HttpBatchEmbedder(endpoint(), client)
            return await embedder.embed_batch(texts, kind="document")

    return run(go())


@pytest.mark.parametrize(
    "value",
    [
        {"data": [{"index": 0, "embedding": ROWS[0]}, {"index": 1, "embedding": ROWS[1]}]},
        {"data": [{"index": 1, "embedding": ROWS[1]}, {"index": 0, "embedding": ROWS[0]}]},
        {"data": [{"embedding": ROWS[0]}, {"embedding": ROWS[1]}]},
        {"data": [{"index": 0, "embedding": ROWS[0]}, {"index": 0, "embedding": ROWS[1]}]},
        {"embeddings": ROWS},
        {"embedding": ROWS},
        ROWS,
        [{"index": 0, "embedding": [ROWS[0]]}, {"index": 1, "embedding": [ROWS[1]]}],
        [[ROWS[0]], [ROWS[1]]],
    ],
)
def test_shapes_of_two_vectors(value: Any) -> None:
    vectors = read_vectors(value, 2)

    assert vectors is not None
    assert vectors.dtype == np.float32
    assert vectors.tolist() == ROWS


@pytest.mark.parametrize(
    "value",
    [
        None,
        "x",
        [],
        {},
        {"data": []},
        {"data": [{"embedding": ROWS[0]}]},
        [[1.0], [1.0, 2.0]],
        [["a"], ["b"]],
        [[], []],
        [[float("nan")], [1.0]],
        [[1e300], [1.0]],
        [{"index": 0}, {"index": 1}],
    ],
)
def test_what_is_not_two_vectors(value: Any) -> None:
    assert read_vectors(value, 2) is None


_VALIDATION = {"error_type": "Validation", "error": "Input validation error"}


@pytest.mark.parametrize("status", [200, 400, 422])
def test_a_long_text_that_is_invalid_for_the_proxy_is_too_long(
    route: respx.Route, status: int
) -> None:
    route.mock(return_value=httpx.Response(status, json=_VALIDATION))
    with pytest.raises(InputTooLong):
        embed("word " * 1_000)
    nested = {"error": f"request: 413 - {json.dumps(_VALIDATION)}"}
    route.mock(return_value=httpx.Response(status, json=nested))
    with pytest.raises(InputTooLong):
        embed("word " * 1_000)


@pytest.mark.parametrize(
    "second",
    [
        httpx.Response(422, json={"detail": "no"}),
        httpx.Response(200, html="<html><title>Maintenance</title></html>"),
    ],
)
def test_one_refusal_does_not_switch_embeddings_off(second: httpx.Response) -> None:
    replies = [httpx.Response(200, json=[ROWS[0]]), second]

    async def go() -> None:
        transport = httpx.MockTransport(lambda _: replies.pop(0))
        async with create_client(transport=transport) as client:
            embedder = HttpBatchEmbedder(endpoint("https://llm.example/v1"), client)
            for _ in range(2):
                await embedder.embed_batch(["a"], kind="query")

    with pytest.raises(ProviderError) as caught:
        run(go())
    assert not isinstance(caught.value, EmbeddingsUnsupported)


def test_the_name_tells_models_and_servers_apart() -> None:
    async def name(url: str, model: str) -> str:
        async with create_client() as client:
            return HttpBatchEmbedder(endpoint(url, model=model), client).name

    names = {run(name(url, model)) for url in ("http://a", "http://b") for model in ("x", "y")}
    assert len(names) == 4
    assert run(name("http://a", "x")) in names


def test_secrets_are_not_sent(route: respx.Route) -> None:
    token = "ghp_" + "a1B2" * 9
    route.mock(return_value=httpx.Response(200, json={"embeddings": ROWS}))
    embed(f"a.py\nTOKEN = '{token}'", "b.py\nx = 1")
    sent = json.loads(route.calls.last.request.content)["input"]
    assert sent == ["a.py\nTOKEN = '<secret removed>'", "b.py\nx = 1"]
