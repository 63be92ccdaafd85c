"""`agent.llm.server`: which model is taken where nobody has named one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from agent.errors import ConfigurationError
from agent.llm import Demand, Endpoint, ModelServer, Price, Resolved, create_client, resolve_model
from agent.llm.protocols.base import ModelInfo
from agent.llm.server import rank_models
from tests.support.llm import endpoint, run

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
        ([], []),
    ],
)
def test_the_dearest_that_fits_comes_first(
    models: Sequence[ModelInfo], expected: list[str]
) -> None:
    assert [info.name for info in rank_models(models, DEMAND)] == expected


def test_a_budget_must_last_for_several_calls() -> None:
    one_call = Price(10.0, 10.0)  # 10,000 tokens: $0.10

    assert rank_models([ModelInfo("a", price=one_call)], Demand(8_000, 2_000, 0.49)) == ()
    assert rank_models([ModelInfo("a", price=one_call)], Demand(8_000, 2_000, 0.5))


def miner(model: str = "") -> Endpoint:
    return endpoint("http://proxy", key=None, kind="miner", model=model, run_id="r")


def test_the_proxys_list_chooses_and_prices() -> None:
    found, asked = resolve(miner(), {"/api/inference-models": listed(("a", 0.1), ("b", 2.0))})

    assert found.endpoint.model == "b"
    assert "from its list" in found.endpoint.why
    assert (found.others, found.price) == (("a",), Price(2.0, 2.0))
    assert asked == ["/api/inference-models"]


def test_a_named_model_is_priced_by_the_proxy() -> None:
    found, _ = resolve(miner("a"), {"/api/inference-models": listed(("a", 0.1), ("b", 2.0))})

    assert found == Resolved(miner("a"), (), Price(0.1, 0.1))


def test_a_proxy_without_a_list_chooses_itself() -> None:
    found, asked = resolve(miner(), {})

    assert found == Resolved(miner())
    assert asked == ["/api/inference-models", "/agents/inference-models"]


def test_a_bound_on_the_cost_asks_for_a_price_that_the_table_lacks() -> None:
    place = endpoint("http://router/api/v1", kind="openrouter", model="v/new")
    row = {"id": "v/new", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}

    found, asked = resolve(place, {"/api/v1/models": {"data": [row]}})

    assert asked == ["/api/v1/models"]
    assert found.price is not None
    assert (found.price.input, found.price.output) == pytest.approx((1.0, 2.0))


def test_the_only_model_of_a_server_is_taken() -> None:
    place = endpoint("http://box/v1", model="")

    found, _ = resolve(place, {"/v1/models": {"data": [{"id": "only"}]}})

    assert found.endpoint.model == "only"


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
