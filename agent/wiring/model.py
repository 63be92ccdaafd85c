"""The chat model, the shared HTTP client, recordings and the budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.settings import (
    CONTEXT_TOKENS,
    Settings,
    environment,
)
from agent.types import Usage
from agent.types.events import StageProgress
from agent.types.protocols import ChatModel, Reporter
from agent.wiring.planned_calls import may_locate, prompt_tokens

if TYPE_CHECKING:
    import httpx

    from agent.llm import (
        Budget,
        BudgetedChatModel,
        Endpoint,
        Price,
        RemoteBudget,
        Resolved,
        Retrier,
    )
    from agent.llm.paid_replies import ReplyGate
    from agent.llm.recording import Recorder, Recording
    from agent.types.protocols import TokenCounter

# The pipeline's own clock ends a run at its time limit. Requests and waits are cut off slightly
# later, so that a slow server is reported as an exceeded time limit.
_GRACE_SECONDS = 2.0

# Temperature of several samples, as in Agentless (arXiv:2407.01489, 4.1).
_SAMPLING = 0.8

# For the count of a reply that is still being written: what English and code have on average, and
# how often it is shown.
_CHARACTERS_A_TOKEN = 4
_TOKENS_A_REPORT = 20

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


class SharedClient:
    """The shared HTTP client. It is created on first use and closed with the stack."""

    def __init__(self, stack: AsyncExitStack, *, streaming: bool = False) -> None:
        """`streaming`: whether the length of a streamed reply is shown."""
        self.streaming = streaming
        self._stack = stack
        self._client: httpx.AsyncClient | None = None

    def get(self) -> httpx.AsyncClient:
        """Return the client. The first call creates it."""
        from agent.llm import create_client

        if self._client is None:
            self._client = create_client(ca_bundle=_ca_bundle())
            self._stack.push_async_callback(self._client.aclose)
        return self._client


class Recordings:
    """The recording to write to and the recording to replay from. Both are optional."""

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
            from agent.llm import Redactor
            from agent.llm.recording import Recorder
            from agent.settings import secret_values

            hide = Redactor(secret_values()).known
            self.recorder = stack.enter_context(Recorder(record, hide, reporter))
        if replay is not None:
            from agent.llm.recording import Recording

            self.recording = Recording(replay)


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The chat model, the prices that its server reports, and the budget of the run.

    `recorder` records each reply that the run gets, also one that was paid before.
    """

    chat: ChatModel
    price: Price | None = None
    host: RemoteBudget | None = None
    recorder: Recorder | None = None


def endpoint(settings: Settings) -> Endpoint:
    """Return the chat server that the settings choose. Raises ConfigurationError."""
    from agent.llm import ENVIRONMENT_NAMES, ProviderSettings, choose_endpoint

    protocol = None if settings.protocol == "auto" else settings.protocol
    return choose_endpoint(
        ProviderSettings(settings.base_url, settings.api_key, settings.model, protocol),
        environment(ENVIRONMENT_NAMES),
    )


async def make_chat_model(
    stack: AsyncExitStack,
    settings: Settings,
    client: SharedClient,
    reporter: Reporter,
    time_left: Callable[[], float],
    files: Recordings,
    gate: ReplyGate | None = None,
) -> ChosenModel:
    """Make the model that the settings choose, or replay a recording in its place.

    Asks the server for its list of models if the settings name no model.
    """
    if files.recording is not None:
        from agent.llm.recording import ReplayingChatModel

        return ChosenModel(ReplayingChatModel(files.recording))
    sleep = asyncio.sleep if gate is None else gate.sleep
    made = await _http_model(settings, client, reporter, time_left, sleep)
    return replace(made, recorder=files.recorder)


async def _http_model(
    settings: Settings,
    client: SharedClient,
    reporter: Reporter,
    time_left: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> ChosenModel:
    from agent.llm import HttpChatModel, Retrier, ask_remote_budget, counting_tries

    chosen = endpoint(settings)
    retrier = Retrier(report=counting_tries(reporter), time_left=time_left, sleep=sleep)
    host = ask_remote_budget(chosen, client.get(), reporter)
    resolved = await _resolved(settings, chosen, client, retrier, host)
    shows = client.streaming and settings.samples == 1
    model = HttpChatModel(
        resolved.endpoint,
        client.get(),
        make_counter(resolved.endpoint.model),
        temperature=_temperature(settings),
        effort=settings.reasoning_effort,
        retrier=retrier,
        request_seconds=settings.request_timeout,
        others=resolved.others,
        on_text=_LiveCount(reporter, settings.max_output_tokens) if shows else lambda _: None,
    )
    return ChosenModel(model, resolved.price, host)


def _temperature(settings: Settings) -> float:
    """Return the user's temperature; one at which several samples differ, if there is none."""
    return settings.temperature or (_SAMPLING if settings.samples > 1 else 0.0)


@dataclass(slots=True)
class _LiveCount:
    """Reports the length of a reply so far, which is given in characters."""

    reporter: Reporter
    most: int
    shown: int = 0

    def __call__(self, characters: int) -> None:
        tokens = characters // _CHARACTERS_A_TOKEN
        if tokens < self.shown or tokens - self.shown >= _TOKENS_A_REPORT:
            self.shown = tokens
            self.reporter(StageProgress("call", min(tokens, self.most), self.most))


async def _resolved(
    settings: Settings,
    chosen: Endpoint,
    client: SharedClient,
    retrier: Retrier,
    host: RemoteBudget | None,
) -> Resolved:
    from agent.llm import Demand, ModelServer, ceiling, resolve_model

    bounds = [settings.max_cost, ceiling(environment(("RIDGES_MAX_COST_USD",)))]
    if host is not None and not chosen.model:
        spent = await host.ask()
        bounds.append(spent.remaining if spent else None)
    demand = Demand(
        prompt_tokens(settings, CONTEXT_TOKENS),
        settings.max_output_tokens,
        min((bound for bound in bounds if bound is not None), default=None),
    )
    return await resolve_model(ModelServer(chosen, client.get(), retrier=retrier), demand)


def within_budget(
    settings: Settings, chosen: ChosenModel, gate: ReplyGate | None = None
) -> BudgetedChatModel:
    """Apply the limits on cost, tokens and calls to the model, including those of the run's
    host.
    """
    from agent.llm import Budget, BudgetedChatModel, ceiling, find_price, read_price

    if settings.prices is not None:
        price: Price | None = read_price(settings.prices)
    else:
        price = chosen.price or find_price(chosen.chat.model)
    budget = Budget(
        settings.max_cost,
        settings.max_tokens,
        settings.max_calls,
        price,
        ceiling=ceiling(environment(("RIDGES_MAX_COST_USD",))),
        caching=price is not None and price.cache_read < 1,
    )
    return BudgetedChatModel(_kept(chosen, budget, gate), budget, chosen.host)


def _kept(chosen: ChosenModel, budget: Budget, gate: ReplyGate | None) -> ChatModel:
    """Return the model behind the gate and the recording of the run."""
    chat = chosen.chat if gate is None else gate.guard(chosen.chat, budget)
    if chosen.recorder is not None:
        from agent.llm.recording import RecordingChatModel

        chat = RecordingChatModel(chat, chosen.recorder)
    return chat


async def make_locator(
    settings: Settings,
    budgeted: BudgetedChatModel,
    choose: Callable[[Settings], Awaitable[ChosenModel]],
    gate: ReplyGate | None,
) -> ChatModel | None:
    """Return the model of the locating call, None if there is to be none.

    It leaves enough of the budget for a call for the patch. `choose` makes another model.
    """
    if not may_locate(settings):
        return None
    tokens = prompt_tokens(settings, CONTEXT_TOKENS)
    kept = budgeted.budget.worst_case(tokens, settings.max_output_tokens)
    if settings.side_model is None or settings.side_model == budgeted.model:
        return budgeted.beside(kept)
    chosen = await choose(settings.model_copy(update={"model": settings.side_model}))
    return _beside(budgeted, kept, chosen, gate)


async def make_escalation(
    settings: Settings,
    budgeted: BudgetedChatModel,
    choose: Callable[[Settings], Awaitable[ChosenModel]],
    gate: ReplyGate | None,
) -> BudgetedChatModel | None:
    """Return the model of repairs and steps, None if it is that of the first call.

    It spends from the same budget. `choose` makes another model.
    """
    if settings.escalate_model is None or settings.escalate_model == budgeted.model:
        return None
    chosen = await choose(settings.model_copy(update={"model": settings.escalate_model}))
    return _beside(budgeted, Usage(), chosen, gate)


def _beside(
    budgeted: BudgetedChatModel, kept: Usage, chosen: ChosenModel, gate: ReplyGate | None
) -> BudgetedChatModel:
    from agent.llm import find_price

    price = chosen.price or find_price(chosen.chat.model)
    budget = replace(budgeted.budget, price=price)
    return budgeted.beside(kept, _kept(chosen, budget, gate), price)


def dearest(budgets: Sequence[Budget]) -> Budget:
    """Return the budget with the highest price; one without a price counts as the highest."""
    costs = [budget.worst_case(1, 1).cost_usd for budget in budgets]
    unknown = [budget for budget, cost in zip(budgets, costs, strict=True) if cost is None]
    ranked = sorted(range(len(budgets)), key=lambda i: (costs[i] or 0.0, -i))
    return unknown[0] if unknown else budgets[ranked[-1]]


def _ca_bundle() -> str | None:
    """Return the value of REQUESTS_CA_BUNDLE if the variables that httpx itself reads are not set.

    Containers behind a proxy with its own certificate may set only this variable.
    """
    given = environment(_CERTIFICATES)
    return given.get("REQUESTS_CA_BUNDLE") if len(given) == 1 else None


def make_clock(seconds: float, waited: Callable[[], float] = lambda: 0.0) -> Callable[[], float]:
    """Return a function that gives the remaining seconds of a run, including a short grace period.

    The time that the run has `waited` for other runs is not counted.
    """
    deadline = time.monotonic() + seconds + _GRACE_SECONDS
    return lambda: deadline + waited() - time.monotonic()


async def live_call(settings: Settings) -> str:
    """Make one model call for `agent doctor --live`.

    Return the answering model and the duration as text.
    """
    from agent.run.prompting import make_prompt
    from agent.types import Message

    async with AsyncExitStack() as stack:
        made = await make_chat_model(
            stack,
            settings,
            SharedClient(stack),
            lambda _: None,
            make_clock(60.0),
            Recordings(stack),
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
    """Describe the chat model that would be called, its server, and the reason for the choice.

    `agent doctor` prints this. No request is sent.
    """
    return in_words(endpoint(settings))


def in_words(chosen: Endpoint) -> str:
    """Describe the model, its server and the reason for the choice, without credentials in the
    URL.
    """
    from agent.llm import without_credentials

    model = chosen.model or "a model of the server's list"
    speaks = "" if chosen.kind == "openai" else f" as {chosen.kind}"
    unused = f"; not used: {', '.join(chosen.unused)}" if chosen.unused else ""
    return f"{model} at {without_credentials(chosen.base_url)}{speaks} ({chosen.why}{unused})"


def make_counter(model: str | None) -> TokenCounter:
    """Return the exact token counter that fits the model best."""
    from agent.shared.tokens import TiktokenCounter, encoding_for

    return TiktokenCounter(encoding_for(model or ""))


async def open_chat(
    stack: AsyncExitStack, settings: Settings, reporter: Reporter
) -> BudgetedChatModel:
    """Open the configured model for calls outside of a run, within the limits of the settings.

    Raises ConfigurationError, ProviderError.
    """
    made = await make_chat_model(
        stack,
        settings,
        SharedClient(stack),
        reporter,
        make_clock(settings.timeout),
        Recordings(stack),
    )
    return within_budget(settings, made)
