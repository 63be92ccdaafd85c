"""The action `find` of the iterative mode: several intents are searched in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import BudgetExceeded, ProviderError
from agent.patching import scan
from agent.run.prompting import as_data, make_prompt, render
from agent.types import Message, Problem

if TYPE_CHECKING:
    from agent.types import Chunk
    from agent.types.protocols import ChatModel, Retriever, Snapshot, TokenCounter

HITS = 6
"""Chunks shown for each intent. Several intents share one answer."""

OVER_RETRIEVED = 5
"""Multiple of HITS to retrieve, so that enough chunks remain after removing duplicates (as in
MutaGReP).
"""

_MAX_WORDS = 8
_MAX_OUTPUT_TOKENS = 400

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "keywords": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    },
    "required": ["keywords"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class FindAction:
    """The `IntentFinder` over the retriever of the run."""

    retriever: Retriever
    chat: ChatModel
    counter: TokenCounter

    async def find(
        self, intents: Sequence[str], snapshot: Snapshot, *, keywords: bool = False
    ) -> str:
        """Return the best chunks for each intent as text. No symbol appears twice.

        With `keywords`, one model call adds words to the queries. If the call fails, the search
        uses the original intents and the answer says so.
        """
        words, note = await self._keywords(intents) if keywords else ({}, "")
        seen: set[tuple[str, str]] = set()
        parts = [note] if note else []
        for number, intent in enumerate(intents):
            added = words.get(number, ())
            chunks = await self._distinct(Problem(intent, " ".join(added)), snapshot, seen)
            head = f"{intent} [{', '.join(added)}]" if added else intent
            parts.append("\n".join([head, *map(_location, chunks)]))
            if not chunks:
                parts[-1] += "\nnothing that is not named above"
        return "\n\n".join(parts)

    async def _distinct(
        self, query: Problem, snapshot: Snapshot, seen: set[tuple[str, str]]
    ) -> list[Chunk]:
        """Return the first HITS chunks not in `seen`.

        Chunks without a symbol are identified by line.
        """
        ranking = await self.retriever.rank(query, snapshot)
        found: list[Chunk] = []
        for scored in ranking.chunks[: HITS * OVER_RETRIEVED]:
            chunk = scored.chunk
            key = (chunk.path, chunk.symbol or f"L{chunk.start}")
            if key not in seen and len(found) < HITS:
                seen.add(key)
                found.append(chunk)
        return found

    async def _keywords(self, intents: Sequence[str]) -> tuple[Mapping[int, tuple[str, ...]], str]:
        """Return the added words by the index of the intent, and a note if there are none."""
        lines = "\n".join(" ".join(intent.split()) for intent in intents)
        message = Message("user", render("keywords", intents=as_data(lines)))
        try:
            reply = await self.chat.complete(
                make_prompt([message], self.counter),
                max_output_tokens=_MAX_OUTPUT_TOKENS,
                schema=SCHEMA,
            )
        except (ProviderError, BudgetExceeded) as error:
            return {}, f"[without keywords: {error}]"
        words = read_keywords(reply.text)
        return words, "" if words else "[without keywords: the reply held none]"


def _location(chunk: Chunk) -> str:
    return f"{chunk.path}:L{chunk.start}-{chunk.end} {chunk.symbol or chunk.kind.value}"


def read_keywords(text: str) -> Mapping[int, tuple[str, ...]]:
    """Return the words of a reply by line number; empty if the reply cannot be parsed."""
    for found in scan(text, {"keywords"}, lambda keys: "keywords" in keys).found:
        try:
            lists = _Keywords.model_validate(found.value).keywords
        except ValidationError:
            continue
        return {n: tuple(words[:_MAX_WORDS]) for n, words in enumerate(lists) if words}
    return {}


class _Keywords(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    keywords: list[list[str]]
