"""OpenRouter: OpenAI's protocol, with the cost of each call, and prompt caching where it is marked.

Errors of the provider behind it come inside a 200 (`error`, or `choices[0].error`); see
`agent.llm.failures`. Sources: https://openrouter.ai/docs/api/reference/errors-and-debugging,
https://openrouter.ai/docs/use-cases/usage-accounting (`usage.cost`, in dollars),
https://openrouter.ai/docs/guides/best-practices/prompt-caching
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure
from agent.llm.protocols.anthropic import CACHED, breakpoints
from agent.llm.protocols.base import ChatCall, Provider, ServerProtocol, Streaming
from agent.llm.protocols.openai import (
    Dialect,
    OpenAIChat,
    OpenAIEmbeddings,
    bearer,
    read_models,
    versioned_roots,
)
from agent.llm.replies import ReadReply

# Vendors whose models cache only what is marked; the others' do so by themselves.
_MARKED_VENDORS = ("anthropic/",)


@dataclass(frozen=True, slots=True)
class OpenRouterChat:
    """POST chat/completions, with markers for the vendors that need them."""

    inner: OpenAIChat = field(default_factory=lambda: OpenAIChat(Dialect()))
    caching: bool = True

    @property
    def path(self) -> str:
        """As OpenAI's."""
        return self.inner.path

    def body(self, call: ChatCall) -> dict[str, Any]:
        """OpenAI's request; marked contents are lists of parts."""
        body = self.inner.body(call)
        if "reasoning_effort" in body:
            body["reasoning"] = {"effort": body.pop("reasoning_effort")}
        marks = self.caching and call.caching
        if not marks or not call.model.startswith(_MARKED_VENDORS):
            return body
        marked = breakpoints([message["role"] for message in body["messages"]])
        for position, message in enumerate(body["messages"]):
            if position in marked:
                part = {"type": "text", "text": message["content"], "cache_control": CACHED}
                message["content"] = [part]
        return body

    @property
    def streaming(self) -> Streaming:
        """As OpenAI's."""
        return self.inner.streaming

    def read(self, value: Any) -> ReadReply | str | None:
        """As OpenAI's."""
        return self.inner.read(value)

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> OpenRouterChat | None:
        """Leaves out what is refused, the markers too."""
        if self.caching and "cache_control" in failure.wording:
            return replace(self, caching=False)
        inner = self.inner.adapted(failure, sent)
        return None if inner is None else replace(self, inner=inner)

    def plainer(self) -> OpenRouterChat:
        """As OpenAI's."""
        return replace(self, inner=self.inner.plainer())


def _headers(endpoint: Endpoint) -> Mapping[str, str]:
    return {**bearer(endpoint), "x-title": "patchshot"}  # the name that the user's own log shows


OPENROUTER = ServerProtocol(
    name="openrouter",
    roots=versioned_roots,
    headers=_headers,
    chat=lambda _: OpenRouterChat(),
    embeddings=lambda _: OpenAIEmbeddings(),
    read_models=read_models,
    provider=Provider(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "sk-or-",
        "anthropic/claude-sonnet-5.5",
        before_proxies=True,
    ),
    list_chooses=True,
)
