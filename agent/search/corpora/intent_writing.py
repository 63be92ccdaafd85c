"""Asks a model for intents, in parallel and within a budget; each symbol is paid for once.

A worker saves each reply before its next call, so a run that was killed continues where it stopped.
One process writes at a time. Another one waits and then reads the finished intents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.errors import (
    AuthenticationFailed,
    BudgetExceeded,
    ContextTooLong,
    ProviderError,
    TimeLimitExceeded,
    UnknownModel,
)
from agent.search.corpora.intent_templates import INTENTS
from agent.search.corpora.intents import MOST_INTENTS, IntentFile, parse_intents
from agent.search.corpora.symbols import Symbol
from agent.types.events import StageProgress

if TYPE_CHECKING:
    from agent.types import Prompt
    from agent.types.protocols import ChatModel, Reporter

STAGE = "intents"
CONCURRENCY = 8
"""Parallel calls, as for embeddings. Small servers and free tiers accept this many."""

MAX_OUTPUT_TOKENS = 400
"""Ten sentences take about 250 tokens; a model that writes its reasoning needs more."""

MAX_CODE_TOKENS = 10_000
"""Most tokens of a symbol in the prompt (as in MutaGReP): all of nearly every symbol."""

_POLL_SECONDS = 0.2  # polling interval while another process writes
_IN_A_ROW = 8  # consecutive failures after which the server is treated as unreachable
_LAST = (AuthenticationFailed, UnknownModel, BudgetExceeded, TimeLimitExceeded)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "intents": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_INTENTS}
    },
    "required": ["intents"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class IntentCounts:
    """The number of requested symbols that were known, written now, failed, and left over.

    `error` is the error that stopped the work early, or None.
    """

    known: int
    written: int
    failed: int
    left: int
    error: ProviderError | BudgetExceeded | TimeLimitExceeded | None = None


@dataclass(slots=True)
class IntentWriter:
    """Writes the intents of symbols into `book`.

    `make_prompt` masks secrets in the symbol's code.
    """

    book: IntentFile
    chat: ChatModel
    make_prompt: Callable[[Symbol], Prompt]
    reporter: Reporter
    concurrency: int = CONCURRENCY
    count: int = INTENTS  # of one symbol

    async def write(self, symbols: Sequence[Symbol], *, wait: bool = True) -> IntentCounts:
        """Ask the model for the intents of those `symbols` that have none yet.

        Without `wait`, nothing is written while another process writes. Raises OSError if the file
        cannot be written, for example on a full disk, and makes no further call.
        """
        while True:
            with self.book.lines.making(wait=False) as free:
                if free:
                    return await self._write(symbols)
            if not wait:
                return IntentCounts(0, 0, 0, len(symbols))
            await asyncio.sleep(_POLL_SECONDS)

    async def _write(self, symbols: Sequence[Symbol]) -> IntentCounts:
        self.book.refresh()
        model = self.chat.model
        distinct = list({symbol.content: symbol for symbol in symbols}.values())
        missing = [symbol for symbol in distinct if not self.book.of(symbol, model)]
        run = _Run(self, model, iter(missing), len(missing))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.concurrency, len(missing))):
                    group.create_task(run.work())
        except* OSError as errors:
            raise errors.exceptions[0] from None
        known = len(distinct) - len(missing)
        left = len(missing) - run.written - run.failed
        return IntentCounts(known, run.written, run.failed, left, run.error)


@dataclass(slots=True)
class _Run:
    """One pass over the missing symbols. The workers share one iterator."""

    writer: IntentWriter
    model: str
    waiting: Iterator[Symbol]
    total: int
    written: int = 0
    failed: int = 0
    in_a_row: int = 0
    error: ProviderError | BudgetExceeded | TimeLimitExceeded | None = None

    async def work(self) -> None:
        """Process symbols until none is left or an error stops the run."""
        for symbol in self.waiting:
            if self.error is not None:
                return
            await self._one(symbol)
            done = self.written + self.failed
            self.writer.reporter(StageProgress(STAGE, done, self.total))

    async def _one(self, symbol: Symbol) -> None:
        writer = self.writer
        try:
            completion = await writer.chat.complete(
                writer.make_prompt(symbol), max_output_tokens=MAX_OUTPUT_TOKENS, schema=SCHEMA
            )
        except _LAST as error:
            self.error = self.error or error
            return
        except ProviderError as error:
            self.failed += 1
            self.in_a_row += 0 if isinstance(error, ContextTooLong) else 1
            if self.in_a_row >= _IN_A_ROW:
                self.error = self.error or error
            return
        self.in_a_row = 0
        intents = parse_intents(completion.text)[: writer.count]
        if not intents:
            self.failed += 1  # nothing is stored, so the next run asks again
            return
        writer.book.add(symbol, self.model, intents)
        self.written += 1
