"""A real HTTP server on the loopback interface that speaks OpenAI's API from a script.

with ScriptedProvider([rate_limited(1), REPLY]) as provider:
    run(base_url=provider.base_url)
assert provider.chats[-1].prompt
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.behaviours import ChatRequest, Step, count_tokens, play, refusal
from tests.support.loopback import HttpServer, Received, Scripted

EMBEDDING_DIMENSION = 64
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class ScriptedProvider(HttpServer):
    """Each chat call takes the next step of the script; the last step repeats.

    `/v1/models` lists the one model, `/v1/embeddings` gives vectors of the words in a text.
    """

    def __init__(self, script: Sequence[Step], *, model: str = "scripted") -> None:
        super().__init__()
        self.model = model
        self.chats: list[ChatRequest] = []
        self.script = list(script)

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"{self.url}/v1"

    def answer(self, request: Received) -> Scripted:
        match request.target.split("?", 1)[0]:
            case "/v1/chat/completions":
                return self._chat(ChatRequest(request.headers, request.json))
            case "/v1/embeddings":
                return self._embed(request.json)
            case "/v1/models":
                entry = {"id": self.model, "object": "model"}
                return Scripted({"object": "list", "data": [entry]})
            case path:
                return refusal(404, f"Unknown request URL: {path}", "unknown_url")

    def _chat(self, request: ChatRequest) -> Scripted:
        with self.lock:
            self.chats.append(request)
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return play(step, request)

    def _embed(self, body: Mapping[str, Any]) -> Scripted:
        given = body["input"]
        texts = [given] if isinstance(given, str) else given
        data = [
            {"object": "embedding", "index": index, "embedding": embed_text(text)}
            for index, text in enumerate(texts)
        ]
        used = sum(map(count_tokens, texts))
        usage = {"prompt_tokens": used, "total_tokens": used}
        return Scripted({"object": "list", "model": self.model, "data": data, "usage": usage})


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
