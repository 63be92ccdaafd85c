"""A chat model that pays for each reply once, and only with the payer's permission.

A reply that an earlier attempt recorded is served from the recording. Any other call first asks the
payer, and its reply is on the disk before anybody sees it. All attempts append to the recording.
`agent batch` and the kept runs of `agent solve` (`agent.results.kept`) use it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from agent.errors import BudgetExceeded, BudgetRefused, ConfigurationError, ProviderError
from agent.llm.budget import Budget
from agent.llm.clients import ChatModelWrapper
from agent.llm.recording import (
    ChatExchange,
    RecordedMessage,
    completion_of,
    exchange_of,
    format_exchange,
    mask_exchange,
    parse_exchange,
    recorded_messages,
)
from agent.shared.files import AppendFile
from agent.types import Completion, Prompt, Usage
from agent.types.protocols import ChatModel

# Measured times and addresses: "0.12s", "1.5 seconds", "3 ms", "0x7f3a91c0d2e0".
_VARYING = re.compile(r"\b0x[0-9a-fA-F]{4,16}\b|\b\d+(?:\.\d+)?(?= ?(?:ms|s|sec|seconds?)\b)")


class ReplyRecording:
    """The recorded replies of one solve. An attempt gets each of them once.

    New replies are appended, with their texts changed by `hide`, which masks secrets. A reply that
    held a secret is not served again. Raises ConfigurationError if the file holds anything else.
    The caller closes it.
    """

    def __init__(self, path: Path, hide: Callable[[str], str] = str) -> None:
        self._hide = hide
        self._file = AppendFile(path)
        self.exchanges: list[ChatExchange] = list(_read(path))
        self._unused = list(self.exchanges)

    def take(self, prompt: Prompt, model: str, max_output_tokens: int) -> ChatExchange | None:
        """Return the next unused reply to this prompt, None if there is none.

        The recorded prompt has the same hash, or differs only in measured times and addresses,
        which tests print and which a repair prompt quotes.
        """
        fitting = [
            exchange
            for exchange in self._unused
            if not exchange.reply.masked
            and exchange.request.model == model
            and exchange.request.max_output_tokens == max_output_tokens
        ]
        same = [exchange for exchange in fitting if exchange.sha256 == prompt.sha256]
        if not same:
            messages = _without_varying(recorded_messages(prompt))
            same = [one for one in fitting if _without_varying(one.request.messages) == messages]
        if not same:
            return None
        self._unused = [exchange for exchange in self._unused if exchange is not same[0]]
        return same[0]

    def add(self, exchange: ChatExchange) -> None:
        """Append a reply. Raises OSError, and appends nothing, if the disk is full."""
        masked = mask_exchange(exchange, self._hide)
        assert isinstance(masked, ChatExchange)
        self._file.append(format_exchange(masked))
        self.exchanges.append(masked)

    def costs(self) -> Sequence[tuple[str, float | None, int, int]]:
        """Return prompt hash, cost, input and output tokens of all replies, in order."""
        used = ((e.sha256, e.reply.usage) for e in self.exchanges)
        return [(name, u.cost_usd, u.input_tokens, u.output_tokens) for name, u in used]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _without_varying(messages: Sequence[RecordedMessage]) -> list[tuple[str, str]]:
    return [(message.role, _VARYING.sub("0", message.content)) for message in messages]


def _read(path: Path) -> list[ChatExchange]:
    exchanges = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        exchange = parse_exchange(line)
        if not isinstance(exchange, ChatExchange):
            reason = exchange if isinstance(exchange, str) else "an embedding"
            raise ConfigurationError(
                f"{path}:{number}: not a recorded reply ({reason}); remove the line"
            )
        exchanges.append(exchange)
    return exchanges


class Payer(Protocol):
    """Permits calls and is told what they cost. In a batch, this is the driver."""

    async def ask(self, sha256: str, worst_usd: float | None) -> str:
        """Wait for permission to pay a call. Return "" or the reason for a refusal."""
        ...

    async def pace(self) -> None:
        """Wait until one more request may be sent."""
        ...

    async def paid(self, exchange: ChatExchange, usage: Usage) -> None:
        """Report a reply that is on the disk. On return the next attempt will find it."""
        ...

    def dropped(self, sha256: str, *, charged: bool) -> None:
        """Report that a permitted call has given no reply; `charged` if it may have cost."""
        ...

    def reused(self, exchange: ChatExchange) -> None:
        """Report that an earlier reply is used again, so that nothing is paid."""
        ...


class ReplyGate:
    """Guards the chat models of one solve; passed to `agent.wiring.open_services`.

    With `salvage`, a cancelled run waits for the call under way and keeps its reply. `refused` is
    the payer's reason for a refusal; `broke` says that the provider's own budget is used up.
    """

    def __init__(self, recording: ReplyRecording, payer: Payer) -> None:
        self.recording = recording
        self.payer = payer
        self.salvage = False
        self.refused = ""
        self.broke = False

    def guard(self, chat: ChatModel, budget: Budget) -> ChatModel:
        """Return `chat` behind this gate. `budget` supplies prices and worst cases."""
        return GatedChatModel(chat, budget, self)

    async def sleep(self, seconds: float) -> None:
        """Wait before a request is sent again, which has to keep the pace too."""
        await asyncio.sleep(seconds)
        await self.payer.pace()


class GatedChatModel(ChatModelWrapper):
    """A `ChatModel` made by `ReplyGate`."""

    def __init__(self, inner: ChatModel, budget: Budget, gate: ReplyGate) -> None:
        super().__init__(inner)
        self._budget = budget
        self._gate = gate

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Return the recorded reply or a new one, with its cost in `usage`.

        Raises BudgetExceeded if the payer refuses, whatever the inner model raises, and OSError
        if the reply cannot be recorded.
        """
        gate, asked = self._gate, self._inner.model
        earlier = gate.recording.take(prompt, asked, max_output_tokens)
        if earlier is not None:
            gate.payer.reused(earlier)
            return completion_of(earlier)
        worst = self._budget.worst_case(prompt.tokens, max_output_tokens)
        gate.refused = await self._ask_permission(prompt, worst.cost_usd)
        if gate.refused:
            raise BudgetExceeded(gate.refused)
        done = await self._call(prompt, max_output_tokens, schema)
        return await self._record(prompt, asked, max_output_tokens, done)

    async def _ask_permission(self, prompt: Prompt, worst_usd: float | None) -> str:
        """Ask, and give the permission back if the attempt is cancelled meanwhile."""
        try:
            return await self._gate.payer.ask(prompt.sha256, worst_usd)
        except asyncio.CancelledError:
            self._gate.payer.dropped(prompt.sha256, charged=False)
            raise

    async def _call(
        self, prompt: Prompt, max_output_tokens: int, schema: Mapping[str, Any] | None
    ) -> Completion:
        """Call the model. With `salvage`, a cancelled call is finished first."""
        payer, asked = self._gate.payer, self._inner.model
        call = asyncio.create_task(
            self._inner.complete(prompt, max_output_tokens=max_output_tokens, schema=schema)
        )
        try:
            return await asyncio.shield(call)
        except ProviderError as error:
            self._gate.broke = isinstance(error, BudgetRefused)
            payer.dropped(prompt.sha256, charged=False)
            raise
        except asyncio.CancelledError:
            if not self._gate.salvage:
                call.cancel()
            await asyncio.wait([call])
            if call.cancelled() or call.exception() is not None:
                payer.dropped(prompt.sha256, charged=True)
            else:
                await self._record(prompt, asked, max_output_tokens, call.result())
            raise

    async def _record(
        self, prompt: Prompt, asked: str, max_output_tokens: int, done: Completion
    ) -> Completion:
        """Record the reply and report it. Return it with its cost."""
        done = replace(done, usage=self._budget.priced(done.usage))
        exchange = exchange_of(prompt, asked, max_output_tokens, done)
        self._gate.recording.add(exchange)
        await self._gate.payer.paid(exchange, done.usage)
        return done
