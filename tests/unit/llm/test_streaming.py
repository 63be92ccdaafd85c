"""Streamed replies in the wire formats of OpenAI and Anthropic, over a loopback server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProviderError, ProviderUnreachable
from agent.llm.protocols import PROTOCOLS
from agent.llm.streaming import AnthropicAssembler, ObjectEnd, OpenAIAssembler, ReplyStream
from agent.types import Completion
from tests.support.llm import FakeTime, chat_body, endpoint, make_prompt, with_model
from tests.support.loopback import Received, Scripted, loopback

REPLY = '{"edits": [{"path": "a", "search": "}\\"{", "replace": "é"}]}'


def openai_events(text: str, *, size: int = 7, usage: bool = True) -> list[Any]:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    deltas = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    counts = {"prompt_tokens": 11, "completion_tokens": 7}
    return [
        {"model": "m-001", "choices": [{"delta": {"role": "assistant", "content": ""}}]},
        *deltas,
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        *([{"choices": [], "usage": counts}] if usage else []),
        "[DONE]",
    ]


def anthropic_events(text: str, *, size: int = 7) -> list[Any]:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    start = {"model": "m-001", "usage": {"input_tokens": 11, "output_tokens": 1}}
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}}
            for t in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]


EVENTS = {"openai": openai_events, "anthropic": anthropic_events}


def sse(events: Sequence[Any]) -> Scripted:
    lines = [e if isinstance(e, str) else json.dumps(e, ensure_ascii=False) for e in events]
    body = "".join(f"event: x\ndata: {line}\n\n" for line in lines)
    return Scripted(body, content_type="text/event-stream; charset=utf-8")


def ask(
    *script: Scripted, kind: str = "openai", schema: Mapping[str, Any] | None = None
) -> tuple[Completion, list[int], list[Received]]:
    lengths: list[int] = []
    with loopback(*script) as server:
        place = endpoint(f"{server.url}/v1", kind=kind)
        done = with_model(
            place,
            lambda model: model.complete(make_prompt(), max_output_tokens=50, schema=schema),
            on_text=lengths.append,
            retrier=FakeTime().retrier(),
        )
        return done, lengths, server.requests


@pytest.mark.parametrize("kind", EVENTS)
def test_a_streamed_reply_is_the_whole_reply(kind: str) -> None:
    done, lengths, (request,) = ask(sse(EVENTS[kind](REPLY)), kind=kind, schema={"type": "object"})
    assert request.json["stream"] is True
    assert (done.text, done.model, done.finish_reason) == (REPLY, "m-001", "stop")
    assert (done.usage.input_tokens, done.usage.output_tokens) == (11, 7)
    assert not done.usage.estimated
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(REPLY)


@pytest.mark.parametrize("kind", EVENTS)
def test_text_after_the_json_object_ends_the_call(kind: str) -> None:
    """The rest is not read, and the tokens are our own count."""
    prose = f"```json\n{REPLY}\n```\n" + "And this is why. " * 500
    done, lengths, _ = ask(sse(EVENTS[kind](prose)), kind=kind, schema={"type": "object"})
    assert REPLY in done.text
    assert len(done.text) < len(REPLY) + 40
    assert lengths[-1] == len(done.text)
    assert done.usage.estimated
    assert "(estimated)" in done.usage.summary


def test_prose_before_the_object_or_a_call_without_schema_is_read_to_its_end() -> None:
    text = f"I think: {REPLY} and so on"
    assert ask(sse(openai_events(text)), schema={"type": "object"})[0].text == text
    after = f"{REPLY} and so on"
    assert ask(sse(openai_events(after)))[0].text == after


def test_tools_are_put_together_from_their_parts() -> None:
    def call(index: int, **function: str) -> Any:
        part = {"index": index, "function": function}
        return {"choices": [{"delta": {"tool_calls": [part]}}]}

    reader = OpenAIAssembler()
    for event in (
        call(0, name="read", arguments=""),
        call(0, arguments='{"files"'),
        call(1, name="list", arguments="{}"),
        call(0, arguments=": []}"),
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ):
        reader.feed(event)
    message = reader.value()["choices"][0]["message"]
    functions = [one["function"] for one in message["tool_calls"]]
    assert functions == [
        {"name": "read", "arguments": '{"files": []}'},
        {"name": "list", "arguments": "{}"},
    ]
    other = AnthropicAssembler()
    use = {"type": "tool_use", "id": "1", "name": "read", "input": {}}
    other.feed({"type": "content_block_start", "index": 1, "content_block": use})
    for part in ('{"files"', ": []}"):
        delta = {"type": "input_json_delta", "partial_json": part}
        other.feed({"type": "content_block_delta", "index": 1, "delta": delta})
    reply = PROTOCOLS["anthropic"].chat(endpoint(kind="anthropic")).read(other.value())
    assert reply.called.calls == (("read", {"files": []}),)


@pytest.mark.parametrize("kind", EVENTS)
def test_a_stream_that_breaks_off_is_tried_again(kind: str) -> None:
    events = EVENTS[kind](REPLY)
    done, _, requests = ask(sse(events[:4]), sse(events), kind=kind)
    assert done.text == REPLY
    assert len(requests) == 2
    with pytest.raises(ProviderUnreachable, match="ended before the reply"):
        ask(sse(events[:4]), kind=kind)


def test_an_error_inside_the_stream_is_that_error() -> None:
    error = {"error": {"message": "the key was withdrawn", "code": 401}}
    with pytest.raises(ProviderError, match="withdrawn"):
        ask(sse([*openai_events(REPLY)[:3], error]))
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    good = anthropic_events(REPLY)
    done, _, requests = ask(sse([good[0], overloaded]), sse(good), kind="anthropic")
    assert (done.text, len(requests)) == (REPLY, 2)


def test_a_server_that_does_not_stream_is_read_as_ever() -> None:
    done, lengths, _ = ask(Scripted(chat_body("hello")))
    assert (done.text, lengths) == ("hello", [])
    refusal = Scripted({"error": {"message": "stream is not supported"}}, 400)
    done, _, requests = ask(refusal, Scripted(chat_body("hello")))
    assert done.text == "hello"
    assert [request.json["stream"] for request in requests] == [True, False]


def test_a_miners_proxy_is_never_asked_to_stream() -> None:
    done, _, (request,) = ask(Scripted('"hello"'), kind="miner")
    assert done.text == "hello"
    assert "stream" not in request.json


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON), st.integers(1, 9), st.booleans())
def test_an_object_ends_where_json_says_so(
    value: Mapping[str, Any], size: int, ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    end = ObjectEnd()
    assert not any(end.feed(piece) for piece in pieces)
    assert not end.feed("\n```\n")
    assert end.feed(" x")


@given(st.lists(st.binary(max_size=30)), st.sampled_from([OpenAIAssembler, AnthropicAssembler]))
def test_no_bytes_raise(pieces: list[bytes], kind: type) -> None:
    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield b"data: {" + piece + b"}\n"

    stream = ReplyStream(kind(), lambda _: None, one_object=True)
    assert asyncio.run(stream.read(sent(), 10_000)) is None


@given(st.dictionaries(st.sampled_from(["choices", "type", "index", "delta", "message"]), JSON))
def test_no_event_raises(event: Mapping[str, Any]) -> None:
    for reader in (OpenAIAssembler(), AnthropicAssembler()):
        reader.feed(event)
        reader.value()
