"""`agent.llm.server`: which path works, what is tried again, and which model is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from agent.errors import ConfigurationError, ProviderUnreachable, TimeLimitExceeded, UnknownModel
from agent.llm import (
    Demand,
    Endpoint,
    ModelServer,
    Price,
    Resolved,
    Retrier,
    create_client,
    resolve_model,
)
from agent.llm.failures import Failure
from agent.llm.http import JsonReply, Outcome
from agent.llm.protocols.base import ModelInfo
from agent.llm.server import rank_models
from agent.types.events import Notice
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


DEMAND = Demand(8_000, 2_000, max_cost=0.5)
CHEAP, DEAR = Price(0.1, 0.2), Price(1.0, 4.0)


def resolve(
    place: Endpoint, lists: Mapping[str, Any], *, embedding: bool = False, demand: Demand = DEMAND
) -> tuple[Resolved, list[str]]:
    """What is chosen when the server gives these lists by path, and which paths were asked."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        found = lists.get(request.url.path)
        return httpx.Response(404) if found is None else httpx.Response(200, json=found)

    async def go() -> Resolved:
        async with create_client(transport=httpx.MockTransport(answer)) as client:
            return await resolve_model(ModelServer(place, client, embeddings=embedding), demand)

    return run(go()), asked


def listed(*models: tuple[str, float]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "max_input_tokens": 100_000,
            "cost_usd_per_million_input_tokens": price,
            "cost_usd_per_million_output_tokens": price,
        }
        for name, price in models
    ]


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([ModelInfo("a", price=CHEAP), ModelInfo("b", price=DEAR)], ["b", "a"]),
        ([ModelInfo("a", price=CHEAP), ModelInfo("b", price=Price(60.0, 60.0))], ["a"]),
        ([ModelInfo("a", 9_999, DEAR), ModelInfo("b", 10_000, CHEAP)], ["b"]),
        ([ModelInfo("b"), ModelInfo("a")], ["b", "a"]),  # as the server lists them
        ([ModelInfo("b", price=CHEAP), ModelInfo("a", price=CHEAP)], ["b", "a"]),
        ([ModelInfo("a", price=Price(10, 10)), ModelInfo("b", price=Price(10.3, 10.3))], ["a"]),
        ([], []),
    ],
)
def test_the_dearest_that_fits_comes_first(
    models: Sequence[ModelInfo], expected: list[str]
) -> None:
    assert [info.name for info in rank_models(models, DEMAND)] == expected


def miner(model: str = "") -> Endpoint:
    return endpoint("http://proxy", key=None, kind="miner", model=model, run_id="r")


LISTED = {"/api/inference-models": listed(("a", 0.1), ("b", 2.0))}
NEW = endpoint("http://router/api/v1", kind="openrouter", model="v/new")
NEW_ROW = {"id": "v/new", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}


@pytest.mark.parametrize(
    ("place", "lists", "model", "others", "price"),
    [
        (miner(), LISTED, "b", ("a",), Price(2.0, 2.0)),
        (miner("a"), LISTED, "a", (), Price(0.1, 0.1)),
        (miner(), {}, "", (), None),  # the proxy chooses itself
        (NEW, {"/api/v1/models": {"data": [NEW_ROW]}}, "v/new", (), Price(1.0, 2.0)),
        (endpoint("http://box/v1", model=""), {"/v1/models": ["only"]}, "only", (), None),
    ],
)
def test_a_model_and_its_price_from_the_list(
    place: Endpoint, lists: Mapping[str, Any], model: str, others: Sequence[str], price: Price
) -> None:
    found, asked = resolve(place, lists)
    assert (found.endpoint.model, found.others, found.price) == (model, others, price)
    assert ("from its list" in found.endpoint.why) is (not place.model and bool(model))
    paths = list(lists) or ["/api/inference-models", "/agents/inference-models"]
    assert asked == paths


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        (
            {"/v1/models": {"data": [{"id": name} for name in "fedcba"]}},
            "set PATCHSHOT_MODEL to one that it has (f, e, d, c, b)",
        ),
        ({}, "no model is chosen for http://box/v1: set PATCHSHOT_MODEL"),
    ],
)
def test_a_person_chooses_of_several(lists: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(endpoint("http://box/v1", model=""), lists)
    assert words in str(caught.value)


BUSY = Failure(ProviderUnreachable("https://x fails (503): try again later"), retriable=True)


class Attempts:
    """Gives outcomes in order and counts the calls."""

    def __init__(self, *outcomes: str | Failure) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    async def __call__(self) -> str | Failure:
        self.calls += 1
        return self.outcomes.pop(0)


def test_a_reply_after_two_failures() -> None:
    time = FakeTime()
    attempts = Attempts(BUSY, BUSY, "reply")

    assert run(time.retrier().run(attempts)) == "reply"
    assert time.slept == [0.5, 1.0]
    assert time.events == [
        Notice("https://x fails (503); trying again in 0.5 s (try 2 of 4)", "warning"),
        Notice("https://x fails (503); trying again in 1.0 s (try 3 of 4)", "warning"),
    ]


@pytest.mark.parametrize(
    ("left", "first", "slept", "why"),
    [
        (9e9, replace(BUSY, retry_after=40.0), [40.0], ""),
        (9e9, replace(BUSY, retry_after=3600.0), [], "the server asks to wait 3600 s"),
        (0.7, BUSY, [0.5], "no time is left"),
    ],
)
def test_waits_are_as_asked_and_end(
    left: float, first: Failure, slept: list[float], why: str
) -> None:
    time = FakeTime(left=left)
    outcome = run(time.retrier().run(Attempts(first, BUSY if why else "reply", BUSY)))
    assert time.slept == slept
    assert why in str(outcome.error) if isinstance(outcome, Failure) else outcome == "reply"


def test_cancellation_ends_a_wait_at_once() -> None:
    async def go() -> None:
        slow = Retrier(first_wait=60, longest_wait=60)
        attempts = Attempts(*[BUSY] * 4)
        task = asyncio.create_task(slow.run(attempts))
        while not attempts.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 2)
        assert attempts.calls == 1

    run(go())


def test_waits_double_up_to_the_longest_and_are_spread() -> None:
    time = FakeTime()
    retrier = time.retrier(jitter=0.5, tries=6, first_wait=2, longest_wait=10)

    run(retrier.run(Attempts(*[BUSY] * 9)))

    assert time.slept == [1.5, 3.0, 6.0, 7.5, 7.5]
