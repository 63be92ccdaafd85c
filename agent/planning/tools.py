"""Searches by intent for the iterative mode: direct, without duplicates, by a model's keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import BudgetExceeded, ProviderError
from agent.patching.scanning import scan
from agent.prompting import as_data, make_prompt, render
from agent.types import Message, Problem

if TYPE_CHECKING:
    from agent.protocols import Retriever, Services, Snapshot
    from agent.types import Chunk

HITS = 6
"""Shown of each intent: several intents share one answer."""

OVER_RETRIEVED = 5
"""Times HITS are looked at, so that enough is left once duplicates are out (as MutaGReP does)."""

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


async def find_intents(
    intents: Sequence[str], services: Services, snapshot: Snapshot, *, keywords: bool = False
) -> str:
    """For each intent its places, best first; no symbol is named twice.

    With `keywords` one call of the model adds words to the queries; where it fails, the intents are
    looked for as they are, and the answer says so.
    """
    words, note = await _keywords(intents, services) if keywords else ({}, "")
    seen: set[tuple[str, str]] = set()
    parts = [note] if note else []
    for number, intent in enumerate(intents):
        added = words.get(number, ())
        query = Problem(intent, " ".join(added))
        chunks = await _distinct(query, services.retriever, snapshot, seen)
        head = f"{intent} [{', '.join(added)}]" if added else intent
        parts.append("\n".join([head, *(_place(chunk) for chunk in chunks)]))
        if not chunks:
            parts[-1] += "\nnothing that is not named above"
    return "\n\n".join(parts)


async def _distinct(
    query: Problem, retriever: Retriever, snapshot: Snapshot, seen: set[tuple[str, str]]
) -> list[Chunk]:
    """The first HITS that were not seen; what has no name is told apart by its lines."""
    ranking = await retriever.rank(query, snapshot)
    found: list[Chunk] = []
    for scored in ranking.chunks[: HITS * OVER_RETRIEVED]:
        chunk = scored.chunk
        key = (chunk.path, chunk.symbol or f"L{chunk.start}")
        if key not in seen and len(found) < HITS:
            seen.add(key)
            found.append(chunk)
    return found


def _place(chunk: Chunk) -> str:
    return f"{chunk.path}:L{chunk.start}-{chunk.end} {chunk.symbol or chunk.kind.value}"


async def _keywords(
    intents: Sequence[str], services: Services
) -> tuple[Mapping[int, tuple[str, ...]], str]:
    """Words by the number of the intent, and why there are none."""
    lines = "\n".join(" ".join(intent.split()) for intent in intents)
    prompt = make_prompt(
        [Message("user", render("keywords", intents=as_data(lines)))], services.counter
    )
    try:
        reply = await services.chat.complete(
            prompt, max_output_tokens=_MAX_OUTPUT_TOKENS, schema=SCHEMA
        )
    except (ProviderError, BudgetExceeded) as error:
        return {}, f"[without keywords: {error}]"
    words = read_keywords(reply.text)
    return words, "" if words else "[without keywords: the reply held none]"


def read_keywords(text: str) -> Mapping[int, tuple[str, ...]]:
    """The words of a reply by the number of the line; empty for one that cannot be read."""
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
