"""Every reply and every error of every protocol, through the transports: one table each.

What the rows hold was seen from the servers, or read in their documentation and sources.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest

from agent.errors import (
    AuthenticationFailed,
    BudgetRefused,
    ContextTooLong,
    EmbeddingsUnsupported,
    InputTooLong,
    ProviderError,
    ProviderUnreachable,
    UnknownModel,
)
from agent.llm import HttpBatchEmbedder, HttpChatModel, create_client
from agent.types import Completion
from tests.support.llm import FakeTime, endpoint, make_prompt, run, with_model

RUN = "6d6f1f9e-6a43-4f1c-9d1b-0d5b1b0f8a55"
HTML_502 = "<html>\r\n<head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
HTML_403 = "<html>\r\n<head><title>403 Forbidden</title></head><body>nginx</body></html>"
HTML_413 = "<html><head><title>413 Request Entity Too Large</title></head></html>"
DROPPED = httpx.RemoteProtocolError("Server disconnected without sending a response.")
UPSTREAM_413 = json.dumps(
    {"error": "`inputs` must have less than 512 tokens. Given: 900", "error_type": "Validation"}
)


@dataclass(frozen=True, slots=True)
class Said:
    """What a server says to every request: `body` as JSON (bytes as they are), or an error."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None

    def response(self) -> httpx.Response:
        """As httpx gives it. Raises the transport error that stands for it."""
        if self.error is not None:
            raise self.error
        if isinstance(self.body, bytes):
            return httpx.Response(self.status, content=self.body, headers=self.headers)
        text = json.dumps(self.body).encode()
        return httpx.Response(self.status, content=text, headers=self.headers)


def html(page: str, status: int) -> Said:
    return Said(page.encode(), status)


def openai(content: Any, finish: str | None = "stop", **message: Any) -> Said:
    message = {"role": "assistant", "content": content, **message}
    return Said({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})


def anthropic(*blocks: dict[str, Any], stop: str = "end_turn") -> Said:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3}
    body = {"type": "message", "content": list(blocks), "stop_reason": stop, "usage": usage}
    return Said(body)


def failed(error: Any, status: int = 200) -> Said:
    return Said({"error": error}, status)


def detail(text: Any, status: int) -> Said:
    return Said({"detail": text}, status)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def argument(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "value": value}


REPLIES: Sequence[tuple[str, str, Said, tuple[str, str]]] = [
    # The miners' proxy
    ("P1 string", "miner", Said("the patch"), ("the patch", "unknown")),
    ("P1 JSON in a string", "miner", Said('{"edits": []}'), ('{"edits": []}', "unknown")),
    (
        "P1 a patch that talks of errors",
        "miner",
        Said('{"error": "x", "edits": []}'),
        ('{"error": "x", "edits": []}', "unknown"),
    ),
    (
        "P1 empty",
        "miner",
        Said("Chutes API returned empty response for model m. This may indicate API issues."),
        ("", "unknown"),
    ),
    ("P1 cut at 2,048 tokens", "miner", Said('{"edits": [{"a'), ('{"edits": [{"a', "length")),
    ("P1 cut in a fence", "miner", Said('```json\n{"a'), ('```json\n{"a', "length")),
    ("P2 empty string", "miner", Said(""), ("", "unknown")),
    ("P3", "miner", Said({"content": "hi", "tool_calls": []}), ("hi", "unknown")),
    ("P3 empty", "miner", Said({"content": "", "tool_calls": []}), ("", "unknown")),
    (
        "P3 tool call",
        "miner",
        Said({"content": "", "tool_calls": [{"name": "t", "arguments": [argument("a", 1)]}]}),
        ('{"a": 1}', "unknown"),
    ),
    ("P3 thinking", "miner", Said({"content": "<think>hm</think>\nhi"}), ("hi", "unknown")),
    # OpenAI and OpenRouter
    ("choices", "openai", openai("hi"), ("hi", "stop")),
    ("parts", "openai", openai([text("a"), {"type": "thinking"}, text("b")]), ("ab", "stop")),
    ("length", "openai", openai("cut", "length"), ("cut", "length")),
    ("empty", "openai", openai(""), ("", "stop")),
    ("null", "openai", openai(None), ("", "stop")),
    ("reasoning field", "openai", openai("hi", reasoning_content="hm"), ("hi", "stop")),
    ("reasoning only", "openai", openai("", reasoning_content="{}"), ("{}", "stop")),
    ("reasoning cut off", "openai", openai("", "length", reasoning="hm"), ("", "length")),
    ("think block", "openai", openai("<think>\n{}\n</think>\n\nhi"), ("hi", "stop")),
    ("think cut off", "openai", openai("<think>so far", "length"), ("", "length")),
    ("think never closed", "openai", openai("<think>{}"), ("<think>{}", "stop")),
    ("think without its begin", "openai", openai("hm\n</think>\nhi"), ("hi", "stop")),
    (
        "the tag in code",
        "openai",
        openai('```\n"\n</think>\n```'),
        ('```\n"\n</think>\n```', "stop"),
    ),
    ("refusal", "openai", openai(None, refusal="no"), ("no", "refusal")),
    ("OpenRouter", "openrouter", openai("hi"), ("hi", "stop")),
    # Anthropic
    ("text block", "anthropic", anthropic(text("hi")), ("hi", "stop")),
    (
        "thinking blocks",
        "anthropic",
        anthropic(
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            text("a"),
            text("b"),
        ),
        ("ab", "stop"),
    ),
    ("stop sequence", "anthropic", anthropic(text("hi"), stop="stop_sequence"), ("hi", "stop")),
    ("cut off", "anthropic", anthropic(text("hi"), stop="max_tokens"), ("hi", "length")),
    (
        "window full",
        "anthropic",
        anthropic(text("hi"), stop="model_context_window_exceeded"),
        ("hi", "length"),
    ),
    ("refused", "anthropic", anthropic(stop="refusal"), ("", "refusal")),
    (
        "tool use",
        "anthropic",
        anthropic({"type": "tool_use", "name": "reply", "input": {"a": 1}}, stop="tool_use"),
        ('{"a": 1}', "stop"),
    ),
    ("no block", "anthropic", anthropic(), ("", "stop")),
]

# Kind of error, and how often the request is sent: once for what is final, four times else. What
# OpenAI and Anthropic refuse is in `test_failures`.
CHAT_ERRORS: Sequence[tuple[str, str, Said, type[Exception], int]] = [
    # The miners' proxy
    ("P1 error", "miner", failed("Error in inference request: x"), ProviderUnreachable, 4),
    (
        "P1 unknown model",
        "miner",
        failed("Model m not supported. Available models: ['a', 'b']"),
        UnknownModel,
        1,
    ),
    ("P1 words", "miner", failed("HTTP error: 429 - slow down"), ProviderUnreachable, 4),
    ("P1 budget", "miner", detail("has reached the maximum cost (2.0)", 429), BudgetRefused, 1),
    ("P1 unknown run", "miner", detail("Evaluation run not found", 404), ProviderError, 1),
    (
        "P2 failure as a string",
        "miner",
        Said("Error in ChutesProvider._inference(): APIConnectionError: Connection error."),
        ProviderUnreachable,
        4,
    ),
    (
        "P2 error as a string",
        "miner",
        Said('{"detail": "Infrastructure is at maximum capacity, try again later"}'),
        ProviderUnreachable,
        4,
    ),
    ("P2 page as a string", "miner", Said(HTML_502), ProviderUnreachable, 4),
    ("P2 no UUID", "miner", detail("run_id: should be a valid UUID", 422), ProviderError, 1),
    ("P3 null content", "miner", detail([{"msg": "a valid string"}], 422), ProviderError, 1),
    (
        "P3 unknown model",
        "miner",
        detail("The model m is not supported by Ridges for inference.", 404),
        UnknownModel,
        1,
    ),
    (
        "P3 cost limit",
        "miner",
        detail("has reached or exceeded the evaluation run cost limit of 0.29 USD", 429),
        BudgetRefused,
        1,
    ),
    ("P3 429", "miner", detail('{"detail":"Too many requests"}', 429), ProviderUnreachable, 4),
    (
        "P3 run is over",
        "miner",
        detail("The evaluation run with ID x is not in the running_agent state (x).", 400),
        ProviderError,
        1,
    ),
    ("P3 dropped", "miner", Said(error=DROPPED), ProviderUnreachable, 4),
    ("P3 gateway", "miner", html(HTML_502, 502), ProviderUnreachable, 4),
    ("P3 body too large", "miner", html(HTML_413, 413), ContextTooLong, 1),
    ("P3 no JSON", "miner", Said(b"<not json"), ProviderUnreachable, 4),
    # OpenRouter, and the miners' proxy before it (P4)
    ("P4 model", "openrouter", failed("Model m is not allowed", 403), AuthenticationFailed, 1),
    (
        "P4 budget",
        "openrouter",
        failed("Cost budget exceeded for this evaluation", 429),
        BudgetRefused,
        1,
    ),
    (
        "provider error in a 200",
        "openrouter",
        failed({"code": 502, "message": "Provider error", "metadata": {"raw": "overloaded"}}),
        ProviderUnreachable,
        4,
    ),
    (
        "error of a choice",
        "openrouter",
        Said({"choices": [{"error": {"code": 429, "message": "rate limited"}}]}),
        ProviderUnreachable,
        4,
    ),
    ("no credit", "openrouter", failed({"code": 402, "message": "x"}), ProviderError, 1),
    # How often requests are sent
    ("waiting", "openai", Said("", 429, {"retry-after": "2"}), ProviderUnreachable, 4),
    ("waiting too long", "openai", Said("", 429, {"retry-after": "999"}), ProviderUnreachable, 1),
    ("half a body", "openai", Said(b'{"choices": [{"mess'), ProviderUnreachable, 4),
    ("key", "anthropic", failed("invalid x-api-key", 401), AuthenticationFailed, 1),
]

ROW = [1.0, 2.0, 2.0]
VECTORS: Sequence[tuple[str, str, Said]] = [
    ("P1 nested", "miner", Said([ROW])),
    ("P1 flat", "miner", Said(ROW)),
    ("P3", "miner", Said({"embedding": ROW})),
    ("P3 nested", "miner", Said({"embedding": [ROW]})),
    ("data", "openai", Said({"data": [{"index": 0, "embedding": ROW}]})),
    ("OpenRouter", "openrouter", Said({"data": [{"index": 0, "embedding": ROW}]})),
]

EMBEDDING_ERRORS: Sequence[tuple[str, str, Said, type[Exception]]] = [
    (
        "P1 too long",
        "miner",
        failed(f"HTTP error in embedding request: 413 - {UPSTREAM_413}"),
        InputTooLong,
    ),
    ("P1 timed out", "miner", failed("Embedding request timed out."), ProviderUnreachable),
    ("P1 forbidden path", "miner", html(HTML_403, 403), EmbeddingsUnsupported),
    ("P2", "miner", detail("Not implemented", 501), EmbeddingsUnsupported),
    ("P2 field", "miner", detail([{"msg": "Field required"}], 422), EmbeddingsUnsupported),
    ("P3 model", "miner", detail("The model m is not supported by Ridges.", 404), UnknownModel),
    (
        "P3 budget",
        "miner",
        detail("reached or exceeded the evaluation run cost limit of 0.29 USD", 429),
        BudgetRefused,
    ),
    ("not there", "openai", detail("Not Found", 404), EmbeddingsUnsupported),
    ("dropped", "miner", Said(error=DROPPED), ProviderUnreachable),
    ("no vectors", "miner", Said({"embedding": []}), ProviderError),
]


class Server:
    """Says the same to every request, and counts those that ask for a reply."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.posts = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Nothing is known of models."""
        if request.method == "GET":
            return httpx.Response(404)
        self.posts += 1
        return self.said.response()


def ids(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    return [f"{row[1]} {row[0]}" for row in rows]


def chat(kind: str, server: Server) -> Completion:
    async def ask(model: HttpChatModel) -> Completion:
        return await model.complete(make_prompt(), max_output_tokens=100)

    place = endpoint("https://llm.example/v1", model="m", kind=kind, run_id=RUN)
    return with_model(
        place, ask, transport=httpx.MockTransport(server), retrier=FakeTime().retrier()
    )


@pytest.mark.parametrize(("name", "kind", "said", "expected"), REPLIES, ids=ids(REPLIES))
def test_replies(name: str, kind: str, said: Said, expected: tuple[str, str]) -> None:
    done = chat(kind, Server(said))

    assert (done.text, done.finish_reason) == expected


@pytest.mark.parametrize(
    ("name", "kind", "said", "error", "times"), CHAT_ERRORS, ids=ids(CHAT_ERRORS)
)
def test_errors_of_chat_calls(
    name: str, kind: str, said: Said, error: type[Exception], times: int
) -> None:
    server = Server(said)

    with pytest.raises(ProviderError) as caught:
        chat(kind, server)

    assert type(caught.value) is error
    assert ": " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "<" not in str(caught.value).replace("'<not json'", "")
    assert server.posts == times


def embed(kind: str, server: Server) -> Any:
    async def go() -> Any:
        async with create_client(transport=httpx.MockTransport(server)) as client:
            place = endpoint("https://llm.example/v1", model="m", kind=kind, run_id=RUN)
            return await HttpBatchEmbedder(place, client).embed_batch(["text"], kind="document")

    return run(go())


@pytest.mark.parametrize(("name", "kind", "said"), VECTORS, ids=ids(VECTORS))
def test_vectors(name: str, kind: str, said: Said) -> None:
    np.testing.assert_array_equal(embed(kind, Server(said)), np.array([ROW], dtype=np.float32))


@pytest.mark.parametrize(
    ("name", "kind", "said", "error"), EMBEDDING_ERRORS, ids=ids(EMBEDDING_ERRORS)
)
def test_errors_of_embedding_calls(
    name: str, kind: str, said: Said, error: type[Exception]
) -> None:
    with pytest.raises(ProviderError) as caught:
        embed(kind, Server(said))

    assert type(caught.value) is error


def test_anthropic_has_no_embeddings_and_is_not_asked() -> None:
    server = Server(Said({}))

    with pytest.raises(EmbeddingsUnsupported, match="PATCHSHOT_EMBED_BASE_URL"):
        embed("anthropic", server)
    assert server.posts == 0
