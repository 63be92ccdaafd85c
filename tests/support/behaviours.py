"""The steps of a scripted model server: good replies and the ways they go wrong.

A step is the text of a completion, or a function of the call that gives a text or a whole answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.support.loopback import Scripted

_CHARACTERS_PER_TOKEN = 4  # the numbers need only be plausible and stable
_HTML = "<html><head><title>Bad Gateway</title></head><body>nginx</body></html>"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One recorded chat call: headers in lower case, the body as decoded JSON."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """The text of all messages, one after the other."""
        return "\n".join(_text(message.get("content")) for message in self.body["messages"])


Step = str | Callable[[ChatRequest], str | Scripted]

MALFORMED = 'I would change it like this: {"edits": [{"path": "pkg/mod.py", "search": "a" "b"'


def play(step: Step, request: ChatRequest) -> Scripted:
    """What a step sends for a call."""
    result = step if isinstance(step, str) else step(request)
    return completion(request, result) if isinstance(result, str) else result


def wrong_path(path: str = "no/such/module.py") -> str:
    """A well-formed edit of a file that the repository does not have."""
    edit = {"path": path, "search": "old", "replace": "new"}
    return json.dumps({"thought": "Wrong file.", "edits": [edit]})


def truncated(reply: str) -> Step:
    """The first half of `reply`, cut off at the output limit."""
    return lambda request: completion(request, reply[: len(reply) // 2], finish_reason="length")


def slow(seconds: float, then: Step) -> Step:
    """The same as `then`, later."""
    return lambda request: replace(play(then, request), delay=seconds)


def rate_limited(retry_after: int) -> Step:
    """429 with a Retry-After header, in seconds."""
    refused = refusal(429, "Rate limit reached for requests", "rate_limit_exceeded")
    return lambda _: replace(refused, headers={"Retry-After": str(retry_after)})


def drop_connection(_: ChatRequest) -> Scripted:
    """The connection closes before a single byte of the answer."""
    return Scripted(fault="drop")


def html_error(_: ChatRequest) -> Scripted:
    """A gateway's own page in place of JSON."""
    return Scripted(_HTML, 502, content_type="text/html")


def unauthorized(_: ChatRequest) -> Scripted:
    """401: the key is not accepted."""
    return refusal(401, "Incorrect API key provided.", "invalid_api_key")


def echo_key(request: ChatRequest) -> Scripted:
    """401 with the very key that was sent, as careless gateways answer."""
    sent = request.headers.get("authorization", "")
    return refusal(401, f"Incorrect API key provided: {sent.split()[-1]}", "invalid_api_key")


def unknown_model(request: ChatRequest) -> Scripted:
    """404: the server does not have the model that was asked for."""
    name = request.body.get("model")
    return refusal(404, f"The model `{name}` does not exist.", "model_not_found")


def schema_refused(then: Step) -> Step:
    """A server without constrained replies: 400 to a call that asks for one, else `then`."""
    message = "Invalid parameter: 'response_format' is not supported with this model."
    refused = refusal(400, message, "unsupported_parameter")
    return lambda call: refused if call.body.get("response_format") else play(then, call)


def context_limit(limit: int, then: Step) -> Step:
    """A model that takes `limit` tokens, the reply included: 400 beyond, in OpenAI's words."""

    def step(request: ChatRequest) -> Scripted:
        asked = count_tokens(request.prompt) + request.body["max_tokens"]
        if asked <= limit:
            return play(then, request)
        message = (
            f"This model's maximum context length is {limit} tokens. However, you requested "
            f"{asked} tokens. Please reduce the length of the messages or completion."
        )
        return refusal(400, message, "context_length_exceeded")

    return step


def completion(request: ChatRequest, text: str, *, finish_reason: str = "stop") -> Scripted:
    """A chat completion of `text`, with usage numbers that follow the lengths of both sides."""
    used, made = count_tokens(request.prompt), count_tokens(text)
    message = {"role": "assistant", "content": text}
    return Scripted(
        {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": request.body.get("model", ""),
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {
                "prompt_tokens": used,
                "completion_tokens": made,
                "total_tokens": used + made,
            },
        }
    )


def refusal(status: int, message: str, code: str) -> Scripted:
    """An error body as OpenAI's API writes it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return Scripted({"error": error}, status)


def count_tokens(text: str) -> int:
    """A stable count: characters over four, rounded up."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _text(content: object) -> str:
    """The text of a message's content, a string or a list of typed parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""
