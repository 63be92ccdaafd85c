"""The chat model, the HTTP client that all calls share, recordings and the budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent.protocols import ChatModel, Reporter
from agent.services.context import make_counter
from agent.settings import Settings, environment

if TYPE_CHECKING:
    import httpx

    from agent.llm.budget import Budget, BudgetedChatModel
    from agent.llm.endpoint import Endpoint
    from agent.llm.models import Resolved
    from agent.llm.prices import Price
    from agent.llm.recording import Recorder
    from agent.llm.remote_budget import RemoteBudget
    from agent.llm.replay import Recording
    from agent.llm.retry import Retrier

# The pipeline's own clock ends a run at its time limit. Requests and waits are cut a moment later,
# so that a slow server is reported as the time limit that it is.
_GRACE_SECONDS = 2.0

# What a prompt holds beside the context: instructions, the issue, and what a repair call adds.
# Only for choosing a model whose window is large enough.
_PROMPT_TOKENS = 10_000

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


class Client:
    """The one HTTP client, made when first needed, closed with the stack."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._client: httpx.AsyncClient | None = None

    def get(self) -> httpx.AsyncClient:
        """The client, made at the first call."""
        from agent.llm.http import create_client

        if self._client is None:
            self._client = create_client(ca_bundle=_ca_bundle())
            self._stack.push_async_callback(self._client.aclose)
        return self._client


class Tapes:
    """What is recorded to and replayed from, if anything."""

    def __init__(
        self,
        stack: AsyncExitStack,
        record: Path | None = None,
        replay: Path | None = None,
        reporter: Reporter = lambda _: None,
    ) -> None:
        self.recorder: Recorder | None = None
        self.recording: Recording | None = None
        if record is not None:
            from agent.llm.recording import Recorder
            from agent.llm.redaction import Redactor
            from agent.settings import secret_values

            hide = Redactor(secret_values()).known
            self.recorder = stack.enter_context(Recorder(record, hide, reporter))
        if replay is not None:
            from agent.llm.replay import Recording

            self.recording = Recording(replay)


class Gate(Protocol):
    """What stands between a run's budget and its model where runs share a budget and a rate."""

    def guard(self, chat: ChatModel, budget: Budget, /) -> ChatModel:
        """The model that is called instead; `budget` tells worst cases and prices."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Wait before a request is sent again."""
        ...


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The chat model with what its server tells of prices and of the run's budget."""

    chat: ChatModel
    price: Price | None = None
    host: RemoteBudget | None = None


def endpoint(settings: Settings) -> Endpoint:
    """The chat server that the settings choose. Raises ConfigurationError."""
    from agent.llm.choice import ProviderSettings, choose_endpoint
    from agent.llm.sources import ENVIRONMENT_NAMES

    protocol = None if settings.protocol == "auto" else settings.protocol
    return choose_endpoint(
        ProviderSettings(
            settings.base_url, settings.api_key, settings.model, protocol, settings.run_id
        ),
        environment(ENVIRONMENT_NAMES),
    )


async def make_chat_model(
    stack: AsyncExitStack,
    settings: Settings,
    client: Client,
    reporter: Reporter,
    time_left: Callable[[], float],
    tapes: Tapes,
    gate: Gate | None = None,
) -> ChosenModel:
    """The model that the settings choose, or the recording that stands for it.

    Asks the server for its list of models where the settings name none.
    """
    if tapes.recording is not None:
        from agent.llm.replay import ReplayingChatModel

        return ChosenModel(ReplayingChatModel(tapes.recording))
    if is_local(settings):
        from agent.llm.prices import Price

        made = ChosenModel(_local_model(stack, settings), Price(0.0, 0.0))
    else:
        sleep = asyncio.sleep if gate is None else gate.sleep
        made = await _http_model(settings, client, reporter, time_left, sleep)
    if tapes.recorder is not None:
        from agent.llm.recording import RecordingChatModel

        return ChosenModel(RecordingChatModel(made.chat, tapes.recorder), made.price, made.host)
    return made


def is_local(settings: Settings) -> bool:
    """Whether the model runs on this machine, in a process of our own.

    So say a model or a base URL that begins with `local:`, and a model file with neither.
    """
    named = (settings.model, settings.base_url)
    if any((name or "").startswith("local:") for name in named):  # agent.llm.local_model.PREFIX
        return True
    return settings.local_model is not None and not any(named)


def _local_model(stack: AsyncExitStack, settings: Settings) -> ChatModel:
    from agent.llm.local_model import LocalChatModel, local_options

    options = local_options(
        settings.model or "",
        settings.local_model,
        context=settings.local_context,
        threads=settings.local_threads,
        temperature=settings.temperature,
    )
    model = LocalChatModel(options, make_counter(options.name))
    stack.push_async_callback(model.aclose)
    return model


async def _http_model(
    settings: Settings,
    client: Client,
    reporter: Reporter,
    time_left: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> ChosenModel:
    from agent.llm.call_log import counting_tries
    from agent.llm.chat import HttpChatModel
    from agent.llm.remote_budget import remote_budget
    from agent.llm.retry import Retrier

    chosen = endpoint(settings)
    retrier = Retrier(report=counting_tries(reporter), time_left=time_left, sleep=sleep)
    host = remote_budget(chosen, client.get(), reporter)
    resolved = await _resolved(settings, chosen, client, retrier, host)
    model = HttpChatModel(
        resolved.endpoint,
        client.get(),
        make_counter(resolved.endpoint.model),
        temperature=settings.temperature,
        caching=settings.prompt_cache,
        retrier=retrier,
        request_seconds=settings.request_timeout,
        others=resolved.others,
    )
    return ChosenModel(model, resolved.price, host)


async def _resolved(
    settings: Settings,
    chosen: Endpoint,
    client: Client,
    retrier: Retrier,
    host: RemoteBudget | None,
) -> Resolved:
    from agent.llm.models import Demand, resolve_model
    from agent.llm.remote_budget import ceiling
    from agent.llm.server import ModelServer

    bounds = [settings.max_cost, ceiling(environment(("RIDGES_MAX_COST_USD",)))]
    if host is not None and not chosen.model:
        spent = await host.ask()
        bounds.append(spent.remaining if spent else None)
    demand = Demand(
        settings.context_tokens + _PROMPT_TOKENS,
        settings.max_output_tokens,
        min((bound for bound in bounds if bound is not None), default=None),
    )
    return await resolve_model(ModelServer(chosen, client.get(), retrier=retrier), demand)


def within_budget(
    settings: Settings, chosen: ChosenModel, gate: Gate | None = None
) -> BudgetedChatModel:
    """The model behind the limits on cost, tokens and calls, those of the run's host included."""
    from agent.llm.budget import Budget, BudgetedChatModel
    from agent.llm.prices import Price, find_price
    from agent.llm.remote_budget import ceiling

    price = chosen.price or find_price(chosen.chat.model)
    if settings.price_input is not None and settings.price_output is not None:
        price = Price(settings.price_input, settings.price_output)
    budget = Budget(
        settings.max_cost,
        settings.max_tokens,
        settings.max_calls,
        price,
        ceiling=ceiling(environment(("RIDGES_MAX_COST_USD",))),
        caching=settings.prompt_cache and price is not None and price.cache_read < 1,
    )
    chat = chosen.chat if gate is None else gate.guard(chosen.chat, budget)
    return BudgetedChatModel(chat, budget, chosen.host)


def _ca_bundle() -> str | None:
    """What REQUESTS_CA_BUNDLE names, where the variables that httpx reads itself are not set.

    Containers behind a proxy with a certificate of its own may set only that one.
    """
    given = environment(_CERTIFICATES)
    return given.get("REQUESTS_CA_BUNDLE") if len(given) == 1 else None


def make_clock(seconds: float, waited: Callable[[], float] = lambda: 0.0) -> Callable[[], float]:
    """What is left of a run that takes at most `seconds` from now, with a moment of grace.

    What it has `waited` for others in between does not count.
    """
    deadline = time.monotonic() + seconds + _GRACE_SECONDS
    return lambda: deadline + waited() - time.monotonic()


async def live_call(settings: Settings) -> str:
    """One real call, for `agent doctor --live`: what answered, and how fast."""
    from agent.prompting import make_prompt
    from agent.types import Message

    async with AsyncExitStack() as stack:
        made = await make_chat_model(
            stack, settings, Client(stack), lambda _: None, make_clock(60.0), Tapes(stack)
        )
        chat = within_budget(settings, made)
        prompt = make_prompt(
            [Message("user", "Reply with the one word: ready")], make_counter(chat.model)
        )
        done = await chat.complete(prompt, max_output_tokens=256)
    cost = done.usage.cost_usd
    price = "" if cost is None else f" for ${cost:.6f}"
    return f"{done.model} answered {done.text.strip()[:40]!r} in {done.seconds:.1f} s{price}"


def model_in_words(settings: Settings) -> str:
    """Which chat model would be asked, where, and why, for `agent doctor`. Asks nobody."""
    if is_local(settings):
        from agent.llm.local_model import local_options

        options = local_options(settings.model or "", settings.local_model)
        return f"{options.name} in a process of its own, no network ({options.path})"
    return in_words(endpoint(settings))


def in_words(chosen: Endpoint) -> str:
    """Which model, where, and why; without what a URL may carry of credentials."""
    from agent.llm.endpoint import without_credentials

    model = chosen.model or "a model of the server's list"
    speaks = "" if chosen.kind == "openai" else f" as {chosen.kind}"
    unused = f"; not used: {', '.join(chosen.unused)}" if chosen.unused else ""
    return f"{model} at {without_credentials(chosen.base_url)}{speaks} ({chosen.why}{unused})"
