"""The chat model and the embedder of an HTTP server, in any of the protocols."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.errors import (
    BudgetRefused,
    ContextTooLong,
    EmbeddingsUnsupported,
    InputTooLong,
    PatchshotError,
    ProviderError,
    UnknownModel,
)
from agent.llm.endpoint import Endpoint, host_of
from agent.llm.failures import Failure, one_line, read_error_text
from agent.llm.http import OnText, Outcome, ReplyStream
from agent.llm.protocols.base import ChatCall
from agent.llm.redaction import Redactor, redact
from agent.llm.replies import ReadReply, read_vectors
from agent.llm.server import REQUEST_SECONDS, ModelServer, Retrier
from agent.shared.secrets import mask_secrets
from agent.types import Completion, Prompt, Usage
from agent.types.events import ModelCall, Notice
from agent.types.protocols import ChatModel, Reporter, TokenCounter

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

    from agent.retrieval.embedding import EmbeddingKind


class ChatModelWrapper:
    """Base of a `ChatModel` that adds something to the calls of `inner` in its `complete`."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        """The inner model's name."""
        return self._inner.model


class RedactedChatModel(ChatModelWrapper):
    """A `ChatModel` whose replies hold no secret of this process, as a server may echo its key."""

    def __init__(self, inner: ChatModel, redactor: Redactor) -> None:
        super().__init__(inner)
        self._hide = redactor.in_reply

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model. Raises what it raises."""
        done = await self._inner.complete(
            prompt, max_output_tokens=max_output_tokens, schema=schema
        )
        return replace(done, text=self._hide(done.text), model=self._hide(done.model))


_WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class LoggedChatModel(ChatModelWrapper):
    """A `ChatModel` that reports each call of another one when it ends, also by an exception."""

    def __init__(self, inner: ChatModel, report: Reporter) -> None:
        super().__init__(inner)
        self._report = report

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model. Raises what it raises."""
        clock = asyncio.get_running_loop().time
        started = clock()
        status, error, done = "crashed", "", None
        try:
            done = await self._inner.complete(
                prompt, max_output_tokens=max_output_tokens, schema=schema
            )
            status = "cut-off" if done.finish_reason == "length" else "ok"
        except PatchshotError as raised:
            status, error = dashed_name(raised), str(raised)
            raise
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        finally:
            usage = done.usage if done else None
            self._report(
                ModelCall(
                    kind="chat",
                    model=done.model if done else self.model,
                    status=status,
                    seconds=clock() - started,
                    input_tokens=usage.input_tokens if usage else None,
                    output_tokens=usage.output_tokens if usage else None,
                    cost_usd=usage.cost_usd if usage else None,
                    error=error,
                )
            )
        return done


def dashed_name(value: object) -> str:
    """The class of an error or an event as a status: "context-too-long"."""
    return _WORD_STARTS.sub("-", type(value).__name__).lower()


class HttpChatModel:
    """`ChatModel` over HTTP. A field that the server refuses is left out from then on.

    A prompt with a schema should contain the word JSON. `counter` counts tokens when the server
    does not. `others`: models to try next when the server refuses one that the user has not chosen.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        counter: TokenCounter,
        *,
        temperature: float = 0.0,
        effort: str | None = None,
        retrier: Retrier | None = None,
        request_seconds: float = REQUEST_SECONDS,
        others: Sequence[str] = (),
        on_text: OnText = lambda _: None,
    ) -> None:
        self._endpoint = endpoint
        self._counter = counter
        self._temperature = temperature
        self._effort = effort
        self._retrier = retrier or Retrier()
        self._server = ModelServer(
            endpoint, client, retrier=self._retrier, request_seconds=request_seconds
        )
        self._protocol = self._server.protocol.chat(endpoint)
        self._model = endpoint.model
        self._others = list(others)
        self._on_text = on_text
        self._streams = True

    @property
    def model(self) -> str:
        """The model's name as the server knows it, "default" where the server chooses."""
        return self._model or "default"

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Send the prompt.

        `Completion.text` is "" when the model wrote nothing. `usage.cost_usd` is the server's
        figure or None. Raises ProviderError (or a subclass), and TimeLimitExceeded when the run
        has no time left.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        outcome = await self._post(prompt, max_output_tokens, schema)
        if isinstance(outcome, Failure):
            raise outcome.error
        reply = self._protocol.read(outcome.value)
        if not isinstance(reply, ReadReply):
            excerpt = one_line(redact(str(outcome.value), self._endpoint.api_key), 120)
            raise ProviderError(
                f"{host_of(self._endpoint)} answers with JSON that is no chat completion "
                f"({excerpt}): check {self._endpoint.url_setting}"
            )
        if prompt.dialogue is not None and reply.called is not None:
            reply = replace(reply, text=reply.called.as_text())
        return Completion(
            reply.text,
            reply.model or self.model,
            reply.finish_reason,
            self._usage(prompt, reply),
            clock() - started,
        )

    async def _post(
        self, prompt: Prompt, max_output_tokens: int, schema: Mapping[str, Any] | None
    ) -> Outcome:
        """Send, without the fields that the server refuses: each refusal removes one for good."""
        while True:
            protocol, model = self._protocol, self._model
            body = protocol.body(
                ChatCall(
                    model,
                    prompt.messages,
                    max_output_tokens,
                    self._temperature,
                    schema,
                    prompt.dialogue,
                    self._effort,
                )
            )
            stream: Callable[[], ReplyStream] | None = None
            if self._streams and protocol.streaming is not None:
                fields, assembler = protocol.streaming
                body |= fields
                stream = partial(ReplyStream, assembler, self._on_text)
            outcome = await self._server.post(protocol.path, body, self._as_failure, stream)
            if not isinstance(outcome, Failure):
                return outcome
            refused = outcome.status in (400, 404, 405, 422) and "stream" in outcome.wording.lower()
            if stream is not None and refused:
                self._streams = False
                continue
            adapted = protocol.adapted(outcome, body)
            if adapted is None and not self._next_model(model, outcome):
                return outcome
            if adapted is not None and self._protocol == protocol:
                self._protocol = adapted  # otherwise a concurrent call has adapted it already

    def _as_failure(self, value: Any) -> Failure | None:
        text = self._protocol.read(value)
        return read_error_text(text, self._endpoint) if isinstance(text, str) else None

    def _next_model(self, refused: str, failure: Failure) -> bool:
        forbidden = failure.status == 403 and not isinstance(failure.error, BudgetRefused)
        if not (isinstance(failure.error, UnknownModel) or forbidden):
            return False
        if self._model == refused:
            if not self._others:
                return False
            self._model = self._others.pop(0)
            self._retrier.report(
                Notice(f"{host_of(self._endpoint)} refuses {refused}: taking {self._model}")
            )
        return True

    def _usage(self, prompt: Prompt, reply: ReadReply) -> Usage:
        """The server's figures; zero or absent counts are replaced by our own."""
        return Usage(
            reply.input_tokens or prompt.tokens,
            reply.output_tokens or self._counter.count(reply.text),
            reply.cost_usd,
            1,
            reply.cache_read_tokens,
            reply.cache_write_tokens,
            estimated=not (reply.input_tokens and reply.output_tokens),
        )


# --------------------------------------------------------------------------------------- embeddings

_ERROR_KEYS = ("error", "error_type", "detail")

# How the miners' proxy names an input that the model behind it refuses, in any status. A text of
# fewer characters than `_SURELY_TAKEN` is refused for another reason than its length.
_VALIDATION = re.compile(r"error_type\W{1,8}Validation\b|(?:^|\| )Validation(?: \||$)")
_SURELY_TAKEN = 1_000


class HttpBatchEmbedder:
    """`BatchEmbedder` over HTTP, in the protocol of `endpoint.kind`.

    Each call is one attempt; the caller retries. `kind` makes no difference to these protocols.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        *,
        request_seconds: float = REQUEST_SECONDS,
        time_left: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self._endpoint = endpoint
        self._server = ModelServer(
            endpoint,
            client,
            retrier=Retrier(tries=1, time_left=time_left),
            request_seconds=request_seconds,
            embeddings=True,
        )
        self._protocol = self._server.protocol.embeddings
        self.max_batch = self._protocol.max_batch if self._protocol else 1
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
        masked = [mask_secrets(text).text for text in texts]
        longest = max(map(len, texts))
        body = protocol.body(self._endpoint, masked)
        outcome = await self._server.post(protocol.path, body)
        if isinstance(outcome, Failure):
            raise self._translate(outcome, longest)
        value = outcome.value
        vectors = read_vectors(value, len(texts))
        if vectors is None and isinstance(value, dict) and any(map(value.get, _ERROR_KEYS)):
            # Some proxies report errors with the status 200.
            raise self._translate(read_error_text(json.dumps(value), self._endpoint), longest)
        if vectors is None:
            raise ProviderError(
                f"{host_of(self._endpoint)} answers with JSON that is not {len(texts)} vectors of "
                f"one length: check PATCHSHOT_EMBED_BASE_URL and {self._endpoint.model_setting}"
            )
        self._has_answered = True
        return vectors

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
        is_plain = failure.status == 422 and type(failure.error) is ProviderError
        if (failure.wrong_path or failure.status == 501 or is_plain) and not self._has_answered:
            return EmbeddingsUnsupported(self._unsupported(str(failure.status)))
        return failure.error

    def _unsupported(self, why: str) -> str:
        return (
            f"{host_of(self._endpoint)} has no embeddings ({why}): set PATCHSHOT_EMBED_BASE_URL to "
            "a server that has, or PATCHSHOT_EMBED=off"
        )
