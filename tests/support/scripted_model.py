"""A chat model that answers from a list: the deterministic `ChatModel` of the tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.types import Completion, Prompt, Usage

Reply = str | Completion | BaseException


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """What one call asked for."""

    prompt: Prompt
    max_output_tokens: int
    schema: Mapping[str, Any] | None


@dataclass(slots=True)
class ScriptedChatModel:
    """Gives `replies` in order and keeps every call in `calls`.

    A str becomes a finished completion whose usage is `prompt.tokens` in and one token a word out,
    a Completion is returned as it is, an exception is raised. A call past the last reply fails.
    """

    replies: Iterable[Reply]
    model: str = "scripted"
    calls: list[ScriptedCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replies = iter(tuple(self.replies))

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts received so far, in order."""
        return tuple(call.prompt for call in self.calls)

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The next reply."""
        self.calls.append(ScriptedCall(prompt, max_output_tokens, schema))
        reply = next(iter(self.replies), None)
        if reply is None:
            raise AssertionError(f"call {len(self.calls)} to the scripted model has no reply")
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Completion):
            return reply
        usage = Usage(prompt.tokens, len(reply.split()), 0.0, 1)
        return Completion(reply, self.model, "stop", usage, 0.0)
