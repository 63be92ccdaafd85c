"""Keywords by a model that are added to a query."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from agent.search.project import JsonLines

if TYPE_CHECKING:
    from agent.types import Prompt
    from agent.types.protocols import ChatModel

MAX_WORDS = 12
_PROMPT_VERSION = 2  # increase this when prompts/keywords.md.j2 changes
_MAX_OUTPUT_TOKENS = 300
_WORD = re.compile(r"[^\W\d]\w{2,60}")
_NOT_KEYWORDS = frozenset({"keywords", "json", "here", "are", "the"})


class KeywordLine(BaseModel, frozen=True, extra="forbid"):
    """A model's keywords for one query. `key` identifies the query, the model and the prompt."""

    format: Literal[1] = 1
    key: str
    keywords: tuple[str, ...]


class KeywordWriter:
    """Asks `chat` for keywords unless the file `path` contains them."""

    def __init__(self, path: Path, chat: ChatModel, make_prompt: Callable[[str], Prompt]) -> None:
        self._chat = chat
        self._make_prompt = make_prompt
        self._lines = JsonLines(path, KeywordLine)
        self._saved: dict[str, tuple[str, ...]] = {}

    async def keywords(self, query: str) -> tuple[str, ...]:
        """Return at most twelve words. Raises ProviderError, BudgetExceeded, OSError."""
        for line in self._lines.news():
            self._saved[line.key] = line.keywords
        text = f"{_PROMPT_VERSION}\0{self._chat.model}\0{query}"
        key = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if key not in self._saved:
            prompt = self._make_prompt(query)
            reply = await self._chat.complete(prompt, max_output_tokens=_MAX_OUTPUT_TOKENS)
            self._saved[key] = parse_keywords(reply.text)
            self._lines.append(KeywordLine(key=key, keywords=self._saved[key]))
        return self._saved[key]


def parse_keywords(reply: str) -> tuple[str, ...]:
    """Return the distinct words of a reply in order. The reply may have any shape."""
    words = (word for word in _WORD.findall(reply[:4_000]) if word.lower() not in _NOT_KEYWORDS)
    return tuple(dict.fromkeys(words))[:MAX_WORDS]
