"""The models of a run: their shared HTTP client, recordings, clock and budget."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.settings import (
    AUTO_CONTEXT,
    CODE_ROUNDS,
    CONTEXT_TOKENS,
    HISTORY_TOKENS,
    Settings,
    environment,
)
from agent.shared.terminal import counted
from agent.types import Usage
from agent.types.events import StageProgress
from agent.types.protocols import ChatModel, Reporter

if TYPE_CHECKING:
    import httpx

    from agent.llm import Budget, BudgetedChatModel, Endpoint, Price, Resolved, Retrier
    from agent.llm.recording import ReplayingChatModel, ReplyGate, ReplyRecording
    from agent.types import Problem
    from agent.types.protocols import TokenCounter

# The pipeline's own clock ends a run at its time limit. Requests and waits are cut off slightly
# later, so that a slow server is reported as an exceeded time limit.
_GRACE_SECONDS = 2.0

# For the count of a reply that is still being written: what English and code have on average, and
# how often it is shown.
_CHARACTERS_A_TOKEN = 4
_TOKENS_A_REPORT = 20

# Estimated tokens of a prompt beside the context: instructions, the issue, and the text that a
# repair call adds. It is only used to choose a model with a large enough window.
_PROMPT_TOKENS = 10_000

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


@dataclass
class Connections:
    """What the models of a run share: HTTP client, clock, recordings, gate; `stack` closes them."""

    stack: AsyncExitStack
    reporter: Reporter = lambda _: None
    time_left: Callable[[], float] = lambda: math.inf
    record: InitVar[Path | None] = None
    replay: InitVar[Path | None] = None
    gate: ReplyGate | None = None
    streaming: bool = False
    _recording: ReplyRecording | None = field(default=None, init=False)
    _replaying: ReplayingChatModel | None = field(default=None, init=False)
    _client: httpx.AsyncClient | None = field(default=None, init=False)

    def __post_init__(self, record: Path | None, replay: Path | None) -> None:
        if record is not None:
            from agent.llm import own_redactor
            from agent.llm.recording import open_recording

            self._recording = open_recording(record, own_redactor().known)
            self.stack.callback(self._recording.close)
        if replay is not None:
            from agent.llm.recording import ReplayingChatModel

            self._replaying = ReplayingChatModel(replay)

    def client(self) -> httpx.AsyncClient:
        """Return the shared HTTP client. The first call creates it."""
        from agent.llm import create_client

        if self._client is None:
            self._client = create_client(ca_bundle=_ca_bundle())
            self.stack.push_async_callback(self._client.aclose)
        return self._client

    async def choose(self, settings: Settings) -> tuple[ChatModel, Price | None]:
        """Make the model of the settings, or of the server's list, or replay a recording; return it
        with the price that its server reports, else that of the table.
        """
        from agent.llm import HttpChatModel, RedactedChatModel, Retrier, find_price, own_redactor

        if self._replaying is not None:
            return self._replaying, find_price(self._replaying.model)
        chosen = endpoint(settings)
        sleep = asyncio.sleep if self.gate is None else self.gate.sleep
        retrier = Retrier(report=self.reporter, time_left=self.time_left, sleep=sleep)
        resolved = await self._resolved(settings, chosen, retrier)
        count = _LiveCount(self.reporter, settings.max_output_tokens)
        model = HttpChatModel(
            resolved.endpoint,
            self.client(),
            make_counter(resolved.endpoint.model),
            temperature=settings.temperature,
            effort=settings.reasoning_effort,
            retrier=retrier,
            request_seconds=settings.request_timeout,
            others=resolved.others,
            on_text=count if self.streaming else lambda _: None,
        )
        key = chosen.api_key.get_secret_value() if chosen.api_key else ""
        redacted = RedactedChatModel(model, own_redactor(key))
        return redacted, resolved.price or find_price(model.model)

    async def _resolved(self, settings: Settings, chosen: Endpoint, retrier: Retrier) -> Resolved:
        from agent.llm import Demand, ModelServer, ceiling, resolve_model

        bounds = [settings.max_cost, ceiling(environment(("RIDGES_MAX_COST_USD",)))]
        demand = Demand(
            prompt_tokens(settings, CONTEXT_TOKENS),
            settings.max_output_tokens,
            min((bound for bound in bounds if bound is not None), default=None),
        )
        server = ModelServer(chosen, self.client(), retrier=retrier)
        return await resolve_model(server, demand)

    async def budgeted(self, settings: Settings) -> BudgetedChatModel:
        """Make the model of the settings within their limits and those of the run's host."""
        from agent.llm import Budget, BudgetedChatModel, ceiling, read_price

        chat, price = await self.choose(settings)
        if settings.prices is not None:
            price = read_price(settings.prices)
        budget = Budget(
            settings.max_cost,
            settings.max_tokens,
            settings.max_calls,
            price,
            ceiling=ceiling(environment(("RIDGES_MAX_COST_USD",))),
            caching=price is not None and price.cache_read < 1,
        )
        return BudgetedChatModel(self._guarded(chat, budget), budget)

    async def locator(
        self, settings: Settings, budgeted: BudgetedChatModel
    ) -> BudgetedChatModel | None:
        """Return the model of the locating call, if any; it leaves enough budget for the patch."""
        if not may_locate(settings):
            return None
        tokens = prompt_tokens(settings, CONTEXT_TOKENS)
        reserve = budgeted.budget.worst_case(tokens, settings.max_output_tokens)
        own = await self._beside(budgeted, settings, settings.side_model, reserve)
        return own or budgeted.beside(reserve)

    async def escalation(
        self, settings: Settings, budgeted: BudgetedChatModel
    ) -> BudgetedChatModel | None:
        """Return the model of repairs and steps; None if it is that of the first call."""
        return await self._beside(budgeted, settings, settings.escalate_model, Usage())

    async def _beside(
        self, budgeted: BudgetedChatModel, settings: Settings, model: str | None, reserve: Usage
    ) -> BudgetedChatModel | None:
        """Make another model that spends from the same budget; None for the same model."""
        if model is None or model == budgeted.model:
            return None
        chat, price = await self.choose(settings.model_copy(update={"model": model}))
        budget = replace(budgeted.budget, price=price)
        return budgeted.beside(reserve, self._guarded(chat, budget), price)

    def _guarded(self, chat: ChatModel, budget: Budget) -> ChatModel:
        """Return the model behind the gate, with each reply that the run gets recorded."""
        if self.gate is not None:
            chat = self.gate.guard(chat, budget)
        if self._recording is None or self._replaying is not None:
            return chat
        from agent.llm.recording import RecordingChatModel

        return RecordingChatModel(chat, self._recording)


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


def endpoint(settings: Settings) -> Endpoint:
    """Return the chat server that the settings choose. Raises ConfigurationError."""
    from agent.llm import ENVIRONMENT_NAMES, choose_endpoint

    return choose_endpoint(settings, environment(ENVIRONMENT_NAMES))


def _ca_bundle() -> str | None:
    """Return REQUESTS_CA_BUNDLE if the variables that httpx itself reads are not set."""
    given = environment(_CERTIFICATES)
    return given.get("REQUESTS_CA_BUNDLE") if len(given) == 1 else None


def make_clock(seconds: float, waited: Callable[[], float] = lambda: 0.0) -> Callable[[], float]:
    """Return what gives the remaining seconds of a run, without the time `waited` for others."""
    deadline = time.monotonic() + seconds + _GRACE_SECONDS
    return lambda: deadline + waited() - time.monotonic()


async def live_call(settings: Settings) -> str:
    """Make one model call for `agent doctor --live`; return the model and the duration as text."""
    from agent.run.prompting import make_prompt
    from agent.types import Message

    async with AsyncExitStack() as stack:
        chat = await Connections(stack, time_left=make_clock(60.0)).budgeted(settings)
        prompt = make_prompt(
            [Message("user", "Reply with the one word: ready")], make_counter(chat.model)
        )
        done = await chat.complete(prompt, max_output_tokens=256)
    cost = done.usage.cost_usd
    price = "" if cost is None else f" for ${cost:.6f}"
    return f"{done.model} answered {done.text.strip()[:40]!r} in {done.seconds:.1f} s{price}"


def in_words(chosen: Endpoint) -> str:
    """Describe the model, its server and the reason, without credentials in the URL."""
    from agent.llm import without_credentials

    model = chosen.model or "a model of the server's list"
    speaks = "" if chosen.kind == "openai" else f" as {chosen.kind}"
    return f"{model} at {without_credentials(chosen.base_url)}{speaks} ({chosen.why})"


def make_counter(model: str | None) -> TokenCounter:
    """Return the exact token counter that fits the model best."""
    from agent.shared.tokens import TiktokenCounter, encoding_for

    return TiktokenCounter(encoding_for(model or ""))


async def open_chat(
    stack: AsyncExitStack, settings: Settings, reporter: Reporter
) -> BudgetedChatModel:
    """Open the configured model for calls outside of a run, within the limits of the settings."""
    return await Connections(stack, reporter, make_clock(settings.timeout)).budgeted(settings)


# ---------------------------------------------------------------------------- what a run may use


def plan_in_words(settings: Settings, problem: Problem, budgets: Sequence[Budget]) -> str:
    """Return what a run may use: `usually 1 or 2 calls, never more than 46 calls, 400,000 tokens,
    $3.06`. Of `budgets`, the one with the highest price counts.
    """
    budget = _dearest(budgets)
    planned = 1 + int(may_locate(settings)) + CODE_ROUNDS + settings.repairs
    tests = 2 if settings.evidence == "independent" else 1
    planned += settings.max_steps + tests * int(may_ask_for_test(settings, problem))
    calls = planned if budget.max_calls is None else min(planned, budget.max_calls)
    written = calls * settings.max_output_tokens
    read = calls * max(prompt_tokens(settings, AUTO_CONTEXT[1]), HISTORY_TOKENS)
    tokens = written + read if budget.max_tokens is None else min(written + read, budget.max_tokens)
    worst = budget.worst_case(max(0, tokens - written), min(written, tokens)).cost_usd
    bounds = [bound for bound in (worst, budget.max_cost, budget.ceiling) if bound is not None]
    dollars = f", ${min(bounds):.2f}" if bounds else ""
    most = f"never more than {counted(calls, 'call')}, {tokens:,} tokens{dollars}"
    return f"usually 1 or 2 calls, {most}" if calls > 1 else most


def _dearest(budgets: Sequence[Budget]) -> Budget:
    """Return the first budget with the highest price; one without a price counts as the highest."""

    def cost(budget: Budget) -> float:
        worst = budget.worst_case(1, 1).cost_usd
        return math.inf if worst is None else worst

    return max(budgets, key=cost)


def may_ask_for_test(settings: Settings, problem: Problem | None = None) -> bool:
    """Whether a call for another test may follow: not where given tests, or none, decide."""
    enough = settings.max_calls is None or settings.max_calls > 1
    return settings.tests and enough and (problem is None or problem.known is None)


def may_locate(settings: Settings) -> bool:
    """Whether a locating call may come before the first call."""
    enough = settings.max_calls is None or settings.max_calls > 1
    return settings.locate == "always" or (settings.locate == "auto" and enough)


def prompt_tokens(settings: Settings, automatic: int) -> int:
    """Return the tokens of a prompt; `automatic`: those of a context whose budget is not fixed."""
    context = settings.context_tokens
    return (automatic if context == "auto" else context) + _PROMPT_TOKENS
