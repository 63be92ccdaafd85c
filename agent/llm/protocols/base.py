"""The seam between what a server speaks and how requests are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent.llm.endpoint import Endpoint
from agent.llm.prices import Price
from agent.llm.shapes import ReadReply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.llm.failures import Failure
    from agent.types import Message


@dataclass(frozen=True, slots=True)
class ChatCall:
    """What one call asks. `model` is "" for the server's own choice; `schema` a JSON Schema.

    `caching`: mark what a later call repeats, where the provider has a prompt cache.
    """

    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int
    temperature: float = 0.0
    schema: Mapping[str, Any] | None = None
    caching: bool = True


class ChatProtocol(Protocol):
    """One way of writing chat calls for one server: a frozen value.

    What a server refuses is learnt by replacing the value (`adapted`), for good.
    """

    @property
    def path(self) -> str:
        """Where calls are POSTed to, below the root: "/chat/completions"."""
        ...

    def body(self, call: ChatCall) -> dict[str, Any]:
        """The JSON of a request."""
        ...

    def read(self, value: Any) -> ReadReply | str | None:
        """The JSON of a 2xx reply: what was answered.

        A str is an error that the server sent as if it were an answer, None no chat reply at all.
        """
        ...

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> ChatProtocol | None:
        """The way that avoids this refusal of the body `sent`; None when none would."""
        ...

    def plainer(self) -> ChatProtocol:
        """Asks less strictly for the reply's format: the server ignored how it was asked."""
        ...


class EmbeddingProtocol(Protocol):
    """One way of writing embedding calls: a frozen value, as `ChatProtocol` is."""

    @property
    def path(self) -> str:
        """Where calls are POSTed to, below the root: "/embeddings"."""
        ...

    @property
    def max_batch(self) -> int:
        """Largest number of texts of a call."""
        ...

    def body(self, model: str, texts: Sequence[str]) -> dict[str, Any]:
        """The JSON of a request for the vectors of `texts`."""
        ...

    def read(self, value: Any, count: int) -> NDArray[np.float32] | None:
        """`count` vectors, float32 of shape (count, d), not normalised; None if there are not."""
        ...

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> EmbeddingProtocol | None:
        """The way that avoids this refusal; None when none would."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as a server lists it: tokens of its window and price, None where not told."""

    name: str
    context_tokens: int | None = None
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a server says of a run's budget, in US dollars; None where it does not tell."""

    used: float | None = None
    remaining: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class ServerProtocol:
    """Everything that is spoken to one kind of server.

    `roots` gives what may stand before a path, the likeliest first; what works is remembered.
    `embeddings` is None where the protocol has none. `models_path` and `embedding_models_path` are
    asked for the lists that `read_models` reads, in the server's order.
    """

    roots: Callable[[str], tuple[str, ...]]
    headers: Callable[[Endpoint], Mapping[str, str]]
    chat: Callable[[Endpoint], ChatProtocol]
    embeddings: Callable[[Endpoint], EmbeddingProtocol] | None
    read_models: Callable[[Any], tuple[ModelInfo, ...]]
    models_path: str = "/models"
    embedding_models_path: str = "/models"
