"""The chat model, the HTTP client that all calls share, recordings and the budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from agent.protocols import ChatModel, Reporter
from agent.services.context import make_counter
from agent.settings import Settings, environment

if TYPE_CHECKING:
    import httpx

    from agent.llm.budget import BudgetedChatModel
    from agent.llm.endpoint import Endpoint
    from agent.llm.recording import Recorder
    from agent.llm.replay import Recording

# The pipeline's own clock ends a run at its time limit. Requests and waits are cut a moment later,
# so that a slow server is reported as the time limit that it is.
_GRACE_SECONDS = 2.0


class Client:
    """The one HTTP client, made when first needed, closed with the stack."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._client: httpx.AsyncClient | None = None

    def get(self) -> httpx.AsyncClient:
        """The client, made at the first call."""
        from agent.llm.http import create_client

        if self._client is None:
            self._client = create_client()
            self._stack.push_async_callback(self._client.aclose)
        return self._client


class Tapes:
    """What is recorded to and replayed from, if anything."""

    def __init__(
        self, stack: AsyncExitStack, record: Path | None = None, replay: Path | None = None
    ) -> None:
        self.recorder: Recorder | None = None
        self.recording: Recording | None = None
        if record is not None:
            from agent.llm.recording import Recorder

            self.recorder = stack.enter_context(Recorder(record))
        if replay is not None:
            from agent.llm.replay import Recording

            self.recording = Recording(replay)


def endpoint(settings: Settings) -> Endpoint:
    """The chat server that the settings choose. Raises ConfigurationError."""
    from agent.llm.endpoint import ENVIRONMENT_NAMES, ProviderSettings, choose_endpoint

    return choose_endpoint(
        ProviderSettings(settings.base_url, settings.api_key, settings.model),
        environment(ENVIRONMENT_NAMES),
    )


def make_chat_model(
    settings: Settings,
    client: Client,
    reporter: Reporter,
    time_left: Callable[[], float],
    tapes: Tapes,
) -> ChatModel:
    """The model that the settings choose, or the recording that stands for it."""
    if tapes.recording is not None:
        from agent.llm.replay import ReplayingChatModel

        return ReplayingChatModel(tapes.recording)
    from agent.llm.openai_chat import OpenAIChatModel
    from agent.llm.retry import Retrier

    chosen = endpoint(settings)
    model: ChatModel = OpenAIChatModel(
        chosen,
        client.get(),
        make_counter(chosen.model),
        temperature=settings.temperature,
        retrier=Retrier(report=reporter, time_left=time_left),
        request_seconds=settings.request_timeout,
    )
    if tapes.recorder is not None:
        from agent.llm.recording import RecordingChatModel

        model = RecordingChatModel(model, tapes.recorder)
    return model


def within_budget(settings: Settings, chat: ChatModel) -> BudgetedChatModel:
    """The model behind the limits on cost, tokens and calls."""
    from agent.llm.budget import Budget, BudgetedChatModel
    from agent.llm.prices import Price, find_price

    price = find_price(chat.model)
    if settings.price_input is not None and settings.price_output is not None:
        price = Price(settings.price_input, settings.price_output)
    budget = Budget(settings.max_cost, settings.max_tokens, settings.max_calls, price)
    return BudgetedChatModel(chat, budget)


def make_clock(seconds: float) -> Callable[[], float]:
    """What is left of a run that takes at most `seconds` from now, with a moment of grace."""
    deadline = time.monotonic() + seconds + _GRACE_SECONDS
    return lambda: deadline - time.monotonic()


async def live_call(settings: Settings) -> str:
    """One real call, for `agent doctor --live`: what answered, and how fast."""
    from agent.prompting import make_prompt
    from agent.types import Message

    async with AsyncExitStack() as stack:
        chat = make_chat_model(
            settings, Client(stack), lambda _: None, make_clock(60.0), Tapes(stack)
        )
        prompt = make_prompt(
            [Message("user", "Reply with the one word: ready")], make_counter(chat.model)
        )
        done = await chat.complete(prompt, max_output_tokens=256)
    return f"{done.model} answered {done.text.strip()[:40]!r} in {done.seconds:.1f} s"


def in_words(chosen: Endpoint) -> str:
    """Which model, where, and why; without what a URL may carry of credentials."""
    from agent.llm.endpoint import without_credentials

    return f"{chosen.model} at {without_credentials(chosen.base_url)} ({chosen.why})"
