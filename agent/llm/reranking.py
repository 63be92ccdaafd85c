"""Relevance scores of a cross-encoder behind `/rerank`, in the two shapes that servers speak.

    {"query", "documents"} -> {"results": [{"index", "relevance_score"}]}
        Jina, Cohere, vLLM, llama.cpp and most gateways; Voyage calls the list `data`
    {"query", "texts"}     -> [{"index", "score"}]
        Text Embeddings Inference (TEI)

The first shape is tried first. A server that refuses it as an invalid body gets the second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.errors import ContextTooLong, ProviderError
from agent.llm.endpoint import Endpoint, host_of
from agent.llm.failures import Failure
from agent.llm.http import Outcome
from agent.llm.server import ModelServer, Retrier, RetryPolicy
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

PATH = "/rerank"
REQUEST_SECONDS = 30.0
"""A model that takes longer for one batch delays the run more than its order is worth."""

BATCH = 32
"""Texts of one request: the limit that TEI starts with."""

MAX_CHARS = 4_000
"""Characters of a text that are sent. Most cross-encoders read 512 to 2,048 tokens."""

_MIN_CHARS = 500
_INVALID = frozenset({400, 413, 422})  # statuses for a body that a server cannot use
_LISTS = ("results", "data")
_SCORES = ("relevance_score", "score")


class HttpReranker:
    """A `Reranker` over HTTP."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        *,
        time_left: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self._endpoint = endpoint
        self._server = ModelServer(
            endpoint,
            client,
            retrier=Retrier(RetryPolicy(tries=2), time_left=time_left),
            request_seconds=REQUEST_SECONDS,
        )
        self._texts_key = "documents"
        self._chars = MAX_CHARS

    @property
    def name(self) -> str:
        """The model and its server, for messages."""
        return f"{self._endpoint.model or 'reranker'} at {host_of(self._endpoint)}"

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the relevance of each text to the query; the scale is the model's own.

        Secrets are masked first. Raises ProviderError.
        """
        masked = [mask_secrets(text).text for text in (query, *texts)]
        parts = [masked[1:][first : first + BATCH] for first in range(0, len(texts), BATCH)]
        if not parts:
            return []
        found = [await self._batch(masked[0], parts[0])]  # finds out what the server accepts
        found += await asyncio.gather(*(self._batch(masked[0], part) for part in parts[1:]))
        return [score for part in found for score in part]

    async def _batch(self, query: str, texts: Sequence[str]) -> list[float]:
        while True:
            sent = self._texts_key, self._chars
            outcome = await self._server.post(PATH, self._body(query, texts))
            if not isinstance(outcome, Failure):
                return self._read(outcome.value, len(texts))
            if not self._adapt(outcome, sent):
                raise outcome.error

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "query": query[: self._chars],
            self._texts_key: [text[: self._chars] for text in texts],
        }
        if self._texts_key == "texts":
            return {**body, "truncate": True}
        return {**body, "model": self._endpoint.model} if self._endpoint.model else body

    def _adapt(self, outcome: Outcome, sent: tuple[str, int]) -> bool:
        """Whether another body may succeed: the other shape, or shorter texts."""
        assert isinstance(outcome, Failure)
        if sent != (self._texts_key, self._chars):  # another batch has adapted it
            return True
        if isinstance(outcome.error, ContextTooLong) and self._chars > _MIN_CHARS:
            self._chars //= 2
            return True
        if outcome.status in _INVALID and self._texts_key == "documents":
            self._texts_key = "texts"
            return True
        return False

    def _read(self, value: Any, count: int) -> list[float]:
        found = read_scores(value, count)
        if found is None:
            raise ProviderError(
                f"{host_of(self._endpoint)} answers {PATH} with JSON that is not {count} scores: "
                f"check {self._endpoint.url_setting} and {self._endpoint.model_setting}"
            )
        return found


def read_scores(value: Any, count: int) -> list[float] | None:
    """Return the finite scores of `count` texts in their order; None for anything else."""
    if isinstance(value, dict):
        value = next((value[key] for key in _LISTS if isinstance(value.get(key), list)), None)
    if not isinstance(value, list) or len(value) != count:
        return None
    found: dict[int, float] = {}
    for row in value:
        if not isinstance(row, dict) or type(row.get("index")) is not int:
            return None
        score: Any = next((row[key] for key in _SCORES if key in row), None)
        if type(score) not in (int, float) or not math.isfinite(score):
            return None
        found[row["index"]] = float(score)
    return [found[number] for number in range(count)] if found.keys() == set(range(count)) else None
