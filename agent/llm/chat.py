"""The chat model of an HTTP server, in any of the protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.errors import BudgetRefused, ProviderError, UnknownModel
from agent.llm.endpoint import Endpoint, host_of
from agent.llm.failures import Failure, read_error_text
from agent.llm.http import Outcome
from agent.llm.protocols.base import ChatCall
from agent.llm.redaction import one_line, redact
from agent.llm.replies import ReadReply
from agent.llm.server import REQUEST_SECONDS, ModelServer, Retrier
from agent.llm.streaming import OnText, ReplyStream
from agent.types import Completion, Prompt, Usage
from agent.types.events import Notice
from agent.types.protocols import ChatModel, TokenCounter

if TYPE_CHECKING:
    import httpx


class ChatModelWrapper:
    """Base of a `ChatModel` that adds something to the calls of `inner`: override `complete`."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        """The inner model's name."""
        return self._inner.model

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model. Raises what it raises."""
        return await self._inner.complete(
            prompt, max_output_tokens=max_output_tokens, schema=schema
        )


class HttpChatModel:
    """`ChatModel` over HTTP, in the protocol of `endpoint.kind`.

    A field that the server refuses (`max_tokens`, a temperature, a response format) is left out
    from then on. A prompt with a schema should contain the word JSON, because some servers insist
    on it. `counter` counts tokens when the server gives no usage. `others` are models to try next
    when the server does not have `endpoint.model` or forbids it; they are given only when the user
    has not chosen the model. With `on_text`, replies are streamed where the server can, and it is
    told how long they are so far.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        counter: TokenCounter,
        *,
        temperature: float = 0.0,
        caching: bool = True,
        effort: str | None = None,
        retrier: Retrier | None = None,
        request_seconds: float = REQUEST_SECONDS,
        others: Sequence[str] = (),
        on_text: OnText | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._counter = counter
        self._temperature = temperature
        self._caching = caching
        self._effort = effort
        self._retrier = retrier or Retrier()
        self._server = ModelServer(
            endpoint, client, retrier=self._retrier, request_seconds=request_seconds
        )
        self._protocol = self._server.protocol.chat(endpoint)
        self._model = endpoint.model
        self._others = list(others)
        self._on_text = on_text

    @property
    def model(self) -> str:
        """The model's name as the server knows it, "default" where the server chooses."""
        return self._model or "default"

    async def model_names(self) -> tuple[str, ...]:
        """The models that the server lists, sorted; empty when it has no list."""
        return await self._server.model_names()

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
            raise self._unusable(outcome.value)
        if prompt.dialogue is not None and reply.called is not None:
            reply = replace(reply, text=reply.called.as_text())
        if schema is not None:
            self._notice_ignored_format(reply)
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
                    self._caching,
                    prompt.dialogue,
                    self._effort,
                )
            )
            stream = self._stream(one_object=schema is not None)
            if stream is not None and protocol.streaming is not None:
                body |= protocol.streaming.fields
            outcome = await self._server.post(protocol.path, body, self._as_failure, stream)
            if not isinstance(outcome, Failure):
                return outcome
            refused = outcome.status in (400, 404, 405, 422) and "stream" in outcome.wording.lower()
            if stream is not None and refused:
                self._on_text = None
                continue
            adapted = protocol.adapted(outcome, body)
            if adapted is None and not self._next_model(model, outcome):
                return outcome
            if adapted is not None and self._protocol == protocol:
                self._protocol = adapted  # otherwise a concurrent call has adapted it already

    def _stream(self, *, one_object: bool) -> Callable[[], ReplyStream] | None:
        """What makes a reader of a streamed reply; None where replies are not streamed."""
        on_text, streaming = self._on_text, self._protocol.streaming
        if on_text is None or streaming is None:
            return None
        return lambda: ReplyStream(streaming.assembler(), on_text, one_object=one_object)

    def _as_failure(self, value: Any) -> Failure | None:
        """The failure that a server sent as if it were an answer."""
        said = self._protocol.read(value)
        return read_error_text(said, self._endpoint) if isinstance(said, str) else None

    def _next_model(self, refused: str, failure: Failure) -> bool:
        """Whether there is another model to try after `refused`."""
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

    def _notice_ignored_format(self, reply: ReadReply) -> None:
        """A server that answers prose ignores the schema; it may honour a plainer format."""
        finished = reply.finish_reason == "stop" and reply.text.strip()
        if finished and not reply.text.lstrip().startswith(("{", "[")):
            self._protocol = self._protocol.plainer()

    def _usage(self, prompt: Prompt, reply: ReadReply) -> Usage:
        """The server's figures; zero or absent counts are replaced by our own."""
        counted = reply.output_tokens or self._counter.count(reply.text)
        return Usage(
            reply.input_tokens or prompt.tokens,
            counted,
            reply.cost_usd,
            1,
            reply.cache_read_tokens,
            reply.cache_write_tokens,
            estimated=not (reply.input_tokens and reply.output_tokens),
        )

    def _unusable(self, value: Any) -> ProviderError:
        excerpt = one_line(redact(str(value), self._endpoint.api_key), 120)
        return ProviderError(
            f"{host_of(self._endpoint)} answers with JSON that is no chat completion ({excerpt}): "
            f"check {self._endpoint.url_setting}"
        )
