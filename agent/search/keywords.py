"""Asks a model for keywords of a query. The reply is saved for each query and model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from agent.search.json_lines import JsonLines

if TYPE_CHECKING:
    from agent.types import Prompt
    from agent.types.protocols import ChatModel

PROMPT_VERSION = 2
"""Increase this when prompts/keywords.md.j2 changes."""

MAX_KEYWORDS = 12
MAX_OUTPUT_TOKENS = 300
_WORD = re.compile(r"[^\W\d]\w{2,60}")
_NOT_KEYWORDS = frozenset({"keywords", "json", "here", "are", "the"})


class KeywordLine(BaseModel):
    """A model's keywords for one query. `key` identifies the query, the model and the prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    key: str
    keywords: tuple[str, ...]


@dataclass(slots=True)
class KeywordWriter:
    """Asks `chat` for keywords unless the file `path` contains them."""

    path: Path
    chat: ChatModel
    make_prompt: Callable[[str], Prompt]
    _lines: JsonLines[KeywordLine] = field(init=False)
    _known: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the file without reading it."""
        self._lines = JsonLines(self.path, KeywordLine)

    async def keywords(self, query: str) -> tuple[str, ...]:
        """Return at most twelve words. Raises ProviderError, BudgetExceeded, OSError."""
        for line in self._lines.news():
            self._known[line.key] = line.keywords
        key = self._key(query)
        if key not in self._known:
            done = await self.chat.complete(
                self.make_prompt(query), max_output_tokens=MAX_OUTPUT_TOKENS
            )
            self._known[key] = parse_keywords(done.text)
            self._lines.append(KeywordLine(key=key, keywords=self._known[key]))
        return self._known[key]

    def _key(self, query: str) -> str:
        text = f"{PROMPT_VERSION}\0{self.chat.model}\0{query}"
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def parse_keywords(reply: str) -> tuple[str, ...]:
    """Return the distinct words of a reply in order. The reply may have any shape."""
    words = (word for word in _WORD.findall(reply[:4_000]) if word.lower() not in _NOT_KEYWORDS)
    return tuple(dict.fromkeys(words))[:MAX_KEYWORDS]
