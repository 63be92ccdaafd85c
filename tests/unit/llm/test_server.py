"""`agent.llm.server`: which path works, and which models the server has."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import respx

from agent.errors import TimeLimitExceeded, UnknownModel
from agent.llm import ModelServer, create_client
from agent.llm.failures import Failure
from agent.llm.http import JsonReply, Outcome
from tests.support.llm import FakeTime, endpoint, run

HOST = "https://llm.example"
NOT_FOUND = httpx.Response(404, json={"detail": "Not Found"})
OK = httpx.Response(200, json={"ok": True})


def post(base_url: str, times: int = 1, *, model: str = "test-model") -> list[Outcome]:
    async def go() -> list[Outcome]:
        async with create_client() as client:
            place = endpoint(base_url, model=model)
            server = ModelServer(place, client, retrier=FakeTime().retrier())
            return [await server.post("/chat/completions", {}) for _ in range(times)]

    return run(go())


@pytest.mark.parametrize(
    "first",
    [
        NOT_FOUND,
        httpx.Response(405),
        httpx.Response(200, html="<html><title>Open WebUI</title></html>"),
        httpx.Response(200, json={"error": "Unexpected endpoint or method. (POST /x)"}),
    ],
)
def test_a_missing_version_is_found_and_remembered(first: httpx.Response) -> None:
    with respx.mock:
        bare = respx.post(f"{HOST}/chat/completions").mock(return_value=first)
        versioned = respx.post(f"{HOST}/v1/chat/completions").mock(return_value=OK)

        assert post(HOST, 3) == [JsonReply({"ok": True})] * 3
        assert (bare.call_count, versioned.call_count) == (1, 3)


def test_a_missing_model_is_not_a_missing_path() -> None:
    refusal = httpx.Response(404, json={"error": {"message": "The model `gpt-5o` does not exist"}})
    listed = {"data": [{"id": n} for n in ("openai/gpt-4o", "gpt-5", "llama", "gpt-5-mini")]}
    with respx.mock:
        respx.post(f"{HOST}/chat/completions").mock(return_value=refusal)
        respx.get(f"{HOST}/models").mock(return_value=httpx.Response(200, json=listed))

        (outcome,) = post(HOST, model="gpt-5o")

    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, UnknownModel)
    assert str(outcome.error) == (
        "https://llm.example has no model 'gpt-5o' (404: The model `gpt-5o` does not exist): set "
        "PATCHSHOT_MODEL to one that it has; it has gpt-5, openai/gpt-4o, gpt-5-mini"
    )


def test_nothing_is_sent_after_the_deadline() -> None:
    async def go() -> None:
        async with create_client() as client:
            server = ModelServer(endpoint(), client, retrier=FakeTime(left=0).retrier())
            await server.post("/chat/completions", {})

    with respx.mock, pytest.raises(TimeLimitExceeded, match="PATCHSHOT_TIMEOUT"):
        asyncio.run(go())


def test_a_gateway_that_refuses_keys_on_any_path_settles_nothing() -> None:
    with respx.mock:
        # The list is guarded where the calls are not: that path proves nothing.
        respx.get(f"{HOST}/models").mock(return_value=httpx.Response(401))
        respx.post(f"{HOST}/chat/completions").mock(return_value=NOT_FOUND)
        respx.post(f"{HOST}/v1/chat/completions").mock(return_value=OK)

        async def go() -> Outcome:
            async with create_client() as client:
                server = ModelServer(endpoint(HOST), client, retrier=FakeTime().retrier())
                assert await server.models() == ()
                return await server.post("/chat/completions", {})

        assert run(go()) == JsonReply({"ok": True})
