"""A real HTTP server on the loopback interface that speaks OpenAI's API from a script.

    with ScriptedProvider([RateLimited(), Good(reply)]) as provider:
        run(base_url=provider.base_url)
    assert provider.chats[-1].prompt

Each chat call takes the next step of the script; the last step repeats. `/v1/models` lists the one
model and `/v1/embeddings` gives deterministic vectors of the identifiers in a text. Every request
is recorded, those that are refused or dropped included.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.behaviours import (
    Answer,
    Behaviour,
    ChatRequest,
    Computed,
    count_tokens,
    json_answer,
    refusal,
)
from tests.support.loopback import HttpServer, Received

EMBEDDING_DIMENSION = 64
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

Step = Behaviour | Callable[[ChatRequest], str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it arrived. `body` is decoded JSON, empty for GET."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class ScriptedProvider(HttpServer):
    """The server, as a context manager. `requests` and `chats` keep the order of arrival."""

    def __init__(self, script: Sequence[Step], *, model: str = "scripted") -> None:
        if not script:
            raise ValueError("a script needs at least one step")
        super().__init__()
        self.model = model
        self.requests: list[Recorded] = []
        self.chats: list[ChatRequest] = []
        self._steps = [Computed(step) if callable(step) else step for step in script]

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"{self.url}/v1"

    def serve(self, handler: BaseHTTPRequestHandler, received: Received) -> None:
        """Answer one request, and record it."""
        body = received.json if received.body else {}
        request = Recorded(received.method, received.target, received.headers, body)
        answer = self.route(request)
        self._closing.wait(answer.delay)
        if answer.dropped:
            handler.close_connection = True
        else:
            _send(handler, answer)

    def route(self, request: Recorded) -> Answer:
        """What to send for `request`; also records it."""
        with self._lock:
            self.requests.append(request)
        path = request.path.split("?", 1)[0]
        if path == "/v1/chat/completions":
            return self._chat(ChatRequest(request.headers, request.body))
        if path == "/v1/embeddings":
            return self._embed(request.body)
        if path == "/v1/models":
            return json_answer({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        return refusal(404, f"Unknown request URL: {path}", "unknown_url")

    def _chat(self, request: ChatRequest) -> Answer:
        with self._lock:
            self.chats.append(request)
            step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return step.answer(request)

    def _embed(self, body: Mapping[str, Any]) -> Answer:
        given = body["input"]
        texts = [given] if isinstance(given, str) else list(given)
        data = [
            {"object": "embedding", "index": index, "embedding": embed_text(text)}
            for index, text in enumerate(texts)
        ]
        used = sum(map(count_tokens, texts))
        usage = {"prompt_tokens": used, "total_tokens": used}
        return json_answer({"object": "list", "model": self.model, "data": data, "usage": usage})


def embed_text(text: str) -> list[float]:
    """A hashed bag of the words inside identifiers: EMBEDDING_DIMENSION floats of length 1.

    Each word adds +1 or -1 to one component (feature hashing with a sign: Weinberger et al., 2009);
    a text without words gives the first unit vector.
    """
    vector = [0.0] * EMBEDDING_DIMENSION
    for word in _WORDS.findall(text):
        digest = hashlib.blake2b(word.lower().encode(), digest_size=8).digest()
        vector[digest[0] % EMBEDDING_DIMENSION] += 1.0 if digest[1] % 2 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0.0:
        return [1.0] + [0.0] * (EMBEDDING_DIMENSION - 1)
    return [value / length for value in vector]


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    try:
        handler.send_response(answer.status)
        handler.send_header("Content-Type", answer.content_type)
        handler.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(answer.body)
    except (BrokenPipeError, ConnectionResetError):
        handler.close_connection = True  # the client has given up waiting, as a slow step intends
