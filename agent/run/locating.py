"""The locating call: a model that sees a map of the repository names the code it has to see.

It comes before the call for the patch where the ranking alone is unlikely to find all. Its system
message and the issue are those of that call, so that a provider's prompt cache can serve both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent.errors import BudgetExceeded, ContextTooLong, ProviderError
from agent.patching import scan
from agent.retrieval.context import PackingOptions, RepositoryMap, make_map, put_first, sized
from agent.run.prompting import as_data, make_prompt, render
from agent.settings import AUTO_CONTEXT
from agent.shared.terminal import counted
from agent.types import Chunk, Message, Problem, Prompt, Ranking
from agent.types.protocols import ChatModel, Services, Snapshot, TokenCounter

MAP_TOKENS = 2500
"""A map of 1,100 to 3,000 tokens let a model name 32 of 39 functions of eight larger repairs."""

MAX_OUTPUT_TOKENS = 1500
"""Fifteen places take about 300 tokens; a model that writes its reasoning needs more."""

MAX_PLACES = 15
MAX_WORDS = 10
_WORD_LENGTH = 80  # characters; a longer "word" is a sentence

LOCATE_BELOW = 0.85
"""The probability of a complete context below which `auto` makes the call.

Of 22 larger fixes of 2026, 19 first replies had edits at 0.7, for 13,000 tokens in the mean, and 22
with a call always, for 11,700. The three others had probabilities below 0.85. On 104 repairs of the
tune split, 71% of the contexts are complete at 0.7; with no call, 62%.
"""

LocateWhen = Literal["auto", "always", "never"]

# With a budget that is not fixed, the context holds the named code with its support, and this much
# of what the ranking prefers.
_SUPPORT_FACTOR = 1.2
_OTHER_TOKENS = 1000

# Names of a reply that a message repeats.
_NAMES_SHOWN = 5

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "places": {"type": "array", "items": {"type": "string"}},
        "words": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["places", "words"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class LocatingReply:
    """What a reply names: places as the model wrote them, and words to search for."""

    places: tuple[str, ...]
    words: tuple[str, ...] = ()


def locate_prompt(problem: Problem, map: RepositoryMap, counter: TokenCounter) -> Prompt:
    """Return the prompt of the locating call."""
    user = render(
        "locate",
        issue=as_data(problem.text),
        map=as_data(map.text),
        most=MAX_PLACES,
        words=MAX_WORDS,
    )
    return make_prompt([Message("system", render("system")), Message("user", user)], counter)


def read_located(text: str) -> LocatingReply | None:
    """Return the places and words of a reply; None if it names no place. Never raises."""
    for found in scan(text, {"places"}, lambda keys: "places" in keys).objects:
        if isinstance(found.value, Mapping) and (places := _texts(found.value.get("places"))):
            words = _texts(found.value.get("words"))
            short = [word for word in words if len(word) <= _WORD_LENGTH]
            return LocatingReply(places[:MAX_PLACES], tuple(short[:MAX_WORDS]))
    return None


def _texts(value: Any) -> tuple[str, ...]:
    """Return the distinct texts of a list, of which some may be objects with path and symbol."""
    texts = (_text(item).strip() for item in (value if isinstance(value, list) else ()))
    return tuple(dict.fromkeys(text for text in texts if text))


def _text(item: Any) -> str:
    if not isinstance(item, Mapping):
        return item if isinstance(item, str) else ""
    parts = (item.get("path"), item.get("symbol") or item.get("name"))
    return ":".join(part for part in parts if isinstance(part, str) and part)


@dataclass(frozen=True, slots=True)
class LocatedContext:
    """What the call changes: the ranking, and how it is packed. `summary`: for the user.

    `failure` says why the ordinary context is used; it is "" if the call has located code.
    """

    ranking: Ranking
    packing: PackingOptions
    summary: str
    failure: str = ""


def is_wanted(
    when: LocateWhen, ranking: Ranking, packing: PackingOptions, counter: TokenCounter
) -> bool:
    """Whether to make the call: always, never, or where the context is unlikely to be complete."""
    if when != "auto" or not ranking.chunks:
        return when == "always" and bool(ranking.chunks)
    _, likely = sized(packing, ranking, counter.count)
    return likely is not None and likely < LOCATE_BELOW


async def locate(
    problem: Problem,
    snapshot: Snapshot,
    ranking: Ranking,
    packing: PackingOptions,
    services: Services,
    locator: ChatModel,
) -> LocatedContext:
    """Make the call, and return the ranking with the code that it names first.

    Raises ProviderError if the server of the call for the patch, too, cannot be used.
    """
    counter, chunker = services.counter, services.chunker
    map = await asyncio.to_thread(
        make_map, problem, ranking, snapshot, counter, chunker, MAP_TOKENS
    )
    prompt = locate_prompt(problem, map, counter)
    try:
        done = await locator.complete(prompt, max_output_tokens=MAX_OUTPUT_TOKENS, schema=SCHEMA)
    except (BudgetExceeded, ContextTooLong) as error:
        return _without(ranking, packing, str(error))
    except ProviderError as error:
        if locator.model == services.chat.model:
            raise
        return _without(ranking, packing, str(error))
    located = read_located(done.text)
    if located is None:
        return _without(ranking, packing, "its reply names no place")
    if located.words:
        body = f"{problem.body}\n\n{' '.join(located.words)}"
        ranking = await services.retriever.rank(replace(problem, body=body), snapshot)
    code = await asyncio.to_thread(put_first, located.places, ranking, snapshot, chunker)
    if not code.chunks:
        return _without(ranking, packing, "no place that it names is in the repository")
    summary = counted(len(code.chunks), "place")
    if code.unknown:
        summary += f", not in the repository: {', '.join(code.unknown[:_NAMES_SHOWN])}"
    notes = (*code.ranking.notes, f"the locating call named {summary}")
    packing = room_for(code.chunks, packing, counter)
    summary = f"{summary}; {done.usage.summary}"
    return LocatedContext(replace(code.ranking, notes=notes), packing, summary)


def room_for(
    chunks: Sequence[Chunk], packing: PackingOptions, counter: TokenCounter
) -> PackingOptions:
    """Return the options with a budget for named code, if the budget is not the user's."""
    if not packing.automatic:
        return packing
    tokens = sum(counter.count(chunk.text) for chunk in chunks)
    budget = int(tokens * _SUPPORT_FACTOR / (1 - packing.reserve)) + _OTHER_TOKENS
    budget = min(max(budget, AUTO_CONTEXT[0]), AUTO_CONTEXT[1])
    return replace(packing, budget=budget, automatic=False)


def _without(ranking: Ranking, packing: PackingOptions, failure: str) -> LocatedContext:
    return LocatedContext(ranking, packing, "no place", failure)
