"""What the fault server answers in each protocol: completions, vectors, refusals.

Shapes follow the providers' API references, and for the miners' proxy what its generations were
observed to send. Where a proxy checks its input, so does this: a run id that is no UUID (P2), a
missing temperature, a content that is no text, a model that it does not have.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.support.behaviours import ChatRequest, completion, count_tokens
from tests.support.scripted_provider import embed_text

MODEL = "scripted"
KEY = "sk-loopback-0123456789abcdef"
WRONG_DIMENSION = 5

Generation = Literal["p1", "p2", "p3"]
Json = Any


@dataclass(frozen=True, slots=True)
class Refused(Exception):
    """A request that the server does not take: status and message."""

    status: int
    message: str


class OpenAI:
    """OpenAI's chat completions and embeddings; OpenRouter speaks the same."""

    def allowed(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == f"Bearer {KEY}"

    def chat(self, body: Mapping[str, Json], text: str) -> Json:
        _known(body)
        return json.loads(completion(ChatRequest({}, body), text).body)

    def embed(self, body: Mapping[str, Json], vectors: Sequence[Sequence[float]]) -> Json:
        _known(body)
        rows = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ]
        return {"object": "list", "model": body["model"], "data": rows}

    def refusal(self, status: int, message: str) -> Json:
        return {"error": {"message": message, "type": "server_error", "code": None}}

    def error_in_200(self) -> Json:
        return {"error": {"message": "Provider returned error", "code": 502}}

    def too_long(self) -> tuple[int, Json]:
        message = "This model's maximum context length is 512 tokens, you requested 900 tokens"
        return 400, self.refusal(400, message)

    def beyond(self, window: int, counted: int) -> tuple[int, Json]:
        message = (
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {counted} tokens. Please reduce the length of the messages."
        )
        return 400, self.refusal(400, message)


class Anthropic:
    """Anthropic's Messages."""

    def allowed(self, headers: Mapping[str, str]) -> bool:
        return headers.get("x-api-key") == KEY and "anthropic-version" in headers

    def chat(self, body: Mapping[str, Json], text: str) -> Json:
        _known(body)
        if "max_tokens" not in body:
            raise Refused(400, "max_tokens: Field required")
        if any(message["role"] == "system" for message in body["messages"]):
            raise Refused(400, "messages: Unexpected role 'system'")
        usage = {"input_tokens": count_tokens(json.dumps(body["messages"])), "output_tokens": 9}
        return {
            "id": "msg_scripted",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": _anthropic_content(body, text),
            "stop_reason": "tool_use" if body.get("tools") and text else "end_turn",
            "usage": usage,
        }

    def embed(self, body: Mapping[str, Json], vectors: Sequence[Sequence[float]]) -> Json:
        raise Refused(404, "Not found")

    def refusal(self, status: int, message: str) -> Json:
        kind = "overloaded_error" if status >= 500 else "rate_limit_error"
        return {"type": "error", "error": {"type": kind, "message": message}}

    def error_in_200(self) -> Json:
        return self.refusal(500, "Overloaded")

    def too_long(self) -> tuple[int, Json]:
        return 404, self.refusal(404, "Not found")

    def beyond(self, window: int, counted: int) -> tuple[int, Json]:
        message = f"prompt is too long: {counted} tokens > {window} maximum"
        return 400, {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": message},
        }


@dataclass(frozen=True, slots=True)
class Miner:
    """The proxy of the miners' containers, in one of its generations."""

    generation: Generation = "p3"

    def allowed(self, headers: Mapping[str, str]) -> bool:
        return True

    def chat(self, body: Mapping[str, Json], text: str) -> Json:
        self._check(body)
        if self.generation != "p3":
            return text
        return {"content": text, "tool_calls": []}

    def embed(self, body: Mapping[str, Json], vectors: Sequence[Sequence[float]]) -> Json:
        self._check_run(body)
        if not isinstance(body.get("input"), str):
            raise Refused(422, "input: Input should be a valid string")
        if self.generation == "p2":
            raise Refused(501, "Not Implemented")
        return {"embedding": vectors[0]} if self.generation == "p3" else [vectors[0]]

    def refusal(self, status: int, message: str) -> Json:
        if self.generation == "p1":
            return {"error": message}
        return {"detail": message}

    def error_in_200(self) -> Json:
        return {"error": "Error in inference request: upstream connection failed"}

    def too_long(self) -> tuple[int, Json]:
        inner = {"error": "`inputs` must have less than 512 tokens", "error_type": "Validation"}
        message = f"Error in embedding request: 413 - {json.dumps(inner)}"
        return (200, {"error": message}) if self.generation == "p1" else (413, {"detail": message})

    def beyond(self, window: int, counted: int) -> tuple[int, Json]:
        message = (
            f"Error in inference request: 400 - This model's maximum context length is {window} "
            f"tokens. However, you requested {counted} tokens in the messages."
        )
        return (200, {"error": message}) if self.generation == "p1" else (400, {"detail": message})

    def _check(self, body: Mapping[str, Json]) -> None:
        self._check_run(body)
        if any(not isinstance(message.get("content"), str) for message in body["messages"]):
            raise Refused(422, "messages: content: Input should be a valid string")
        if self.generation != "p1":
            if "temperature" not in body:
                raise Refused(422, "temperature: Field required")
            _known(body)

    def _check_run(self, body: Mapping[str, Json]) -> None:
        name = "evaluation_run_id" if self.generation == "p3" else "run_id"
        if name not in body:
            raise Refused(422, f"{name}: Field required")
        if self.generation != "p1":
            try:
                uuid.UUID(body[name])
            except ValueError:
                raise Refused(422, f"{name}: Input should be a valid UUID") from None


Dialect = OpenAI | Anthropic | Miner
"""One protocol: how a call of it is checked and answered."""


def dialect_of(path: str, generation: Generation) -> Dialect | None:
    """Which protocol a path belongs to."""
    if path.startswith("/anthropic/") or path.endswith("/messages"):
        return Anthropic()
    if path.split("/")[-1] in ("inference", "embedding"):
        return Miner(generation)
    if path.endswith(("/chat/completions", "/embeddings")):
        return OpenAI()
    return None


def tokens_of(body: Mapping[str, Json]) -> int:
    """The tokens of a prompt, as this server counts."""
    return count_tokens(json.dumps([body.get("system"), body["messages"]]))


def texts_of(body: Mapping[str, Json]) -> list[str]:
    """The texts that a call wants vectors of."""
    given = body.get("input", "")
    return [given] if isinstance(given, str) else list(given)


def vectors_of(texts: Sequence[str], *, wrong: bool = False) -> list[list[float]]:
    """Deterministic vectors; `wrong`: of another dimension than usual."""
    return [[1.0] * WRONG_DIMENSION if wrong else embed_text(text) for text in texts]


def lists_of(path: str) -> Json | None:
    """What a GET answers: lists of models. None where there is nothing."""
    match path.strip("/").split("/"):
        case [*_, "models"]:
            return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        case [*_, "inference-models" | "embedding-models"]:
            return [{"name": MODEL, "dimensions": 64}]
    return None


def _known(body: Mapping[str, Json]) -> None:
    if body.get("model") != MODEL:
        raise Refused(404, f"The model `{body.get('model')}` does not exist.")


def _anthropic_content(body: Mapping[str, Json], text: str) -> list[Json]:
    """A tool call where a tool is forced and the text is its arguments, else a text block."""
    tools = body.get("tools")
    if tools and text.startswith("{"):
        name = tools[0]["name"]
        return [{"type": "tool_use", "id": "toolu_1", "name": name, "input": json.loads(text)}]
    return [{"type": "text", "text": text}]
