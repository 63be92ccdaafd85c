"""`agent.llm.clients`: a call as the server sees it and as the pipeline sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from agent.errors import (
    AuthenticationFailed,
    BudgetRefused,
    ProviderError,
)
from agent.llm import HttpChatModel
from agent.types import Completion, Usage
from tests.support.llm import KEY, FakeTime, chat_body, endpoint, make_prompt, with_model

URL = "https://llm.example/v1/chat/completions"
SCHEMA = {"type": "object"}


@pytest.fixture
def route() -> Iterator[respx.Route]:
    with respx.mock:
        yield respx.post(URL)


def complete(schema: dict[str, Any] | None = None, **more: Any) -> Completion:
    return with_model(endpoint(), lambda model: ask(model, schema), **more)


async def ask(model: HttpChatModel, schema: dict[str, Any] | None = None) -> Completion:
    done = await model.complete(make_prompt(), max_output_tokens=100, schema=schema)
    return replace(done, seconds=0.0)


def sent(route: respx.Route) -> list[dict[str, Any]]:
    return [json.loads(call.request.content) for call in route.calls]


def refusal(message: str, status: int = 400) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message}})


def ok(content: Any = "hello") -> httpx.Response:
    return httpx.Response(200, json=chat_body(content))


def test_request_and_completion(route: respx.Route) -> None:
    route.mock(return_value=ok())

    completion = complete()

    assert completion == Completion("hello", "test-model-001", "stop", Usage(11, 7, None, 1), 0.0)
    assert sent(route) == [
        {
            "model": "test-model",
            "messages": [
                {"role": "system", "content": "You fix code."},
                {"role": "user", "content": "Fix it, as JSON."},
            ],
            "stream": False,
            "max_tokens": 100,
            "temperature": 0.0,
        }
    ]


def test_json_that_is_no_completion(route: respx.Route) -> None:
    route.mock(return_value=httpx.Response(200, json={"detail": f"no {KEY}"}))

    with pytest.raises(ProviderError, match="no chat completion") as caught:
        complete()
    assert KEY not in str(caught.value)


def test_refused_parameters_are_left_out_from_then_on(route: respx.Route) -> None:
    route.mock(
        side_effect=[
            refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            refusal("Unsupported value: 'temperature' does not support 0"),
            refusal("Invalid schema for response_format 'patch'"),
            ok("{}"),
            ok("{}"),
        ]
    )

    async def twice(model: HttpChatModel) -> None:
        await ask(model, SCHEMA)
        await ask(model, SCHEMA)

    with_model(endpoint(), twice)

    optional = [
        {key: value for key, value in body.items() if key not in ("model", "messages", "stream")}
        for body in sent(route)
    ]
    settled = {"max_completion_tokens": 100, "response_format": {"type": "json_object"}}
    assert "json_schema" in optional[0]["response_format"]
    assert optional[-2:] == [settled, settled]
    assert len(optional) == 5


def test_a_server_that_ignores_the_format_is_asked_more_plainly_next_time(
    route: respx.Route,
) -> None:
    route.mock(side_effect=[ok("Sure! Here is it"), ok('{"a": 1}'), ok('{"a": 1}')])

    async def thrice(model: HttpChatModel) -> None:
        for _ in range(3):
            await ask(model, SCHEMA)

    with_model(endpoint(), thrice)

    formats = [body["response_format"]["type"] for body in sent(route)]
    assert formats == ["json_schema", "json_object", "json_object"]


class TestMinersProxy:
    """What only this protocol needs of the transport."""

    run = "6d6f1f9e-6a43-4f1c-9d1b-0d5b1b0f8a55"

    def test_a_model_that_is_wanted_but_not_known_is_asked_for(self) -> None:
        place = endpoint("http://proxy", kind="miner", run_id=self.run, model="")
        detail = [{"loc": ["body", "model"], "msg": "Field required"}]
        transport = httpx.MockTransport(lambda _: httpx.Response(422, json={"detail": detail}))

        with pytest.raises(ProviderError, match=r"Field required.*check PATCHSHOT_MODEL"):
            with_model(place, ask, transport=transport)


class TestOtherModels:
    """Models to go on with, where nobody has chosen the first."""

    @staticmethod
    def allowing(*models: str) -> httpx.MockTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            wanted = json.loads(request.content)["model"] if request.content else ""
            if wanted in models:
                return httpx.Response(200, json=chat_body(model=wanted))
            return httpx.Response(403, json={"error": {"message": f"Model {wanted} not allowed"}})

        return httpx.MockTransport(answer)

    def test_the_next_one_is_taken_for_good(self) -> None:
        time = FakeTime()

        async def twice(model: HttpChatModel) -> tuple[str, str, str]:
            return (await ask(model)).model, (await ask(model)).model, model.model

        done = with_model(
            endpoint(kind="openrouter", model="a"),
            twice,
            transport=self.allowing("c"),
            retrier=time.retrier(),
            others=("b", "c", "d"),
        )

        assert done == ("c", "c", "c")
        assert len(time.events) == 2  # each step is told, once

    def test_the_last_refusal_is_raised(self) -> None:
        with pytest.raises(AuthenticationFailed):
            with_model(endpoint(model="a"), ask, transport=self.allowing(), others=("b",))

    def test_a_model_that_was_chosen_is_not_replaced(self) -> None:
        with pytest.raises(AuthenticationFailed):
            with_model(endpoint(model="a"), ask, transport=self.allowing("b"))

    def test_a_spent_budget_is_no_reason_for_another_model(self) -> None:
        body = {"error": {"message": "budget exceeded for this run"}}
        transport = httpx.MockTransport(lambda _: httpx.Response(403, json=body))

        with pytest.raises(BudgetRefused):
            with_model(endpoint(model="a"), ask, transport=transport, others=("b",))
