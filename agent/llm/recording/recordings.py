"""Records model exchanges to a file, and answers from such a file without a network.

A replayed prompt must have the hash it was recorded with: an answer is never given to a question
that was not asked.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agent.errors import ReplayMismatch, UsageError
from agent.llm.chat import ChatModelWrapper
from agent.llm.recording.exchanges import (
    FORMAT,
    ChatExchange,
    EmbedExchange,
    EmbedKind,
    EmbedRequest,
    Exchange,
    RecordedMessage,
    completion_of,
    decode_vectors,
    embed_sha256,
    encode_vectors,
    exchange_of,
    format_exchange,
    mask_exchange,
    parse_exchange,
    recorded_messages,
)
from agent.llm.redaction import one_line
from agent.llm.replies import without_surrogates
from agent.types import Completion, Prompt
from agent.types.events import Notice
from agent.types.protocols import ChatModel, Embedder, Reporter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EXCERPT = 80  # characters of a line that a mismatch shows
_BEFORE = 30  # of these, what stands before the first difference


class Recording:
    """The exchanges of a file, each of which is served once.

    `model` and `embedder_name` are the first that were recorded; `has_embeddings` says whether
    there are any embeddings. Exchanges of the same prompt are served in order.

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
    """A `ChatModel` that answers from a recording, with the recorded usage and time."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def model(self) -> str:
        """The model that was recorded."""
        return self._recording.model

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The recorded reply to this prompt. Raises ReplayMismatch."""
        return completion_of(self._recording.chat(prompt))


class ReplayingEmbedder:
    """An `Embedder` that answers from a recording with exactly the recorded vectors."""

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
    """Describe where two lists of named texts first differ."""
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
    """The length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shown(label: str, lines: list[str], index: int, start: int) -> str:
    if index >= len(lines):
        return f"{label} nothing more"
    before = "…" if start else ""
    return f"{label} {before + one_line(lines[index][start:], _EXCERPT)!r}"


class Recorder:
    """Appends exchanges to a file.

    The first exchange replaces an older file (a run that fails earlier leaves the older file
    alone); each exchange is on disk when `append` returns. Close it, or use it with `with`. Texts
    pass through `hide`, which masks keys; the first masked key is reported. The hash of a request
    is that of the text that was sent, so that a replay finds it.
    """

    def __init__(
        self,
        path: Path,
        hide: Callable[[str], str] = str,
        report: Reporter = lambda _: None,
    ) -> None:
        self.path = path
        self._hide = hide
        self._report = report
        self._has_hidden = False
        self._file: BinaryIO | None = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Another exchange would start a new one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, exchange: Exchange) -> None:
        """Write one exchange. Raises UsageError when the file cannot be written."""
        try:
            self._write(format_exchange(self._masked(exchange)))
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be recorded to ({error.strerror or error}): choose another "
                "place"
            ) from None

    def _masked(self, exchange: Exchange) -> Exchange:
        masked = mask_exchange(exchange, self._hide)
        if masked != exchange and not self._has_hidden:
            self._has_hidden = True
            note = "a key is masked in the recording; where a reply held it, a replay differs there"
            self._report(Notice(f"{self.path}: {note}", "warning"))
        return masked

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            self._file.write(line)
            self._file.flush()
            return
        target = self.path.resolve()  # a link stays one
        if target.exists() and not target.is_file():
            raise FileExistsError(errno.EEXIST, "not a regular file")
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".recording-", dir=target.parent)
        file = os.fdopen(descriptor, "wb")
        try:
            file.write(line)
            file.flush()
            Path(temporary).replace(target)
        except OSError:
            file.close()
            Path(temporary).unlink(missing_ok=True)
            raise
        self._file = file  # the open file follows the rename


class RecordingChatModel(ChatModelWrapper):
    """A `ChatModel` that records every completed exchange of another one."""

    def __init__(self, inner: ChatModel, recorder: Recorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model and record. Raises what it raises, and UsageError."""
        done = await self._inner.complete(
            prompt, max_output_tokens=max_output_tokens, schema=schema
        )
        self._recorder.append(exchange_of(prompt, self.model, max_output_tokens, done))
        return done


class RecordingEmbedder:
    """An `Embedder` that records every completed exchange of another one."""

    def __init__(self, inner: Embedder, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    @property
    def name(self) -> str:
        """The inner embedder's name."""
        return self._inner.name

    async def embed(self, texts: Sequence[str], *, kind: EmbedKind) -> NDArray[np.float32]:
        """Embed and record; float32 of shape (len(texts), d), as the inner embedder gives it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        vectors = await self._inner.embed(texts, kind=kind)
        self._recorder.append(
            EmbedExchange(
                sha256=embed_sha256(texts, kind),
                request=EmbedRequest(
                    name=self.name, kind=kind, texts=tuple(map(without_surrogates, texts))
                ),
                reply=encode_vectors(vectors),
                seconds=clock() - started,
            )
        )
        return vectors
