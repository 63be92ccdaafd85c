"""The file format of recorded model exchanges: JSON Lines, one `Exchange` a line.

Exchanges are in the order of their completion. No part of an exchange holds a key.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.llm.redaction import one_line
from agent.llm.replies import without_surrogates
from agent.types import Completion, Prompt, Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1

EmbedKind = Literal["query", "document"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedMessage(_Strict):
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(_Strict):
    """The request of a chat call."""

    model: str
    messages: tuple[RecordedMessage, ...]
    max_output_tokens: int


class RecordedUsage(_Strict):
    """`agent.types.Usage` as recorded."""

    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cost_usd: float | None = Field(ge=0)
    calls: int = Field(ge=0)
    cache_read_tokens: int = Field(0, ge=0)
    cache_write_tokens: int = Field(0, ge=0)
    estimated: bool = False


class ChatReply(_Strict):
    """The reply of a chat call. `masked`: it held a secret, so `text` is not what was received."""

    text: str
    model: str
    finish_reason: str
    usage: RecordedUsage
    masked: bool = False


class EmbedRequest(_Strict):
    """The request of an embedding call; `name` is `Embedder.name`."""

    name: str
    kind: EmbedKind
    texts: tuple[str, ...]


class EmbedReply(_Strict):
    """Vectors: base64 of little-endian float32, row by row."""

    rows: int = Field(ge=0)
    dimension: int = Field(ge=0)
    vectors: str


class ChatExchange(_Strict):
    """One chat call. `sha256` is `Prompt.sha256`."""

    format: Literal[1] = 1
    kind: Literal["chat"] = "chat"
    sha256: str
    request: ChatRequest
    reply: ChatReply
    seconds: float = Field(ge=0)


class EmbedExchange(_Strict):
    """One embedding call. `sha256` covers kind and texts, see `embed_sha256`."""

    format: Literal[1] = 1
    kind: Literal["embed"] = "embed"
    sha256: str
    request: EmbedRequest
    reply: EmbedReply
    seconds: float = Field(ge=0)


Exchange = ChatExchange | EmbedExchange


def embed_sha256(texts: Sequence[str], kind: EmbedKind) -> str:
    """The hash of an embedding request: SHA-256 over the JSON of `[kind, texts]`, hex."""
    canonical = json.dumps([kind, list(texts)], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def encode_vectors(vectors: NDArray[np.float32]) -> EmbedReply:
    """A reply that holds `vectors`, of shape (rows, dimension), without loss."""
    rows, dimension = vectors.shape
    encoded = base64.b64encode(vectors.astype("<f4").tobytes()).decode("ascii")
    return EmbedReply(rows=rows, dimension=dimension, vectors=encoded)


def decode_vectors(reply: EmbedReply) -> NDArray[np.float32] | None:
    """The vectors of a reply, float32 of shape (rows, dimension); None when damaged."""
    import numpy as np

    try:
        raw = base64.b64decode(reply.vectors, validate=True)
    except ValueError:
        return None
    if len(raw) != 4 * reply.rows * reply.dimension:
        return None
    vectors = np.frombuffer(raw, dtype="<f4").astype(np.float32)
    if not np.isfinite(vectors).all():
        return None
    return vectors.reshape(reply.rows, reply.dimension)


def recorded_messages(prompt: Prompt) -> tuple[RecordedMessage, ...]:
    """The messages of a prompt as a recording holds them."""
    return tuple(
        RecordedMessage(role=m.role, content=without_surrogates(m.content)) for m in prompt.messages
    )


def exchange_of(
    prompt: Prompt, model: str, max_output_tokens: int, done: Completion
) -> ChatExchange:
    """The exchange of a completed chat call."""
    usage = done.usage
    return ChatExchange(
        sha256=prompt.sha256,
        request=ChatRequest(
            model=model,
            messages=recorded_messages(prompt),
            max_output_tokens=max_output_tokens,
        ),
        reply=ChatReply(
            text=without_surrogates(done.text),
            model=done.model,
            finish_reason=done.finish_reason,
            usage=RecordedUsage(**asdict(usage)),
        ),
        seconds=done.seconds,
    )


def completion_of(exchange: ChatExchange) -> Completion:
    """The completion of a recorded exchange."""
    reply = exchange.reply
    usage = Usage(**reply.usage.model_dump())
    return Completion(reply.text, reply.model, reply.finish_reason, usage, exchange.seconds)


def mask_exchange(exchange: Exchange, hide: Callable[[str], str]) -> Exchange:
    """The exchange with `hide` applied to its prompt or texts, and to its reply's text."""
    if isinstance(exchange, EmbedExchange):
        asked = exchange.request
        asked = asked.model_copy(update={"texts": tuple(map(hide, asked.texts))})
        return exchange.model_copy(update={"request": asked})
    messages = tuple(
        message.model_copy(update={"content": hide(message.content)})
        for message in exchange.request.messages
    )
    request = exchange.request.model_copy(update={"messages": messages})
    reply, text = exchange.reply, hide(exchange.reply.text)
    if text != reply.text:
        reply = reply.model_copy(update={"text": text, "masked": True})
    return exchange.model_copy(update={"request": request, "reply": reply})


def format_exchange(exchange: Exchange) -> bytes:
    """One line of the file, in ASCII, so that no Unicode line separator can split it."""
    value = exchange.model_dump(mode="json", exclude_defaults=True)
    value = {"format": exchange.format, "kind": exchange.kind, **value}
    text = json.dumps(value, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


_NO_EXCHANGE = {
    "union_tag_not_found": 'it has no "kind"',
    "union_tag_invalid": 'its "kind" is neither "chat" nor "embed"',
    "dict_type": "it is no JSON object",
    "json_invalid": "it is no JSON",
}
"""pydantic's error types for lines that are not exchanges, in plain words."""


def parse_exchange(line: bytes) -> Exchange | str:
    """The exchange of one line, or a text that says what is wrong with it."""
    adapter: TypeAdapter[Exchange] = TypeAdapter(Annotated[Exchange, Field(discriminator="kind")])
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] in _NO_EXCHANGE:
            return _NO_EXCHANGE[first["type"]]
        where = ".".join(str(part) for part in first["loc"])
        return one_line(f"{where}: {first['msg']}" if where else first["msg"], 160)
