"""Embeddings behind any OpenAI-compatible server: POST embeddings, one batch, one attempt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.errors import ContextTooLong, ProviderError
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure, host_of
from agent.llm.retry import Retrier, RetryPolicy
from agent.llm.server import REQUEST_SECONDS, ModelServer
from agent.retrieval.embedding_protocol import (
    EmbeddingKind,
    EmbeddingsUnsupported,
    InputTooLong,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    import numpy as np
    from numpy.typing import NDArray

_PATH = "/embeddings"
_MAX_BATCH = 64  # texts of a call; the lowest limit in wide use is 96 (Cohere's gateway)


class OpenAIBatchEmbedder:
    """`BatchEmbedder` over HTTP. Retries are the caller's: each call is one attempt.

    Vectors come in many shapes; see `read_vectors`. `kind` makes no difference to this protocol.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        *,
        request_seconds: float = REQUEST_SECONDS,
        time_left: Callable[[], float] = lambda: float("inf"),
        max_batch: int = _MAX_BATCH,
        max_concurrency: int | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._server = ModelServer(
            endpoint,
            client,
            retrier=Retrier(RetryPolicy(tries=1), time_left=time_left),
            request_seconds=request_seconds,
        )
        self.max_batch = max_batch
        self.max_concurrency = max_concurrency

    @property
    def name(self) -> str:
        """Model and server: the part of a cache key that says whose vectors they are."""
        server = hashlib.sha256(self._endpoint.base_url.encode()).hexdigest()[:12]
        return f"openai:{self._endpoint.model}@{server}"

    async def embed_batch(
        self, texts: Sequence[str], *, kind: EmbeddingKind
    ) -> NDArray[np.float32]:
        """Embed `texts`; float32 of shape (len(texts), d) in their order, not normalised.

        Raises InputTooLong, EmbeddingsUnsupported (404, 405, 422, 501), AuthenticationFailed,
        UnknownModel, and ProviderError for what may go better next time.
        """
        payload = {"model": self._endpoint.model, "input": list(texts)}
        outcome = await self._server.post(_PATH, payload)
        if isinstance(outcome, Failure):
            raise self._translate(outcome)
        vectors = read_vectors(outcome.value, len(texts))
        if vectors is None:
            raise ProviderError(
                f"{host_of(self._endpoint)} answers with JSON that is not {len(texts)} vectors of "
                f"one length: check PATCHSHOT_EMBED_BASE_URL and {self._endpoint.model_setting}"
            )
        return vectors

    def _translate(self, failure: Failure) -> ProviderError:
        host = host_of(self._endpoint)
        if isinstance(failure.error, ContextTooLong):
            return InputTooLong(
                f"{host} takes no text as long as this ({failure.status}): it is split and sent "
                "again"
            )
        unknown = type(failure.error) is not ProviderError
        if failure.wrong_path or failure.status == 501 or (failure.status == 422 and not unknown):
            return EmbeddingsUnsupported(
                f"{host} has no embeddings ({failure.status}): set PATCHSHOT_EMBED_BASE_URL to a "
                "server that has, or PATCHSHOT_EMBED=off"
            )
        return failure.error


def read_vectors(value: Any, count: int) -> NDArray[np.float32] | None:
    """`count` vectors from the JSON of a reply, float32 of shape (count, d); None if there are not.

    Known shapes: `data[i].embedding` (put in the order of `index` where all have one),
    `embeddings[i]`, `embedding` (flat or nested), a bare list (flat or nested).
    """
    import numpy as np

    rows = _rows(value)
    if len(rows) != count or not count:
        return None
    try:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused below
            vectors = np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):  # ragged rows, or no numbers
        return None
    if vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(vectors).all():
        return None
    return vectors


def _rows(value: Any) -> list[Any]:
    if isinstance(value, dict):
        found = (value.get(name) for name in ("data", "embeddings", "embedding"))
        value = next((item for item in found if item), [])
    if not isinstance(value, list) or not value:
        return []
    if not isinstance(value[0], list | dict):
        return [value]
    if all(isinstance(item, dict) for item in value):
        return [_vector(item) for item in _in_order(value)]
    return [_unwrapped(item) for item in value]


def _in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    indexes = [item.get("index") for item in items]
    whole = [i for i in indexes if isinstance(i, int)]
    if sorted(whole) != list(range(len(items))):
        return items
    return [item for _, item in sorted(zip(whole, items, strict=True), key=lambda pair: pair[0])]


def _vector(item: dict[str, Any]) -> Any:
    return _unwrapped(item.get("embedding"))


def _unwrapped(vector: Any) -> Any:
    """llama.cpp wraps each vector in a list of one."""
    nested = isinstance(vector, list) and len(vector) == 1 and isinstance(vector[0], list)
    return vector[0] if nested else vector
