"""A chat model that pays for each reply once.

A reply that an earlier attempt recorded is served from the recording. Any other reply is on the
disk before it is used. All attempts append to the recording.
`agent batch` and the kept runs of `agent solve` (`agent.results.kept`) use it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.errors import BudgetRefused, ConfigurationError
from agent.llm.budget import Budget
from agent.llm.clients import ChatModelWrapper
from agent.llm.recording import (
    ChatExchange,
    completion_of,
    exchange_of,
    format_exchange,
    mask_exchange,
    parse_exchange,
    recorded_messages,
)
from agent.shared.files import AppendFile
from agent.types import Completion, Message, Prompt
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


def _without_varying(messages: Sequence[Message]) -> list[tuple[str, str]]:
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


class ReplyGate:
    """Guards the chat models of one solve; passed to `agent.wiring.open_services`.

    `reused` is told when an earlier reply is used again. Requests keep a distance of `seconds`.
    With `salvage`, a cancelled run waits for the call under way and keeps its reply. `broke` says
    that the provider's own budget is used up.
    """

    def __init__(
        self, recording: ReplyRecording, reused: Callable[[], object], seconds: float = 0.0
    ) -> None:
        self.recording = recording
        self.reused = reused
        self.salvage = False
        self.broke = False
        self._seconds = seconds
        self._next = 0.0

    def guard(self, chat: ChatModel, budget: Budget) -> ChatModel:
        """Return `chat` behind this gate. `budget` supplies prices."""
        return _GatedChatModel(chat, budget, self)

    async def sleep(self, seconds: float) -> None:
        """Wait before a request is sent again, which has to keep the distance too."""
        await asyncio.sleep(seconds)
        await self.wait_for_turn()

    async def wait_for_turn(self) -> None:
        """Wait until one more request may be sent."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next)
        self._next = turn + self._seconds
        await asyncio.sleep(turn - now)


class _GatedChatModel(ChatModelWrapper):
    def __init__(self, inner: ChatModel, budget: Budget, gate: ReplyGate) -> None:
        super().__init__(inner)
        self._budget = budget
        self._gate = gate

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Return the recorded reply or a new one, with its cost in `usage`.

        Raises whatever the inner model raises, and OSError if the reply cannot be recorded.
        """
        gate, asked = self._gate, self._inner.model
        earlier = gate.recording.take(prompt, asked, max_output_tokens)
        if earlier is not None:
            gate.reused()
            return completion_of(earlier)
        await gate.wait_for_turn()
        call = asyncio.create_task(
            self._inner.complete(prompt, max_output_tokens=max_output_tokens, schema=schema)
        )
        try:
            return self._record(prompt, asked, max_output_tokens, await asyncio.shield(call))
        except BudgetRefused:
            gate.broke = True
            raise
        except asyncio.CancelledError:
            if not gate.salvage:
                call.cancel()
            await asyncio.wait([call])
            if not call.cancelled() and call.exception() is None:
                self._record(prompt, asked, max_output_tokens, call.result())
            raise

    def _record(
        self, prompt: Prompt, asked: str, max_output_tokens: int, done: Completion
    ) -> Completion:
        """Record the reply. Return it with its cost."""
        done = replace(done, usage=self._budget.priced(done.usage))
        self._gate.recording.add(exchange_of(prompt, asked, max_output_tokens, done))
        return done
