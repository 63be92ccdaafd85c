"""`agent.llm.clients`: a call as the server sees it and as the pipeline sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from agent.errors import AuthenticationFailed, BudgetRefused, ProviderError, ProviderUnreachable
from agent.llm import HttpChatModel, create_client
from agent.types import Completion, Usage
from tests.support.llm import (
    KEY,
    FakeTime,
    WordCounter,
    chat_body,
    endpoint,
    make_prompt,
    with_model,
)

URL = "https://llm.example/v1/chat/completions"
SCHEMA = {"type": "object"}
_ALWAYS = {"model", "messages", "stream", "stream_options"}


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
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 100,
            "temperature": 0.0,
        }
    ]


CHUNKS = (
    {"model": "m-1", "choices": [{"delta": {"content": "hel"}}]},
    {"choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}},
)
EVENTS = (
    {"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 11}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
)


def events(*values: object) -> list[bytes]:
    return [f"data: {json.dumps(value)}\n\n".encode() for value in values]


def event_stream(pieces: list[bytes]) -> httpx.Response:
    headers = {"content-type": "text/event-stream"}
    return httpx.Response(200, headers=headers, content=b"".join(pieces))


@pytest.mark.parametrize(("kind", "values"), [("openai", CHUNKS), ("anthropic", EVENTS)])
def test_a_streamed_reply_is_the_whole_one(kind: str, values: tuple[object, ...]) -> None:
    lengths: list[int] = []
    with respx.mock:
        path = "messages" if kind == "anthropic" else "chat/completions"
        respx.post(URL.replace("chat/completions", path)).mock(
            return_value=event_stream([*events(*values), b"data: [DONE]\n\n"])
        )
        place = replace(endpoint(), kind=kind)
        done = with_model(place, ask, on_text=lengths.append)
    assert done == Completion("hello", "m-1", "stop", Usage(11, 7, None, 1), 0.0)
    assert lengths == [3, 5]


def test_a_server_that_refuses_streams_is_asked_without(route: respx.Route) -> None:
    route.mock(side_effect=[refusal("stream is not supported"), ok()])
    assert complete().text == "hello"
    assert [body["stream"] for body in sent(route)] == [True, False]


def test_a_stream_that_ends_early_is_asked_for_again(route: respx.Route) -> None:
    route.mock(side_effect=[event_stream(events(CHUNKS[0])), ok()])
    assert complete().text == "hello"


def test_the_time_of_a_streamed_reply_counts_from_its_last_piece() -> None:
    """Five pieces, 0.3 s apart, within a limit of 0.8 s; then one that stalls."""

    async def go(pause: float) -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            try:
                for piece in events(CHUNKS[0], {"choices": []}, {"choices": []}, *CHUNKS[1:]):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause)
            except ConnectionError:
                return
            finally:
                writer.transport.abort() if pause > 1 else writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, create_client() as client:
            place = endpoint(f"http://127.0.0.1:{port}/v1")
            model = HttpChatModel(place, client, WordCounter(), request_seconds=0.8)
            return (await ask(model)).text

    assert asyncio.run(go(0.3)) == "hello"
    with pytest.raises(ProviderUnreachable, match="did not answer within 1 s and may charge"):
        asyncio.run(go(1.5))


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
        {
            key: value
            for key, value in body.items()
            if key in ("max_completion_tokens", "response_format")
        }
        for body in sent(route)
    ]
    settled = {"max_completion_tokens": 100, "response_format": {"type": "json_object"}}
    assert "json_schema" in optional[0]["response_format"]
    assert optional[-2:] == [settled, settled]
    assert len(optional) == 5


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

    def test_a_model_that_was_chosen_is_not_replaced(self) -> None:
        with pytest.raises(AuthenticationFailed):
            with_model(endpoint(model="a"), ask, transport=self.allowing("b"))

    def test_a_spent_budget_is_no_reason_for_another_model(self) -> None:
        body = {"error": {"message": "budget exceeded for this run"}}
        transport = httpx.MockTransport(lambda _: httpx.Response(403, json=body))

        with pytest.raises(BudgetRefused):
            with_model(endpoint(model="a"), ask, transport=transport, others=("b",))
