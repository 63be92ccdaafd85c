"""Recorded model exchanges, an optional part: what a run recorded is what a replay answers.

A recording is a file of JSON Lines, one `Exchange` a line, in the order of their completion.
`Recorder` writes one (`--record`) through `RecordingChatModel` and `RecordingEmbedder`.
`Recording` reads one (`--replay`) and answers through `ReplayingChatModel` and
`ReplayingEmbedder`. A replayed prompt must have the hash it was recorded with, so an answer is
never given to a question that was not asked. `agent.llm.paid_replies` uses the same format.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.errors import ReplayMismatch, UsageError
from agent.llm.clients import ChatModelWrapper
from agent.llm.failures import one_line
from agent.llm.replies import without_surrogates
from agent.types import Completion, Message, Prompt, Usage
from agent.types.events import Notice
from agent.types.protocols import ChatModel, Embedder, Reporter

if TYPE_CHECKING:
    from io import FileIO

    import numpy as np
    from numpy.typing import NDArray

EmbedKind = Literal["query", "document"]

_EXCERPT = 80  # characters of a line that a mismatch shows
_STRICT = ConfigDict(frozen=True, extra="forbid")


class ChatRequest(BaseModel):
    """The request of a chat call."""

    model_config = _STRICT
    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int


class ChatReply(BaseModel):
    """The reply of a chat call. `masked`: it held a secret, so `text` is not what was received."""

    model_config = _STRICT
    text: str
    model: str
    finish_reason: str
    usage: Usage
    masked: bool = False


class EmbedRequest(BaseModel):
    """The request of an embedding call; `name` is `Embedder.name`."""

    model_config = _STRICT
    name: str
    kind: EmbedKind
    texts: tuple[str, ...]


class EmbedReply(BaseModel):
    """Vectors: base64 of little-endian float32, row by row."""

    model_config = _STRICT
    rows: int = Field(ge=0)
    dimension: int = Field(ge=0)
    vectors: str


class ChatExchange(BaseModel):
    """One chat call. `sha256` is `Prompt.sha256`."""

    model_config = _STRICT
    format: Literal[1] = 1
    kind: Literal["chat"] = "chat"
    sha256: str
    request: ChatRequest
    reply: ChatReply
    seconds: float = Field(ge=0)


class EmbedExchange(BaseModel):
    """One embedding call. `sha256` is that of the JSON of `[kind, texts]`."""

    model_config = _STRICT
    format: Literal[1] = 1
    kind: Literal["embed"] = "embed"
    sha256: str
    request: EmbedRequest
    reply: EmbedReply
    seconds: float = Field(ge=0)


Exchange = ChatExchange | EmbedExchange


def _embed_sha256(texts: Sequence[str], kind: EmbedKind) -> str:
    canonical = json.dumps([kind, list(texts)], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _decode_vectors(reply: EmbedReply) -> NDArray[np.float32] | None:
    """The vectors of a reply, float32 of shape (rows, dimension); None when damaged."""
    import numpy as np

    try:
        raw = base64.b64decode(reply.vectors, validate=True)
        vectors = np.frombuffer(raw, dtype="<f4").astype(np.float32)
        vectors = vectors.reshape(reply.rows, reply.dimension)
    except ValueError:
        return None
    return vectors if np.isfinite(vectors).all() else None


def recorded_messages(prompt: Prompt) -> tuple[Message, ...]:
    """The messages of a prompt as a recording holds them."""
    return tuple(Message(m.role, without_surrogates(m.content)) for m in prompt.messages)


def exchange_of(
    prompt: Prompt, model: str, max_output_tokens: int, done: Completion
) -> ChatExchange:
    """The exchange of a completed chat call."""
    messages = recorded_messages(prompt)
    return ChatExchange(
        sha256=prompt.sha256,
        request=ChatRequest(model=model, messages=messages, max_output_tokens=max_output_tokens),
        reply=ChatReply(
            text=without_surrogates(done.text),
            model=done.model,
            finish_reason=done.finish_reason,
            usage=done.usage,
        ),
        seconds=done.seconds,
    )


def completion_of(exchange: ChatExchange) -> Completion:
    """The completion of a recorded exchange."""
    reply = exchange.reply
    return Completion(reply.text, reply.model, reply.finish_reason, reply.usage, exchange.seconds)


def mask_exchange(exchange: Exchange, hide: Callable[[str], str]) -> Exchange:
    """The exchange with `hide` applied to its prompt or texts, and to its reply's text."""
    if isinstance(exchange, EmbedExchange):
        texts = tuple(map(hide, exchange.request.texts))
        request = exchange.request.model_copy(update={"texts": texts})
        return exchange.model_copy(update={"request": request})
    messages = tuple(Message(m.role, hide(m.content)) for m in exchange.request.messages)
    chat = exchange.request.model_copy(update={"messages": messages})
    reply, text = exchange.reply, hide(exchange.reply.text)
    if text != reply.text:
        reply = reply.model_copy(update={"text": text, "masked": True})
    return exchange.model_copy(update={"request": chat, "reply": reply})


def format_exchange(exchange: Exchange) -> bytes:
    """One line of the file, in ASCII, so that no Unicode line separator can split it."""
    value = exchange.model_dump(mode="json", exclude_defaults=True)
    value = {"format": exchange.format, "kind": exchange.kind, **value}
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


@cache
def _adapter() -> TypeAdapter[Exchange]:
    return TypeAdapter(Annotated[Exchange, Field(discriminator="kind")])


def parse_exchange(line: bytes) -> Exchange | str:
    """The exchange of one line, or a text that says what is wrong with it."""
    try:
        return _adapter().validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return one_line(f"{where}: {first['msg']}" if where else first["msg"], 160)


# ---------------------------------------------------------------------------------------- replaying


class Recording:
    """The exchanges of a file, each of which is served once, those of one prompt in order.

    `model` and `embedder_name` are the first that were recorded; `has_embeddings` says whether
    there are any embeddings. Raises UsageError when the file cannot be read, ReplayMismatch (with
    the line) when it is not a recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        exchanges = list(enumerate(_load(path), start=1))
        self._chats = [(n, one) for n, one in exchanges if isinstance(one, ChatExchange)]
        self._embeds = [(n, one) for n, one in exchanges if isinstance(one, EmbedExchange)]
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
        number, first = self._chats[0]
        raise self._other(number, first.request.messages, recorded_messages(prompt))

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> EmbedExchange:
        """The next exchange of these texts. Raises ReplayMismatch when there is none."""
        sha256 = _embed_sha256(texts, kind)
        for position, (_, exchange) in enumerate(self._embeds):
            if exchange.sha256 == sha256:
                return self._embeds.pop(position)[1]
        if not self._embeds:
            raise self._exhausted("embedding call")
        number, first = self._embeds[0]
        raise self._other(number, _documents(first.request.texts), _documents(texts))

    def _exhausted(self, what: str) -> ReplayMismatch:
        return ReplayMismatch(
            f"{self.path} has no further {what}: the run now makes more of them than the recorded "
            "one; record it again with --record"
        )

    def _other(
        self,
        number: int,
        recorded: Sequence[Message],
        actual: Sequence[Message],
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
        vectors = _decode_vectors(self._recording.embed(texts, kind).reply)
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
                f"line {number} of {path} is not a recorded exchange of format 1 ({exchange}): "
                "record it again with --record"
            )
        exchanges.append(exchange)
    return exchanges


def _documents(texts: Sequence[str]) -> list[Message]:
    return [Message("user", without_surrogates(text)) for text in texts]


def _first_difference(recorded: Sequence[Message], actual: Sequence[Message]) -> str:
    """Describe where two lists of texts first differ."""
    for number, (old, new) in enumerate(zip(recorded, actual, strict=False), start=1):
        olds, news = (f"{one.content}\n".split("\n") for one in (old, new))
        for line, (before, after) in enumerate(zip(olds, news, strict=False), start=1):
            if before != after:
                start = max(0, _common(before, after) - 30)
                shown = [one_line(text[start:], _EXCERPT) for text in (before, after)]
                return f"text {number}, line {line}: recorded {shown[0]!r}, now {shown[1]!r}"
    return f"recorded {len(recorded)} texts, now {len(actual)}, or another kind of call"


def _common(one: str, other: str) -> int:
    """The length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


# ---------------------------------------------------------------------------------------- recording


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
        self._file: FileIO | None = None

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
        masked = mask_exchange(exchange, self._hide)
        if masked != exchange and not self._has_hidden:
            self._has_hidden = True
            note = "a key is masked in the recording; where a reply held it, a replay differs there"
            self._report(Notice(f"{self.path}: {note}", "warning"))
        try:
            self._write(format_exchange(masked))
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be recorded to ({error.strerror or error}): choose another "
                "place"
            ) from None

    def _write(self, line: bytes) -> None:
        if self._file is None:
            if self.path.exists() and not self.path.is_file():
                raise FileExistsError(errno.EEXIST, "not a regular file")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("wb", buffering=0)
        self._file.write(line)


class RecordingChatModel(ChatModelWrapper):
    """A `ChatModel` that records every completed exchange of another one."""

    def __init__(self, inner: ChatModel, recorder: Recorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model and record. Raises what it raises, and UsageError."""
        done = await super().complete(prompt, max_output_tokens=max_output_tokens, schema=schema)
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
        rows, dimension = vectors.shape
        encoded = base64.b64encode(vectors.astype("<f4").tobytes()).decode("ascii")
        self._recorder.append(
            EmbedExchange(
                sha256=_embed_sha256(texts, kind),
                request=EmbedRequest(
                    name=self.name, kind=kind, texts=tuple(map(without_surrogates, texts))
                ),
                reply=EmbedReply(rows=rows, dimension=dimension, vectors=encoded),
                seconds=clock() - started,
            )
        )
        return vectors
