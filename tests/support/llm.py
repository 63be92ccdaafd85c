"""Prompts, endpoints and clocks for the tests of `agent.llm`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr

from agent.llm import Endpoint, HttpChatModel, Retrier, create_client
from agent.types import Message, Prompt
from agent.types.events import Event

KEY = "sk-test-0123456789abcdef"

T = TypeVar("T")


class WordCounter:
    """A `TokenCounter` for which a token is a word."""

    def count(self, text: str) -> int:
        """Words of `text`."""
        return len(text.split())

    def truncate(self, text: str, limit: int) -> str:
        """The first `limit` words."""
        return " ".join(text.split()[:limit])


def make_prompt(user: str = "Fix it, as JSON.", system: str = "You fix code.") -> Prompt:
    """A prompt of a system and a user message, hashed over roles and contents."""
    messages = (Message("system", system), Message("user", user))
    canonical = json.dumps([[m.role, m.content] for m in messages]).encode()
    tokens = sum(len(m.content.split()) + 4 for m in messages)
    return Prompt(messages, hashlib.sha256(canonical).hexdigest(), tokens)


def endpoint(
    base_url: str = "https://llm.example/v1",
    *,
    key: str | None = KEY,
    model: str = "test-model",
    kind: str = "openai",
    run_id: str = "",
) -> Endpoint:
    """An endpoint, of an OpenAI-compatible server where nothing else is said."""
    secret = SecretStr(key) if key else None
    return Endpoint(base_url, secret, model, kind, "a test", run_id=run_id)


@dataclass(slots=True)
class FakeTime:
    """A clock that only sleeping advances, and the events reported meanwhile."""

    left: float = 1000.0
    slept: list[float] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.slept.append(seconds)
        self.left -= seconds
        await asyncio.sleep(0)

    def retrier(self, jitter: float = 0.0, **policy: Any) -> Retrier:
        """A retrier on this clock."""
        return Retrier(
            report=self.events.append,
            time_left=lambda: self.left,
            sleep=self.sleep,
            jitter=lambda: jitter,
            **policy,
        )


def chat_body(content: Any = "hello", **more: Any) -> dict[str, Any]:
    """A usual chat reply with `content`."""
    message = {"role": "assistant", "content": content}
    return {
        "id": "1",
        "model": "test-model-001",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        **more,
    }


def with_model(
    place: Endpoint,
    use: Callable[[HttpChatModel], Awaitable[T]],
    *,
    retrier: Retrier | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    request_seconds: float = 5.0,
    others: Sequence[str] = (),
    effort: str | None = None,
    on_text: Callable[[int], None] = lambda _: None,
) -> T:
    """Run `use` on a chat model with a client of its own."""

    async def run() -> T:
        async with create_client(transport=transport) as client:
            model = HttpChatModel(
                place,
                client,
                WordCounter(),
                retrier=retrier or FakeTime().retrier(),
                request_seconds=request_seconds,
                others=others,
                effort=effort,
                on_text=on_text,
            )
            return await use(model)

    return asyncio.run(run())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(coroutine)
