"""Intents: first-person sentences about what a user of a symbol wants, which searches match.

A model or templates (`agent.search.symbols`) write them, after MutaGReP (Khan et al., 2025). Each
reply of the model is saved before the next call, so a symbol is paid for once.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel

from agent.errors import (
    BudgetExceeded,
    ConfigurationError,
    ContextTooLong,
    ProviderError,
    TimeLimitExceeded,
)
from agent.search.passages import Label, Passage, passage_about
from agent.search.project import JsonLines
from agent.search.symbols import (
    INTENTS,
    MAX_INTENT,
    content_of,
    docstring_of,
    read_symbols,
    template_intents,
)
from agent.shared.files import replace_file
from agent.shared.secrets import mask_secrets
from agent.shared.workers import Cancelled
from agent.types.events import StageProgress

if TYPE_CHECKING:
    from agent.retrieval.index import Index
    from agent.types import Chunk, Prompt
    from agent.types.protocols import ChatModel, Reporter, Snapshot

MAX_CODE_TOKENS = 10_000
"""Most tokens of a symbol in the prompt (as in MutaGReP): all of nearly every symbol."""

_PROMPT_VERSION = 2  # of prompts/intents.md.j2; intents of older versions are written again
_CONCURRENCY = 8  # parallel calls, as for embeddings: small servers and free tiers accept this many
_MAX_OUTPUT_TOKENS = 400  # ten sentences take about 250; a model that reasons needs more
_POLL_SECONDS = 0.2  # polling interval while another process writes
_MOST = 10  # intents of one symbol
_LEAST = 8  # characters of an intent
_BULLET = re.compile(r"^\s*+(?:[-*•]|\d{1,2}[.):])\s++")
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.){8,400})"')
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"intents": {"type": "array", "items": {"type": "string"}, "maxItems": _MOST}},
    "required": ["intents"],
    "additionalProperties": False,
}


class IntentLine(BaseModel, frozen=True, extra="forbid"):
    """The intents of one symbol that a model wrote. `content` is that of `content_of`."""

    format: Literal[1] = 1
    content: str
    model: str
    prompt: int
    symbol: str
    intents: tuple[str, ...]


class IntentFile:
    """All intents of a project that models wrote, stored in `path`. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.lines = JsonLines(path, IntentLine)
        self._intents: dict[str, dict[str, tuple[str, ...]]] = {}

    def refresh(self) -> None:
        """Read the lines that this or another process added since the last call."""
        for line in self.lines.news():
            if line.prompt == _PROMPT_VERSION and line.intents:
                # `clean` runs again because anybody may have edited the file.
                self._intents.setdefault(line.content, {})[line.model] = clean(line.intents)

    def of(self, symbol: Chunk, model: str) -> tuple[str, ...]:
        """Return the intents that `model` wrote; () if there are none."""
        return self._intents.get(content_of(symbol), {}).get(model, ())

    def newest(self, symbol: Chunk) -> tuple[str, tuple[str, ...]]:
        """Return the last writer of a symbol's intents and what it wrote; ("", ()) for none."""
        written = self._intents.get(content_of(symbol), {})
        return next(reversed(written.items()), ("", ()))

    def add(self, symbol: Chunk, model: str, intents: Sequence[str]) -> None:
        """Append the intents of a symbol. Raises OSError."""
        line = IntentLine(
            content=content_of(symbol),
            model=model,
            prompt=_PROMPT_VERSION,
            symbol=f"{symbol.path}:{symbol.symbol}",
            intents=tuple(intents),
        )
        self.lines.append(line)
        self._intents.setdefault(line.content, {})[model] = line.intents


@dataclass(frozen=True, slots=True)
class IntentSource:
    """The `CorpusSource` of intents: of `file`, or by templates."""

    label: ClassVar = Label.INTENT
    index: Index
    file: IntentFile

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return some passages for each symbol, by path and line."""
        self.file.refresh()
        passages: list[Passage] = []
        for symbol in read_symbols(snapshot, self.index, cancel):
            if cancel.is_set():
                raise Cancelled
            passages.extend(intent_passages(symbol, self.file))
        return tuple(passages)


def intent_passages(symbol: Chunk, file: IntentFile) -> Iterator[Passage]:
    """Yield one passage for each intent. `origin` is its number, and a tag names its author."""
    _, written = file.newest(symbol)
    tag = "model" if written else "templates"
    for number, intent in enumerate(written or clean(template_intents(symbol)), start=1):
        yield passage_about(symbol, Label.INTENT, intent, intent, tag, f"intent {number}")


def parse_intents(reply: str) -> tuple[str, ...]:
    """Return the intents in a reply: the strings of JSON, also truncated, or a list of lines."""
    quoted = [match[1] for match in _QUOTED.finditer(reply)]
    if quoted:
        unescaped = (
            t.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\") for t in quoted
        )
        return clean(unescaped)
    return clean(_BULLET.sub("", line) for line in reply.split("\n") if _BULLET.match(line))


def clean(intents: Iterable[str]) -> tuple[str, ...]:
    """Return at most ten distinct, printable one-line sentences without secrets."""
    lines = "\n".join(" ".join(intent[: 2 * MAX_INTENT].split()) for intent in intents)
    texts: dict[str, None] = {}
    for line in mask_secrets(lines).text.split("\n"):
        text = " ".join("".join(c if c.isprintable() else " " for c in line).split())[:MAX_INTENT]
        if len(text) >= _LEAST and " " in text:
            texts.setdefault(text)
    return tuple(texts)[:_MOST]


# ------------------------------------------------------------------------------ written by a model


@dataclass(slots=True)
class IntentCounts:
    """The number of symbols that were known, written, failed, and left over after `error`."""

    known: int = 0
    written: int = 0
    failed: int = 0
    left: int = 0
    error: ProviderError | BudgetExceeded | TimeLimitExceeded | None = None


@dataclass(slots=True)
class IntentWriter:
    """Writes the intents of symbols into `file`, one process at a time."""

    file: IntentFile
    chat: ChatModel
    make_prompt: Callable[[Chunk], Prompt]
    reporter: Reporter
    concurrency: int = _CONCURRENCY

    async def write(self, symbols: Sequence[Chunk]) -> IntentCounts:
        """Ask the model for missing intents, up to the first failure. Raises OSError."""
        while True:
            with self.file.lines.making() as free:
                if free:
                    return await self._write(symbols)
            await asyncio.sleep(_POLL_SECONDS)

    async def _write(self, symbols: Sequence[Chunk]) -> IntentCounts:
        self.file.refresh()
        distinct = {content_of(symbol): symbol for symbol in symbols}.values()
        missing = [one for one in distinct if not self.file.of(one, self.chat.model)]
        counts = IntentCounts(known=len(distinct) - len(missing), left=len(missing))
        waiting = iter(missing)  # the workers share it

        async def work() -> None:
            for symbol in waiting:
                await self._one(symbol, counts)
                if counts.error is not None:
                    return
                self.reporter(StageProgress("intents", len(missing) - counts.left, len(missing)))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.concurrency, len(missing))):
                    group.create_task(work())
        except* OSError as errors:
            raise errors.exceptions[0] from None
        return counts

    async def _one(self, symbol: Chunk, counts: IntentCounts) -> None:
        prompt = self.make_prompt(symbol)
        try:
            reply = await self.chat.complete(
                prompt, max_output_tokens=_MAX_OUTPUT_TOKENS, schema=_SCHEMA
            )
        except ContextTooLong:
            intents: tuple[str, ...] = ()
        except (ProviderError, BudgetExceeded, TimeLimitExceeded) as error:
            counts.error = counts.error or error
            return
        else:
            intents = parse_intents(reply.text)[:INTENTS]
        counts.left -= 1
        if intents:
            self.file.add(symbol, self.chat.model, intents)
            counts.written += 1
        else:
            counts.failed += 1  # nothing is stored, so the next run asks again


# ------------------------------------------------------------------------------ files of symbols


def write_symbols(path: Path, symbols: Sequence[Chunk], file: IntentFile) -> int:
    """Write all symbols with their intents as JSON lines, secrets masked; return the number."""
    file.refresh()
    lines = (json.dumps(_line(symbol, file), ensure_ascii=False) + "\n" for symbol in symbols)
    try:
        replace_file(path, (line.encode("utf-8", "replace") for line in lines))
    except OSError as error:
        raise ConfigurationError(
            f"--symbols {path} cannot be written ({error.strerror}): name a file in a folder "
            "that can"
        ) from None
    return len(symbols)


def _line(symbol: Chunk, file: IntentFile) -> dict[str, Any]:
    """Return the JSON of a symbol; `model` wrote the intents, "" for templates."""
    model, written = file.newest(symbol)
    return {
        "format": 1,
        "path": symbol.path,
        "symbol": symbol.symbol,
        "kind": symbol.kind.value,
        "signature": mask_secrets(symbol.signature).text,
        "docstring": mask_secrets(docstring_of(symbol)).text,
        "start": symbol.start,
        "end": symbol.end,
        "language": symbol.language,
        "content": content_of(symbol),
        "model": model,
        "intents": written or clean(template_intents(symbol)),
    }
