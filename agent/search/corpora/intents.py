"""Intents: sentences that describe what a user of a symbol wants.

Searches match them to find code.

Each symbol has some first-person sentences (five by default), written by a model (`intent_writing`)
or built from its name, signature and docstring (`intent_templates`). After MutaGReP (Khan et al.,
2025).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from agent.search.corpora.intent_templates import MAX_INTENT, template_intents
from agent.search.corpora.symbols import Symbol, read_symbols
from agent.search.json_lines import JsonLines
from agent.search.passages import Label, Passage
from agent.search.text_format import described
from agent.shared.secrets import mask_secrets
from agent.shared.threads import Cancelled

if TYPE_CHECKING:
    from agent.retrieval.index import Index
    from agent.types.protocols import Snapshot

PROMPT_VERSION = 2
"""Increase this when prompts/intents.md.j2 changes. Intents of older versions are written again."""

FROM_MODEL = "model"
FROM_TEMPLATES = "templates"

MOST_INTENTS = 10
"""Most intents of one symbol that a model may write."""

_LEAST = 8  # minimum characters of an intent
_BULLET = re.compile(r"^\s*+(?:[-*•]|\d{1,2}[.):])\s++")
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.){8,400})"')


class IntentLine(BaseModel):
    """The intents of one symbol that a model wrote. `content` is `Symbol.content`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    content: str
    model: str
    prompt: int
    symbol: str
    intents: tuple[str, ...]


@dataclass(slots=True)
class IntentFile:
    """All intents of a project that models wrote, stored in `path`. Not thread-safe."""

    path: Path
    _lines: JsonLines[IntentLine] = field(init=False)
    _known: dict[str, dict[str, tuple[str, ...]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the file without reading it."""
        self._lines = JsonLines(self.path, IntentLine)

    @property
    def lines(self) -> JsonLines[IntentLine]:
        """Return the lines of the file."""
        return self._lines

    def refresh(self) -> None:
        """Read the lines that this or another process added since the last call."""
        for line in self._lines.news():
            if line.prompt == PROMPT_VERSION and line.intents:
                # `clean` runs again because anybody may have edited the file.
                self._known.setdefault(line.content, {})[line.model] = clean(line.intents)

    def of(self, symbol: Symbol, model: str | None = None) -> tuple[str, ...]:
        """Return the intents that `model` wrote, or the last writer for None; () if there are
        none.
        """
        if model is not None:
            return self._known.get(symbol.content, {}).get(model, ())
        return self.newest(symbol)[1]

    def newest(self, symbol: Symbol) -> tuple[str, tuple[str, ...]]:
        """Return the last writer of a symbol's intents and what it wrote; ("", ()) for none."""
        written = self._known.get(symbol.content, {})
        return next(reversed(written.items()), ("", ()))

    def add(self, symbol: Symbol, model: str, intents: Sequence[str]) -> None:
        """Append the intents of a symbol. Raises OSError."""
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
    """The `CorpusSource` of intents. Without `book` it only uses templates."""

    index: Index
    book: IntentFile | None = None

    @property
    def label(self) -> Label:
        """Return the label `[intent]`."""
        return Label.INTENT

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return some passages for each symbol, by path and line."""
        if self.book is not None:
            self.book.refresh()
        found: list[Passage] = []
        for symbol in read_symbols(snapshot, self.index, cancel):
            if cancel.is_set():
                raise Cancelled
            found.extend(intent_passages(symbol, self.book))
        return tuple(found)


def intent_passages(symbol: Symbol, book: IntentFile | None) -> Iterator[Passage]:
    """Yield one passage for each intent. `origin` is its number, and a tag names its author."""
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
    """Return the intents in a reply: JSON of any shape, or a list of lines; () if there are none.

    Only the strings are extracted, so truncated JSON also works.
    """
    quoted = [match.group(1) for match in _QUOTED.finditer(reply)]
    if quoted:
        return clean(_unescaped(text) for text in quoted)
    lines = [line for line in reply.split("\n") if _BULLET.match(line)]
    return clean(_BULLET.sub("", line) for line in lines)


def clean(intents: Iterator[str] | Sequence[str]) -> tuple[str, ...]:
    """Return at most MOST_INTENTS distinct, printable one-line sentences without secrets."""
    lines = "\n".join(" ".join(intent[: 2 * MAX_INTENT].split()) for intent in intents)
    found: dict[str, None] = {}
    for line in mask_secrets(lines).text.split("\n"):
        text = _printable(line)[:MAX_INTENT]
        if len(text) >= _LEAST and " " in text:
            found.setdefault(text)
    return tuple(found)[:MOST_INTENTS]


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return " ".join("".join(c if c.isprintable() else " " for c in line).split())


def _unescaped(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\")
