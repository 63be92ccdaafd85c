"""Between an instance's budget and its model: replies are paid once, and only with leave.

A reply that an earlier attempt has kept is served from its tape. Any other call asks the driver
first, and its reply is on the disk before anybody sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from agent.batch.tape import Tape
from agent.errors import BudgetExceeded, BudgetRefused, ProviderError
from agent.llm.budget import Budget
from agent.llm.exchange import ChatExchange, completion_of, exchange_of
from agent.protocols import ChatModel
from agent.types import Completion, Prompt, Usage


class Desk(Protocol):
    """Where a worker asks for leave and tells what it paid: the driver, however far away."""

    async def ask(self, sha256: str, worst_usd: float | None) -> str:
        """Waits for leave to pay a call; why there is none, or ""."""
        ...

    async def pace(self) -> None:
        """Waits until one more request may be sent."""
        ...

    async def paid(self, exchange: ChatExchange, usage: Usage) -> None:
        """A reply is on the disk. On return it is where the next attempt will find it."""
        ...

    def dropped(self, sha256: str, *, charged: bool) -> None:
        """A call with leave has given no reply."""
        ...


class Guard:
    """Makes guarded models for one instance: the seam that `agent.services.open_services` has.

    `salvage` set: a call under way is waited for, and its reply kept, when the run is cancelled.
    `refused` is why the driver gave no leave; `broke`: the provider says that nothing is left.
    """

    def __init__(self, tape: Tape, desk: Desk) -> None:
        self.tape = tape
        self.desk = desk
        self.salvage = False
        self.refused = ""
        self.broke = False

    def guard(self, chat: ChatModel, budget: Budget) -> ChatModel:
        """`chat`, guarded. `budget` tells prices and worst cases; its limits are held outside."""
        return GuardedChatModel(chat, budget, self)

    async def sleep(self, seconds: float) -> None:
        """Wait before a request is sent again: it too has to keep the pace."""
        await asyncio.sleep(seconds)
        await self.desk.pace()


class GuardedChatModel:
    """A `ChatModel`; made by `Guard`."""

    def __init__(self, inner: ChatModel, budget: Budget, guard: Guard) -> None:
        self._inner = inner
        self._budget = budget
        self._guard = guard

    @property
    def model(self) -> str:
        """The inner model's name."""
        return self._inner.model

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The kept reply, or a new one; its usage carries its cost.

        Raises BudgetExceeded where the driver gives no leave, what the inner model raises, and
        OSError when the reply cannot be kept.
        """
        guard, asked = self._guard, self._inner.model
        kept = guard.tape.take(prompt, asked, max_output_tokens)
        if kept is not None:
            return completion_of(kept)
        worst = self._budget.worst_case(prompt.tokens, max_output_tokens)
        guard.refused = await self._leave(prompt, worst.cost_usd)
        if guard.refused:
            raise BudgetExceeded(guard.refused)
        done = await self._call(prompt, max_output_tokens, schema)
        return await self._keep(prompt, asked, max_output_tokens, done)

    async def _leave(self, prompt: Prompt, worst_usd: float | None) -> str:
        """Waits for leave; what comes too late is given back."""
        try:
            return await self._guard.desk.ask(prompt.sha256, worst_usd)
        except asyncio.CancelledError:
            self._guard.desk.dropped(prompt.sha256, charged=False)
            raise

    async def _call(
        self, prompt: Prompt, max_output_tokens: int, schema: Mapping[str, Any] | None
    ) -> Completion:
        """The call itself. One that is cancelled is finished first where `salvage` says so."""
        desk, asked = self._guard.desk, self._inner.model
        call = asyncio.create_task(
            self._inner.complete(prompt, max_output_tokens=max_output_tokens, schema=schema)
        )
        try:
            return await asyncio.shield(call)
        except ProviderError as error:
            self._guard.broke = isinstance(error, BudgetRefused)
            desk.dropped(prompt.sha256, charged=False)
            raise
        except asyncio.CancelledError:
            if not self._guard.salvage:
                call.cancel()
            await asyncio.wait([call])
            if call.cancelled() or call.exception() is not None:
                desk.dropped(prompt.sha256, charged=True)
            else:
                await self._keep(prompt, asked, max_output_tokens, call.result())
            raise

    async def _keep(
        self, prompt: Prompt, asked: str, max_output_tokens: int, done: Completion
    ) -> Completion:
        """The reply with its cost, once it is on the disk and told."""
        done = replace(done, usage=self._budget.priced(done.usage))
        exchange = exchange_of(prompt, asked, max_output_tokens, done)
        self._guard.tape.add(exchange)
        await self._guard.desk.paid(exchange, done.usage)
        return done
