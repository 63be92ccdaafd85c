"""Intents, the short sentences that make up plans, and their extraction from an issue's text.

Each intent is one search. `text` is an imperative sentence for people and models; `query` has the
words to search for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent.retrieval.ranking import Frame, MentionPlace, read_mentions, text_parts

if TYPE_CHECKING:
    from agent.types import Problem

Origin = Literal["title", "sentence", "error", "frame", "name", "neighbour", "mutation", "model"]

MAX_INTENT_CHARS = 240
"""A longer sentence is probably a paragraph without full stops.

It is cut, because its beginning usually names the subject.
"""

MAX_SENTENCES = 16
MAX_NAMES = 8
MAX_FRAMES = 4
MAX_ERRORS = 3
"""Maximum intents from each origin.

Each one costs a ranking, and later ones are rarely relevant.
"""

_MIN_WORDS = 3  # minimum words of a sentence: excludes "Steps to reproduce" and "Thanks!"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(\[])|\n+")
_MARKS = re.compile(r"^[\s>#*+\-|]+(?:\[[ xX]?\]\s*)?|[\s*|]+$")
_WORDS = re.compile(r"[A-Za-z_]\w{2,}")
_LINK = re.compile(r"!?\[([^\]\n]{0,200})\]\([^)\n]{0,500}\)|https?://\S+")
_ERROR = re.compile(r"^[\w.]{0,100}?\w*(?:Error|Exception|Warning)\b[^\n]{3,300}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Intent:
    """One search of a plan. Intents with the same `query` count as equal."""

    text: str
    query: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class IntentPlan:
    """Intents in display order. No two have the same query."""

    intents: tuple[Intent, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Return the queries: they identify and order plans."""
        return tuple(intent.query for intent in self.intents)


def plan_of(intents: Iterable[Intent]) -> IntentPlan:
    """Return the plan of these intents. Each query is kept once, at its first position."""
    found: dict[str, Intent] = {}
    for intent in intents:
        found.setdefault(intent.query, intent)
    return IntentPlan(tuple(found.values()))


def intent_of(words: str, origin: Origin) -> Intent:
    """Return an intent to find these words, cut to the length of a sentence."""
    words = _shortened(" ".join(words.split()))
    return Intent(_WORDING[origin].format(words), words, origin)


_WORDING: dict[Origin, str] = {
    "title": "Find the code behind: {}",
    "sentence": "Find what this says: {}",
    "error": "Find what raises: {}",
    "frame": "Look where the error passed: {}",
    "name": "Look at {}",
    "neighbour": "Look around {}",
    "mutation": "Find {}",
    "model": "{}",
}


def intents_in(problem: Problem) -> tuple[Intent, ...]:
    """Return the intents of an issue: title, errors, frames, names, sentences; each query once."""
    return plan_of(_intents(problem)).intents


def _intents(problem: Problem) -> Iterator[Intent]:
    yield intent_of(problem.title, "title")
    prose, code = text_parts(problem.body)
    for found in list(_ERROR.findall(f"{prose}\n{code}"))[-MAX_ERRORS:]:
        yield intent_of(found, "error")
    mentions = read_mentions(problem)
    for frame in sorted(mentions.frames, key=lambda frame: frame.rank)[:MAX_FRAMES]:
        yield intent_of(_frame_words(frame), "frame")
    names = [m.name for m in mentions.names if m.place is not MentionPlace.CODE]
    yield from (intent_of(name, "name") for name in names[:MAX_NAMES])
    yield from (intent_of(text, "sentence") for text in sentences(prose)[:MAX_SENTENCES])


def _frame_words(frame: Frame) -> str:
    name = frame.path.replace("\\", "/").rpartition("/")[2]
    return f"{frame.function} in {name}" if frame.function else name


def sentences(prose: str) -> list[str]:
    """Return the distinct sentences of a text in order, without Markdown marks and links."""
    parts = _SENTENCE_END.split(_LINK.sub(r"\1", prose))
    cleaned = (_MARKS.sub("", part) for part in parts)
    return list(dict.fromkeys(part for part in cleaned if _says_something(part)))


def _says_something(text: str) -> bool:
    return len(_WORDS.findall(text)) >= _MIN_WORDS


def _shortened(text: str) -> str:
    if len(text) <= MAX_INTENT_CHARS:
        return text
    return text[:MAX_INTENT_CHARS].rpartition(" ")[0] or text[:MAX_INTENT_CHARS]
