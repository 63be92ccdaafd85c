"""Embeddings of an HTTP server, in any of the protocols: one batch, one attempt."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.errors import (
    BudgetRefused,
    ContextTooLong,
    EmbeddingsUnsupported,
    InputTooLong,
    ProviderError,
)
from agent.llm.endpoint import Endpoint, host_of
from agent.llm.failures import Failure, read_error_text
from agent.llm.http import Outcome
from agent.llm.protocols.base import EmbeddingProtocol
from agent.llm.server import REQUEST_SECONDS, ModelServer, Retrier, RetryPolicy
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    import numpy as np
    from numpy.typing import NDArray

    from agent.retrieval.embedding import EmbeddingKind

_ERROR_KEYS = ("error", "error_type", "detail")

# How the miners' proxy names an input that the model behind it refuses, in any status. A text of
# fewer characters than `_SURELY_TAKEN` is refused for another reason than its length.
_VALIDATION = re.compile(r"error_type\W{1,8}Validation\b|(?:^|\| )Validation(?: \||$)")
_SURELY_TAKEN = 1_000


class HttpBatchEmbedder:
    """`BatchEmbedder` over HTTP, in the protocol of `endpoint.kind`.

    Each call is one attempt; the caller retries. `kind` makes no difference to these protocols.
    `max_batch` None: as many texts as the protocol takes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        *,
        request_seconds: float = REQUEST_SECONDS,
        time_left: Callable[[], float] = lambda: float("inf"),
        max_batch: int | None = None,
        max_concurrency: int | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._server = ModelServer(
            endpoint,
            client,
            retrier=Retrier(RetryPolicy(tries=1), time_left=time_left),
            request_seconds=request_seconds,
            embeddings=True,
        )
        make = self._server.protocol.embeddings
        self._protocol: EmbeddingProtocol | None = make(endpoint) if make else None
        largest = self._protocol.max_batch if self._protocol else 1
        self.max_batch = min(max_batch or largest, largest)
        self.max_concurrency = max_concurrency
        self._has_answered = False

    @property
    def name(self) -> str:
        """Model and server, as part of a cache key."""
        server = hashlib.sha256(self._endpoint.base_url.encode()).hexdigest()[:12]
        return f"{self._endpoint.kind}:{self._endpoint.model or 'default'}@{server}"

    async def embed_batch(
        self, texts: Sequence[str], *, kind: EmbeddingKind
    ) -> NDArray[np.float32]:
        """Embed `texts`; float32 of shape (len(texts), d) in their order, not normalised.

        Raises InputTooLong, EmbeddingsUnsupported (404, 405, 422, 501), AuthenticationFailed,
        UnknownModel, BudgetRefused, and ProviderError for failures that may pass.
        """
        protocol = self._protocol
        if protocol is None:
            raise EmbeddingsUnsupported(self._unsupported("its protocol has none"))
        # Secrets must not leave this machine; masking keeps the number and order of the texts.
        outcome, protocol = await self._post(protocol, [mask_secrets(text).text for text in texts])
        longest = max(map(len, texts))
        if isinstance(outcome, Failure):
            raise self._translate(outcome, longest)
        vectors = protocol.read(outcome.value, len(texts))
        if vectors is None:
            raise self._no_vectors(outcome.value, len(texts), longest)
        self._has_answered = True
        return vectors

    def _no_vectors(self, value: Any, count: int, longest: int) -> ProviderError:
        """The error for JSON without vectors. Some proxies report errors with the status 200."""
        if isinstance(value, dict) and any(value.get(key) for key in _ERROR_KEYS):
            return self._translate(read_error_text(json.dumps(value), self._endpoint), longest)
        return ProviderError(
            f"{host_of(self._endpoint)} answers with JSON that is not {count} vectors of "
            f"one length: check PATCHSHOT_EMBED_BASE_URL and {self._endpoint.model_setting}"
        )

    async def _post(
        self, protocol: EmbeddingProtocol, texts: Sequence[str]
    ) -> tuple[Outcome, EmbeddingProtocol]:
        """Send, without the fields that the server refuses. Returns the protocol used, too."""
        while True:
            body = protocol.body(self._endpoint.model, texts)
            outcome = await self._server.post(protocol.path, body)
            adapted = protocol.adapted(outcome, body) if isinstance(outcome, Failure) else None
            if adapted is None:
                return outcome, protocol
            self._protocol = protocol = adapted

    def _translate(self, failure: Failure, longest: int) -> ProviderError:
        """The error of a failure. `longest`: characters of the longest text that was sent."""
        invalid = longest > _SURELY_TAKEN and _VALIDATION.search(failure.wording)
        if invalid or isinstance(failure.error, ContextTooLong):
            return InputTooLong(
                f"{host_of(self._endpoint)} takes no text as long as this ({failure.status}): it "
                "is split and sent again"
            )
        if isinstance(failure.error, BudgetRefused):
            return failure.error
        unknown = type(failure.error) is not ProviderError or self._has_answered
        if failure.wrong_path or failure.status == 501 or (failure.status == 422 and not unknown):
            return EmbeddingsUnsupported(self._unsupported(str(failure.status)))
        return failure.error

    def _unsupported(self, why: str) -> str:
        return (
            f"{host_of(self._endpoint)} has no embeddings ({why}): set PATCHSHOT_EMBED_BASE_URL to "
            "a server that has, or PATCHSHOT_EMBED=off"
        )
