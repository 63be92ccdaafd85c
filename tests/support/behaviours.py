"""What a scripted model server does with one chat call: good replies and the ways they go wrong.

A behaviour is a frozen value with one method, `answer(request)`, which says what is sent.
Bodies follow OpenAI's chat completions API: `choices[].message.content`, `finish_reason`, `usage`,
and `{"error": {"message", "type", "code"}}` for refusals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

_CHARACTERS_PER_TOKEN = 4  # a usual rule of thumb; the numbers need only be plausible and stable


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One recorded chat call: headers in lower case, the body as decoded JSON."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """The text of all messages, one after the other."""
        return "\n".join(_text(message.get("content")) for message in self.body["messages"])

    @property
    def wants_schema(self) -> bool:
        """Whether the call asks for a constrained reply."""
        return self.body.get("response_format") is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent: `delay` seconds later, or nothing at all when `dropped`."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    dropped: bool = False


class Behaviour(Protocol):
    """One step of a script."""

    def answer(self, request: ChatRequest) -> Answer:
        """What to send."""
        ...


@dataclass(frozen=True, slots=True)
class Good:
    """A finished completion with this text."""

    reply: str

    def answer(self, request: ChatRequest) -> Answer:
        return completion(request, self.reply)


@dataclass(frozen=True, slots=True)
class Computed:
    """A finished completion whose text is made from the request."""

    reply: Callable[[ChatRequest], str]

    def answer(self, request: ChatRequest) -> Answer:
        return completion(request, self.reply(request))


@dataclass(frozen=True, slots=True)
class Malformed(Good):
    """A finished completion that talks of a change but holds no readable edit."""

    reply: str = 'I would change it like this: {"edits": [{"path": "pkg/mod.py", "search": "a" "b"'


@dataclass(frozen=True, slots=True)
class Truncated:
    """The first half of `reply`, cut off at the output limit."""

    reply: str

    def answer(self, request: ChatRequest) -> Answer:
        return completion(request, self.reply[: len(self.reply) // 2], finish_reason="length")


@dataclass(frozen=True, slots=True)
class WrongPath:
    """A well-formed edit of a file that the repository does not have."""

    path: str = "no/such/module.py"

    @property
    def reply(self) -> str:
        """The text of the completion."""
        edit = {"path": self.path, "search": "old", "replace": "new"}
        return json.dumps({"thought": "Wrong file.", "edits": [edit]})

    def answer(self, request: ChatRequest) -> Answer:
        return completion(request, self.reply)


@dataclass(frozen=True, slots=True)
class EmptyCompletion(Good):
    """Status 200 and a completion without text."""

    reply: str = ""


@dataclass(frozen=True, slots=True)
class Slow:
    """The same as `then`, `seconds` later."""

    seconds: float
    then: Behaviour

    def answer(self, request: ChatRequest) -> Answer:
        answer = self.then.answer(request)
        return replace(answer, delay=answer.delay + self.seconds)


@dataclass(frozen=True, slots=True)
class RateLimited:
    """429 with a Retry-After header, in seconds."""

    retry_after: int = 0

    def answer(self, request: ChatRequest) -> Answer:
        refused = refusal(429, "Rate limit reached for requests", "rate_limit_exceeded")
        return replace(refused, headers={"Retry-After": str(self.retry_after)})


@dataclass(frozen=True, slots=True)
class DropConnection:
    """The connection closes before a single byte of the answer."""

    def answer(self, request: ChatRequest) -> Answer:
        return Answer(dropped=True)


@dataclass(frozen=True, slots=True)
class HtmlError:
    """A gateway's own page in place of JSON."""

    status: int = 502

    def answer(self, request: ChatRequest) -> Answer:
        page = b"<html><head><title>Bad Gateway</title></head><body>nginx</body></html>"
        return Answer(self.status, page, "text/html")


@dataclass(frozen=True, slots=True)
class Unauthorized:
    """401: the key is not accepted."""

    def answer(self, request: ChatRequest) -> Answer:
        return refusal(401, "Incorrect API key provided.", "invalid_api_key")


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """404: the server does not have the model that was asked for."""

    def answer(self, request: ChatRequest) -> Answer:
        name = request.body.get("model")
        return refusal(404, f"The model `{name}` does not exist.", "model_not_found")


@dataclass(frozen=True, slots=True)
class SchemaRefused:
    """A server without constrained replies: 400 to a call that asks for one, else `then`."""

    then: Behaviour

    def answer(self, request: ChatRequest) -> Answer:
        if not request.wants_schema:
            return self.then.answer(request)
        message = "Invalid parameter: 'response_format' is not supported with this model."
        return refusal(400, message, "unsupported_parameter")


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """A model that takes `limit` tokens, the reply included: 400 beyond, in OpenAI's words."""

    limit: int
    then: Behaviour

    def answer(self, request: ChatRequest) -> Answer:
        used, wanted = count_tokens(request.prompt), request.body["max_tokens"]
        if used + wanted <= self.limit:
            return self.then.answer(request)
        message = (
            f"This model's maximum context length is {self.limit} tokens. However, you requested "
            f"{used + wanted} tokens ({used} in the messages, {wanted} in the completion). Please "
            "reduce the length of the messages or completion."
        )
        return refusal(400, message, "context_length_exceeded")


@dataclass(frozen=True, slots=True)
class EchoesKey:
    """401 with the very key that was sent, as careless gateways answer."""

    def answer(self, request: ChatRequest) -> Answer:
        sent = request.headers.get("authorization", "")
        return refusal(401, f"Incorrect API key provided: {sent.split()[-1]}", "invalid_api_key")


def completion(request: ChatRequest, text: str, *, finish_reason: str = "stop") -> Answer:
    """A chat completion of `text`, with usage numbers that follow the lengths of both sides."""
    used, made = count_tokens(request.prompt), count_tokens(text)
    message = {"role": "assistant", "content": text}
    body = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request.body.get("model", ""),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": used, "completion_tokens": made, "total_tokens": used + made},
    }
    return json_answer(body)


def refusal(status: int, message: str, code: str) -> Answer:
    """An error body as OpenAI's API writes it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return replace(json_answer({"error": error}), status=status)


def json_answer(body: Mapping[str, Any]) -> Answer:
    """Status 200 with `body` as JSON."""
    return Answer(body=json.dumps(body).encode())


def count_tokens(text: str) -> int:
    """A stable count: characters over four, rounded up."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _text(content: object) -> str:
    """The text of a message's content, a string or a list of typed parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""
