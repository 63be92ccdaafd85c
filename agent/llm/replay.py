"""Answer from a file of recorded model exchanges, without a network.

A replayed prompt must have the hash it was recorded with: an answer is never given to a question
that was not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import ReplayMismatch, UsageError
from agent.llm.exchange import (
    FORMAT,
    ChatExchange,
    EmbedExchange,
    EmbedKind,
    Exchange,
    RecordedMessage,
    completion_of,
    decode_vectors,
    embed_sha256,
    parse_exchange,
    recorded_messages,
)
from agent.llm.shapes import without_surrogates
from agent.llm.wording import one_line
from agent.types import Completion, Prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EXCERPT = 80  # characters of a line that a mismatch shows
_BEFORE = 30  # of these, what stands before the first difference


class Recording:
    """The exchanges of a file, each of which is served once.

    `model` and `embedder_name` are those recorded first; `has_embeddings` tells whether there are
    any to serve. Exchanges of the same prompt are served in order.

    Raises UsageError when the file cannot be read, ReplayMismatch (with the line) when it is not
    a recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chats: list[tuple[int, ChatExchange]] = []
        self._embeds: list[tuple[int, EmbedExchange]] = []
        for number, exchange in enumerate(_load(path), start=1):
            if isinstance(exchange, ChatExchange):
                self._chats.append((number, exchange))
            else:
                self._embeds.append((number, exchange))
        self.model = self._chats[0][1].request.model if self._chats else "replay"
        self.embedder_name = self._embeds[0][1].request.name if self._embeds else "replay"
        self.has_embeddings = bool(self._embeds)

    def chat(self, prompt: Prompt) -> ChatExchange:
        """The next exchange of this prompt. Raises ReplayMismatch when there is none."""
        for position, (_, exchange) in enumerate(self._chats):
            if exchange.sha256 == prompt.sha256:
                return self._chats.pop(position)[1]
        if not self._chats:
            raise self._exhausted("model call")
        number, exchange = self._chats[0]
        recorded = _named(exchange.request.messages)
        raise self._other(number, recorded, _named(recorded_messages(prompt)))

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> EmbedExchange:
        """The next exchange of these texts. Raises ReplayMismatch when there is none."""
        wanted = embed_sha256(texts, kind)
        for position, (_, exchange) in enumerate(self._embeds):
            if exchange.sha256 == wanted:
                return self._embeds.pop(position)[1]
        if not self._embeds:
            raise self._exhausted("embedding call")
        number, exchange = self._embeds[0]
        request = exchange.request
        recorded = [(f"{request.kind} {i + 1}", text) for i, text in enumerate(request.texts)]
        actual = [(f"{kind} {i + 1}", without_surrogates(text)) for i, text in enumerate(texts)]
        raise self._other(number, recorded, actual)

    def _exhausted(self, what: str) -> ReplayMismatch:
        return ReplayMismatch(
            f"{self.path} has no further {what}: the run now makes more of them than the recorded "
            "one; record it again with --record"
        )

    def _other(
        self, number: int, recorded: list[tuple[str, str]], actual: list[tuple[str, str]]
    ) -> ReplayMismatch:
        return ReplayMismatch(
            f"exchange {number} of {self.path} was recorded for another prompt "
            f"({_first_difference(recorded, actual)}): record it again with --record, or go back "
            "to the recorded issue, repository and settings"
        )


class ReplayingChatModel:
    """A `ChatModel` that answers from a recording, usage and time as recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def model(self) -> str:
        """The model that was recorded."""
        return self._recording.model

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The recorded reply to this very prompt. Raises ReplayMismatch."""
        return completion_of(self._recording.chat(prompt))


class ReplayingEmbedder:
    """An `Embedder` that answers from a recording, bit by bit as recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def name(self) -> str:
        """The embedder that was recorded: caches made with it stay valid."""
        return self._recording.embedder_name

    async def embed(self, texts: Sequence[str], *, kind: EmbedKind) -> NDArray[np.float32]:
        """The recorded vectors, float32 of shape (len(texts), d). Raises ReplayMismatch."""
        reply = self._recording.embed(texts, kind).reply
        vectors = decode_vectors(reply)
        if vectors is None or len(vectors) != len(texts):
            raise ReplayMismatch(
                f"{self._recording.path} has damaged vectors: record it again with --record"
            )
        return vectors


def _load(path: Path) -> list[Exchange]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be replayed ({error.strerror or error}): record one with --record"
        ) from None
    exchanges = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        exchange = parse_exchange(line)
        if isinstance(exchange, str):
            raise ReplayMismatch(
                f"line {number} of {path} is not a recorded exchange of format {FORMAT} "
                f"({exchange}): record it again with --record"
            )
        exchanges.append(exchange)
    return exchanges


def _named(messages: tuple[RecordedMessage, ...]) -> list[tuple[str, str]]:
    return [(f"message {i} ({m.role})", m.content) for i, m in enumerate(messages, start=1)]


def _first_difference(recorded: list[tuple[str, str]], actual: list[tuple[str, str]]) -> str:
    """Where two lists of named texts first differ, in words."""
    for (old_name, old), (new_name, new) in zip(recorded, actual, strict=False):
        if old_name != new_name:
            return f"recorded a {old_name}, now a {new_name}"
        if old != new:
            return f"{new_name}, {_differing_line(old, new)}"
    if len(recorded) != len(actual):
        return f"recorded {len(recorded)} texts, now {len(actual)}"
    return "the texts are equal, the hash in the file is not"


def _differing_line(old: str, new: str) -> str:
    olds, news = old.split("\n"), new.split("\n")
    same = 0
    while same < min(len(olds), len(news)) and olds[same] == news[same]:
        same += 1
    start = 0
    if same < min(len(olds), len(news)):
        start = max(0, _in_common(olds[same], news[same]) - _BEFORE)
    here = f"line {same + 1}" + (f" from character {start + 1}" if start else "")
    return f"{here}: {_shown('recorded', olds, same, start)}, {_shown('now', news, same, start)}"


def _in_common(one: str, other: str) -> int:
    """How many characters they begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shown(label: str, lines: list[str], index: int, start: int) -> str:
    if index >= len(lines):
        return f"{label} nothing more"
    before = "…" if start else ""
    return f"{label} {before + one_line(lines[index][start:], _EXCERPT)!r}"
