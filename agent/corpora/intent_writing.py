"""Intents by a model: in parallel, within the budget, each symbol paid once.

Every reply is kept before the next call of its slot is made, so that a run that is killed goes on
where it was. One process writes at a time; another waits and then finds all written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.corpora.intent_templates import INTENTS
from agent.corpora.intents import IntentBook, parse_intents
from agent.corpora.symbols import Symbol
from agent.errors import (
    AuthenticationFailed,
    BudgetExceeded,
    ContextTooLong,
    ProviderError,
    TimeLimitExceeded,
    UnknownModel,
)
from agent.events import StageProgress

if TYPE_CHECKING:
    from agent.protocols import ChatModel, Reporter
    from agent.types import Prompt

STAGE = "intents"
CONCURRENCY = 8
"""Calls at once, as for embeddings: what small servers and free tiers take."""

MAX_OUTPUT_TOKENS = 400
"""Five sentences take about 120; a model that thinks aloud takes more."""

MAX_CODE = 4_000
"""Characters of a symbol that the model is shown: its beginning says what it is for."""

_POLL_SECONDS = 0.2  # while another process writes
_IN_A_ROW = 8  # failures after which the server counts as down
_LAST = (AuthenticationFailed, UnknownModel, BudgetExceeded, TimeLimitExceeded)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"intents": {"type": "array", "items": {"type": "string"}, "maxItems": INTENTS}},
    "required": ["intents"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Written:
    """Of the symbols asked for: how many were known, written now, failed, and left.

    `error` is what ended the work early, None where nothing did.
    """

    known: int
    written: int
    failed: int
    left: int
    error: ProviderError | BudgetExceeded | TimeLimitExceeded | None = None


@dataclass(slots=True)
class IntentWriter:
    """Writes into `book`. `make_prompt` shows a symbol to the model; secrets are its business."""

    book: IntentBook
    chat: ChatModel
    make_prompt: Callable[[Symbol], Prompt]
    reporter: Reporter
    concurrency: int = CONCURRENCY

    async def write(self, symbols: Sequence[Symbol], *, wait: bool = True) -> Written:
        """Have what is not known of `symbols` written.

        Without `wait` nothing is written while another process writes. Raises OSError where the
        book cannot be kept (a full disk): nothing more is paid then.
        """
        while True:
            with self.book.lines.making(wait=False) as free:
                if free:
                    return await self._write(symbols)
            if not wait:
                return Written(0, 0, 0, len(symbols))
            await asyncio.sleep(_POLL_SECONDS)

    async def _write(self, symbols: Sequence[Symbol]) -> Written:
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
        return Written(known, run.written, run.failed, left, run.error)


@dataclass(slots=True)
class _Run:
    """One pass over what is missing; its workers share the iterator."""

    writer: IntentWriter
    model: str
    waiting: Iterator[Symbol]
    total: int
    written: int = 0
    failed: int = 0
    in_a_row: int = 0
    error: ProviderError | BudgetExceeded | TimeLimitExceeded | None = None

    async def work(self) -> None:
        """Take symbols until none is left or something ends the work."""
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
        intents = parse_intents(completion.text)
        if not intents:
            self.failed += 1  # nothing is kept: the next run asks again
            return
        writer.book.add(symbol, self.model, intents)
        self.written += 1
