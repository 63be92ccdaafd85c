"""`agent.wiring.model` and `.embedding`: from environment variables to calls on a real server."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest

from agent.errors import BudgetExceeded, ConfigurationError
from agent.llm import Budget, Price
from agent.settings import Settings, load
from agent.types import Completion, Problem, Usage
from agent.types.events import Event, Notice
from agent.wiring import Connections, live_call, live_embedding
from agent.wiring.model import plan_in_words
from agent.wiring.retrieval import make_embedder
from tests.support.llm import make_prompt
from tests.support.loopback import LoopbackServer, Scripted, loopback

RUN = "6d6f1f9e-6a43-4f1c-9d1b-0d5b1b0f8a55"
MODELS = [
    {
        "name": name,
        "max_input_tokens": 131072,
        "cost_usd_per_million_input_tokens": price,
        "cost_usd_per_million_output_tokens": price,
    }
    for name, price in (("small", 0.1), ("large", 1.0))
]
REPLY = {"content": "ready", "tool_calls": []}
PROBLEM = Problem("t", "b")


def complete(settings: Settings, max_output_tokens: int = 100) -> tuple[Completion, Usage]:
    """One budgeted call, and what the run has used after it."""

    async def go() -> tuple[Completion, Usage]:
        async with AsyncExitStack() as stack:
            model = await Connections(stack, time_left=lambda: 60.0).budgeted(settings)
            done = await model.complete(make_prompt(), max_output_tokens=max_output_tokens)
            return done, model.usage

    return asyncio.run(go())


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The variables of a miner's container, but for its proxy."""
    monkeypatch.setenv("EVALUATION_RUN_ID", RUN)
    monkeypatch.setenv("RIDGES_MAX_COST_USD", "1.0")
    return monkeypatch


def test_the_whole_way_behind_a_miners_proxy(container: pytest.MonkeyPatch) -> None:
    with loopback(Scripted(MODELS), Scripted(REPLY)) as server:
        container.setenv("SANDBOX_PROXY_URL", server.url)

        done, spent = complete(load({}))

        assert (done.text, done.model) == ("ready", "large")
        assert spent.cost_usd is not None
        listing, call = server.requests
        assert listing.target == "/api/inference-models"
        assert call.json["model"] == "large"
        assert call.json["run_id"] == call.json["evaluation_run_id"] == RUN


def test_the_list_prices_what_the_bound_refuses(container: pytest.MonkeyPatch) -> None:
    container.setenv("RIDGES_MAX_COST_USD", "0.0001")
    container.setenv("PATCHSHOT_MODEL", "large")
    with loopback(Scripted(MODELS)) as server:
        container.setenv("SANDBOX_PROXY_URL", server.url)

        with pytest.raises(BudgetExceeded, match="RIDGES_MAX_COST_USD"):
            complete(load({}))
        assert [request.method for request in server.requests] == ["GET"]


def test_the_run_id_of_the_environment_reaches_the_first_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RUN_ID", "from-the-input")
    none = Scripted({"detail": "Not Found"}, status=404)  # no list: the first generation
    script = [none] * 2 + [Scripted('"ready"')]  # two roots
    with loopback(*script) as server:
        monkeypatch.setenv("AI_PROXY_URL", server.url)

        done, _ = complete(load({}))

        call = next(request for request in server.requests if request.method == "POST")
        assert (done.text, done.model) == ("ready", "default")
        assert call.json["run_id"] == "from-the-input"
        assert "model" not in call.json


def test_the_only_model_of_a_server_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    message = {"message": {"content": "ready"}, "finish_reason": "stop"}
    script = [Scripted({"data": [{"id": "only"}]}), Scripted({"choices": [message]})]
    with loopback(*script) as server:
        monkeypatch.setenv("PATCHSHOT_BASE_URL", f"{server.url}/v1")

        assert complete(load({}))[0].model == "only"


def embedder_of(server: LoopbackServer, texts: list[str]) -> tuple[Any, list[Event]]:
    events: list[Event] = []

    async def go() -> Any:
        async with AsyncExitStack() as stack:
            connections = Connections(stack, events.append, lambda: 60.0)
            embedder = await make_embedder(load({}), connections)
            assert embedder is not None
            return await embedder.embed(texts, kind="document")

    return asyncio.run(go()), events


def test_embeddings_behind_a_miners_proxy(container: pytest.MonkeyPatch) -> None:
    with loopback(Scripted([{"name": "e"}]), Scripted({"embedding": [3.0, 4.0]})) as server:
        container.setenv("SANDBOX_PROXY_URL", server.url)

        vectors, _ = embedder_of(server, ["a", "b"])

        np.testing.assert_allclose(vectors, [[0.6, 0.8]] * 2, rtol=1e-6)
        listing, *calls = server.requests
        assert listing.target == "/api/embedding-models"
        assert sorted(call.json["input"] for call in calls) == ["a", "b"]
        assert {call.json["model"] for call in calls} == {"e"}


@pytest.mark.parametrize("path", ["file", "folder"])
def test_certificates_of_the_miners_container(
    path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(broken))

    async def go() -> None:
        async with AsyncExitStack() as stack:
            Connections(stack).client()

    with pytest.raises(ConfigurationError, match="REQUESTS_CA_BUNDLE"):
        asyncio.run(go())  # it is read
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    asyncio.run(go())  # but not where httpx has a variable of its own


def test_a_live_round_trip_each(container: pytest.MonkeyPatch) -> None:
    with loopback(Scripted(MODELS), Scripted(REPLY)) as server:
        container.setenv("SANDBOX_PROXY_URL", server.url)
        said = asyncio.run(live_call(load({})))
    with loopback(Scripted([{"name": "e"}]), Scripted({"embedding": [3.0, 4.0]})) as server:
        container.setenv("SANDBOX_PROXY_URL", server.url)
        embedded = asyncio.run(live_embedding(load({})))

    assert said.startswith("large answered 'ready' in ")
    assert embedded.startswith("miner:e@")
    assert " answered 2 dimensions in " in embedded
    assert json.dumps(asyncio.run(live_embedding(load({"embed": "off"})))) == '"off"'


def test_an_over_long_text_is_split_behind_the_first_proxy(container: pytest.MonkeyPatch) -> None:
    """Its model takes 512 tokens, and says so in the text of an error inside a 200."""
    upstream = json.dumps({"error": "must have less than 512 tokens", "error_type": "Validation"})
    refused = Scripted({"error": f"HTTP error in embedding request: 413 - {upstream}"})
    whole, half = Scripted([[3.0, 4.0]]), Scripted([[4.0, 3.0]])
    with loopback(Scripted([]), refused, whole, half) as server:
        container.setenv("AI_PROXY_URL", server.url)

        vectors, events = embedder_of(server, ["word " * 600])

        sent = [request.json["input"] for request in server.requests[1:]]
    assert "".join(sent[1:]) == sent[0]
    np.testing.assert_allclose(vectors, [[0.70710678, 0.70710678]], rtol=1e-5)
    assert not [event for event in events if isinstance(event, Notice)]


def test_the_stronger_model_spends_from_the_same_budget() -> None:
    body = {
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 0},
    }
    with loopback(Scripted(body)) as server:
        settings = Settings(
            base_url=f"{server.url}/v1", model="gpt-5-mini", escalate_model="gpt-5", max_calls=2
        )

        async def go() -> tuple[float | None, float | None, int]:
            async with AsyncExitStack() as stack:
                connections = Connections(stack, time_left=lambda: 60.0)
                cheap = await connections.budgeted(settings)
                strong = await connections.escalation(settings, cheap)
                assert strong is not None
                words = [
                    plan_in_words(settings, PROBLEM, budgets)
                    for budgets in ([cheap.budget, strong.budget], [strong.budget], [cheap.budget])
                ]
                assert words[0] == words[1] != words[2]
                await cheap.complete(make_prompt(), max_output_tokens=10)
                first = cheap.usage.cost_usd
                await strong.complete(make_prompt(), max_output_tokens=10)
                with pytest.raises(BudgetExceeded):
                    await strong.complete(make_prompt(), max_output_tokens=10)
                return first, cheap.usage.cost_usd, cheap.usage.calls

        first, both, calls = asyncio.run(go())
        named = [request.json["model"] for request in server.requests if request.method == "POST"]
    assert named == ["gpt-5-mini", "gpt-5"]
    assert calls == 2
    assert first is not None
    assert both is not None
    assert both - first > first > 0


def test_no_second_model_is_made_where_the_first_one_is_named() -> None:
    settings = Settings(base_url="http://127.0.0.1:9/v1", model="m", escalate_model="m")

    async def go() -> None:
        async with AsyncExitStack() as stack:
            connections = Connections(stack, time_left=lambda: 60.0)
            model = await connections.budgeted(settings)
            assert await connections.escalation(settings, model) is None

    asyncio.run(go())


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({}, "usually 1 or 2 calls, never more than 46 calls, "),
        ({"locate": "never"}, "usually 1 or 2 calls, never more than 45 calls, "),
        ({"locate": "never", "tests": False}, "usually 1 or 2 calls, never more than 44 calls, "),
        ({"max_calls": 1}, "never more than 1 call, "),
    ],
)
def test_the_calls_of_a_run(settings: dict[str, Any], calls: str) -> None:
    budget = Budget(max_calls=settings.get("max_calls"))
    assert plan_in_words(Settings(**settings), PROBLEM, [budget]).startswith(calls)


def test_limits_of_tokens_and_dollars() -> None:
    budget = Budget(max_tokens=400_000, price=Price(2.0, 8.0))
    assert plan_in_words(Settings(), PROBLEM, [budget]).endswith(" calls, 400,000 tokens, $3.06")
    capped = Budget(max_tokens=400_000, max_cost=0.5, price=Price(2.0, 8.0))
    assert plan_in_words(Settings(), PROBLEM, [capped]).endswith("tokens, $0.50")
