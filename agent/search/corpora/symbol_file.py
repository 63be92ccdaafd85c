"""The symbols of a project with their intents as JSON lines, for other programs and machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from agent.errors import ConfigurationError
from agent.search.corpora.intent_templates import template_intents
from agent.search.corpora.intents import IntentFile, clean
from agent.search.corpora.symbols import Symbol
from agent.search.json_lines import JsonLines
from agent.shared.files import replace_file
from agent.shared.secrets import mask_secrets

NO_MODEL = "file"
"""Who wrote intents of a file that names no model and that templates would not make."""


class SymbolLine(BaseModel):
    """One symbol. `content` is `Symbol.content`; `model` wrote the intents, "" for templates."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1] = 1
    path: str
    symbol: str
    kind: str
    signature: str
    docstring: str
    start: int
    end: int
    language: str
    content: str
    model: str = ""
    intents: tuple[str, ...] = ()


def write_symbols(path: Path, symbols: Sequence[Symbol], book: IntentFile) -> int:
    """Write all symbols, and the intents of `book` or else of templates; return the number.

    Secrets are masked. Raises ConfigurationError if the file cannot be written.
    """
    book.refresh()
    lines = (f"{_line(symbol, book).model_dump_json()}\n" for symbol in symbols)
    try:
        replace_file(path, (line.encode("utf-8", "replace") for line in lines))
    except OSError as error:
        raise ConfigurationError(
            f"--symbols {path} cannot be written ({error.strerror}): name a file in a folder "
            "that can"
        ) from None
    return len(symbols)


def _line(symbol: Symbol, book: IntentFile) -> SymbolLine:
    model, written = book.newest(symbol)
    return SymbolLine(
        path=symbol.path,
        symbol=symbol.name,
        kind=symbol.kind.value,
        signature=mask_secrets(symbol.signature).text,
        docstring=mask_secrets(symbol.docstring).text,
        start=symbol.start,
        end=symbol.end,
        language=symbol.language,
        content=symbol.content,
        model=model,
        intents=written or clean(template_intents(symbol)),
    )


def read_symbols_file(path: Path, symbols: Sequence[Symbol], book: IntentFile) -> tuple[int, int]:
    """Put intents into `book`; return of how many symbols they were new and known.

    Intents that templates would make are known, and not put there. Lines of changed or unknown
    symbols, and lines that are not readable, are left out. Raises ConfigurationError if the file
    cannot be read or holds no line of this format.
    """
    if not path.is_file():
        raise ConfigurationError(f"--read-symbols {path}: no such file")
    book.refresh()
    by_content = {symbol.content: symbol for symbol in symbols}
    lines = list(JsonLines(path, SymbolLine).news())
    if not lines:
        raise ConfigurationError(
            f"--read-symbols {path}: no line of it is a symbol; `agent index --symbols` writes them"
        )
    new = known = 0
    for line in lines:
        symbol = by_content.get(line.content)
        intents = clean(line.intents)
        if symbol is None or not intents:
            continue
        model = line.model or NO_MODEL
        if intents in (book.of(symbol, model), clean(template_intents(symbol))):
            known += 1
        else:
            book.add(symbol, model, intents)
            new += 1
    return new, known
