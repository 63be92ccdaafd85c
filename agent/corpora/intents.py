"""Intents: what a person who needs a symbol would say they want, found instead of its code.

Five first-person sentences a symbol, written by a model where one was asked (`intent_writing`),
else by templates from its name, signature and docstring. After MutaGReP (Khan et al., 2025).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from agent.corpora.formats import described
from agent.corpora.intent_templates import INTENTS, MAX_INTENT, template_intents
from agent.corpora.kept import KeptLines
from agent.corpora.passages import Label, Passage
from agent.corpora.symbols import Symbol, read_symbols
from agent.retrieval.pool import Cancelled
from agent.secrets.masking import mask_secrets

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.retrieval.index import Index

PROMPT_VERSION = 1
"""Raise when prompts/intents.md.j2 changes: older intents then count as not written."""

FROM_MODEL = "model"
FROM_TEMPLATES = "templates"

_LEAST = 8  # characters of an intent
_BULLET = re.compile(r"^\s*+(?:[-*•]|\d{1,2}[.):])\s++")
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.){8,400})"')


class IntentLine(BaseModel):
    """What a model wrote of one symbol. `content` is `Symbol.content`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    content: str
    model: str
    prompt: int
    symbol: str
    intents: tuple[str, ...]


@dataclass(slots=True)
class IntentBook:
    """All that models wrote of a project's symbols, kept in `path`. Not safe for threads."""

    path: Path
    _lines: KeptLines[IntentLine] = field(init=False)
    _known: dict[str, dict[str, tuple[str, ...]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Read nothing yet."""
        self._lines = KeptLines(self.path, IntentLine)

    @property
    def lines(self) -> KeptLines[IntentLine]:
        """The file."""
        return self._lines

    def refresh(self) -> None:
        """Take in what was written since, by other processes too."""
        for line in self._lines.news():
            if line.prompt == PROMPT_VERSION and line.intents:
                # `clean` again: the file may have been edited by anybody.
                self._known.setdefault(line.content, {})[line.model] = clean(line.intents)

    def of(self, symbol: Symbol, model: str | None = None) -> tuple[str, ...]:
        """What `model` wrote of it; None: whichever wrote last. () where nothing is known."""
        written = self._known.get(symbol.content, {})
        if model is not None:
            return written.get(model, ())
        return next(reversed(written.values()), ())

    def add(self, symbol: Symbol, model: str, intents: Sequence[str]) -> None:
        """Keep them. Raises OSError."""
        name = f"{symbol.path}:{symbol.name}"
        line = IntentLine(
            content=symbol.content,
            model=model,
            prompt=PROMPT_VERSION,
            symbol=name,
            intents=tuple(intents),
        )
        self._lines.append(line)
        self._known.setdefault(symbol.content, {})[model] = line.intents


@dataclass(frozen=True, slots=True)
class IntentSource:
    """The `CorpusSource` of intents. `book` None: templates only."""

    index: Index
    book: IntentBook | None = None

    @property
    def label(self) -> Label:
        """`[intent]`."""
        return Label.INTENT

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Up to five a symbol, by path and line."""
        if self.book is not None:
            self.book.refresh()
        found: list[Passage] = []
        for symbol in read_symbols(snapshot, self.index, cancel):
            if cancel.is_set():
                raise Cancelled
            found.extend(intent_passages(symbol, self.book))
        return tuple(found)


def intent_passages(symbol: Symbol, book: IntentBook | None) -> Iterator[Passage]:
    """A passage an intent. `origin` numbers them; a tag says who wrote them."""
    written = book.of(symbol) if book is not None else ()
    tag = FROM_MODEL if written else FROM_TEMPLATES
    for number, intent in enumerate(written or clean(template_intents(symbol)), start=1):
        yield Passage(
            corpus=Label.INTENT,
            title=intent,
            text=described(symbol.name, symbol.kind.value, symbol.path, intent),
            path=symbol.path,
            start=symbol.start,
            end=symbol.end,
            symbol=symbol.name,
            language=symbol.language,
            origin=f"intent {number}",
            tags=(tag,),
        )


def parse_intents(reply: str) -> tuple[str, ...]:
    """The intents in a model's reply: JSON of whatever shape, or a list of lines; () for none.

    Strings are all that is taken, so it does not matter whether the JSON is whole.
    """
    quoted = [match.group(1) for match in _QUOTED.finditer(reply)]
    if quoted:
        return clean(_unescaped(text) for text in quoted)
    lines = [line for line in reply.split("\n") if _BULLET.match(line)]
    return clean(_BULLET.sub("", line) for line in lines)


def clean(intents: Iterator[str] | Sequence[str]) -> tuple[str, ...]:
    """At most five distinct sentences in one line each, printable, without secrets."""
    lines = "\n".join(" ".join(intent[: 2 * MAX_INTENT].split()) for intent in intents)
    found: dict[str, None] = {}
    for line in mask_secrets(lines).text.split("\n"):
        text = _printable(line)[:MAX_INTENT]
        if len(text) >= _LEAST and " " in text:
            found.setdefault(text)
    return tuple(found)[:INTENTS]


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return " ".join("".join(c if c.isprintable() else " " for c in line).split())


def _unescaped(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\")
