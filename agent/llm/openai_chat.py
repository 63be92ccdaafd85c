"""The chat model behind any OpenAI-compatible server: POST chat/completions, not streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.errors import ProviderError
from agent.llm.dialect import Dialect
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure, host_of
from agent.llm.http import Outcome
from agent.llm.retry import Retrier
from agent.llm.server import REQUEST_SECONDS, ModelServer
from agent.llm.shapes import ReadReply, read_chat_reply
from agent.llm.wording import one_line, redact
from agent.protocols import TokenCounter
from agent.types import Completion, Prompt, Usage

if TYPE_CHECKING:
    import httpx

_PATH = "/chat/completions"


class OpenAIChatModel:
    """`ChatModel` over HTTP.

    What the server refuses (`max_tokens`, a temperature, a response format) is left out from then
    on, for as long as this object lives. A prompt with a schema should contain the word JSON:
    some servers insist on it. `counter` counts tokens where the server gives no usage.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        counter: TokenCounter,
        *,
        temperature: float = 0.0,
        retrier: Retrier | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._counter = counter
        self._temperature = temperature
        self._dialect = Dialect()
        self._retrier = retrier or Retrier()
        self._server = ModelServer(
            endpoint, client, retrier=self._retrier, request_seconds=request_seconds
        )

    @property
    def model(self) -> str:
        """The model's name as the server knows it."""
        return self._endpoint.model

    async def model_names(self) -> tuple[str, ...]:
        """The models that the server offers, sorted; empty when it does not tell."""
        return await self._server.model_names()

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Send the prompt.

        `Completion.text` is "" when the model wrote nothing. `usage.cost_usd` is what the server
        says, else None. Raises ProviderError (or a subclass), and TimeLimitExceeded when the run
        has no time left.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        outcome = await self._post(prompt, max_output_tokens, schema)
        if isinstance(outcome, Failure):
            raise outcome.error
        reply = read_chat_reply(outcome.value)
        if reply is None:
            raise self._unusable(outcome.value)
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
        """Send, leaving out what the server refuses; each refusal removes one thing for good."""
        while True:
            dialect = self._dialect
            options = dialect.options(max_output_tokens, self._temperature, schema)
            messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
            payload = {"model": self.model, "messages": messages, "stream": False, **options}
            outcome = await self._server.post(_PATH, payload)
            if not isinstance(outcome, Failure):
                return outcome
            adapted = dialect.adapted(outcome, options)
            if adapted is None:
                return outcome
            if self._dialect == dialect:  # else a concurrent call has learnt something: use that
                self._dialect = adapted

    def _notice_ignored_format(self, reply: ReadReply) -> None:
        """Whoever answers prose to a schema ignores it; a plainer format may be honoured."""
        finished = reply.finish_reason == "stop" and reply.text.strip()
        if finished and not reply.text.lstrip().startswith(("{", "[")):
            self._dialect = self._dialect.less_strict()

    def _usage(self, prompt: Prompt, reply: ReadReply) -> Usage:
        """As the server says; zeros and absent counts are replaced by counted ones."""
        counted = reply.output_tokens or self._counter.count(reply.text)
        return Usage(reply.input_tokens or prompt.tokens, counted, reply.cost_usd, 1)

    def _unusable(self, value: Any) -> ProviderError:
        excerpt = one_line(redact(str(value), self._endpoint.api_key), 120)
        return ProviderError(
            f"{host_of(self._endpoint)} answers with JSON that is no chat completion ({excerpt}): "
            f"check {self._endpoint.url_setting}"
        )
