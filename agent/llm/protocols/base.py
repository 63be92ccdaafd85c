"""The interface of a protocol: what `agent.llm` needs to know of a kind of server.

A protocol module builds one `ServerProtocol` and adds nothing anywhere else but its line in
`agent.llm.protocols`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent.llm.endpoint import Endpoint
from agent.llm.prices import Price
from agent.llm.replies import ReadReply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.llm.failures import Failure
    from agent.types import Message, ToolDialogue


@dataclass(frozen=True, slots=True)
class ChatCall:
    """What one call asks. `model` is "" for the server's own choice; `schema` is a JSON Schema.

    `dialogue` says what `messages` say, for servers that take tools. `effort` is how much a
    reasoning model may think ("low"), None for its own default.
    """

    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int
    temperature: float = 0.0
    schema: Mapping[str, Any] | None = None
    dialogue: ToolDialogue | None = None
    effort: str | None = None


class Assembler(Protocol):
    """Puts the events of a streamed reply together. Unknown events and parts are ignored.

    `finished`: the reason of the end, or an error, has come.
    """

    @property
    def finished(self) -> bool: ...

    def feed(self, event: Mapping[str, Any]) -> str:
        """Take one event; return the text that it adds, arguments of tools included."""
        ...

    def value(self) -> Any:
        """The JSON of the whole reply, as the server would have sent it."""
        ...


class ChatProtocol(Protocol):
    """How chat calls are written for one server: a frozen value.

    `path` is that of calls below the root, such as "/chat/completions". `streaming` has the fields
    of a request for a streamed reply, and what puts its events together; None where replies are
    not streamed. When the server refuses a field, `adapted` gives the value that replaces this one
    for good.
    """

    @property
    def path(self) -> str: ...

    @property
    def streaming(self) -> tuple[Mapping[str, Any], Callable[[], Assembler]] | None: ...

    def body(self, call: ChatCall) -> dict[str, Any]:
        """The JSON of a request."""
        ...

    def read(self, value: Any) -> ReadReply | str | None:
        """Read the JSON of a 2xx reply.

        Returns a str for an error that the server sent as if it were an answer, and None for
        anything that is not a chat reply.
        """
        ...

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> ChatProtocol | None:
        """The value that avoids this refusal of the body `sent`; None when none would."""
        ...

    def plainer(self) -> ChatProtocol:
        """The value that asks for the reply's format less strictly; used when it was ignored."""
        ...


class EmbeddingProtocol(Protocol):
    """How embedding calls are written: a frozen value, as `ChatProtocol` is.

    `max_batch` is the largest number of texts of a call.
    """

    @property
    def path(self) -> str: ...

    @property
    def max_batch(self) -> int: ...

    def body(self, model: str, texts: Sequence[str]) -> dict[str, Any]:
        """The JSON of a request for the vectors of `texts`."""
        ...

    def read(self, value: Any, number: int) -> NDArray[np.float32] | None:
        """`number` vectors, float32 (number, d), not normalised; None for anything else."""
        ...

    def adapted(self, failure: Failure) -> EmbeddingProtocol | None:
        """The value that avoids this refusal; None when none would."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model in a server's list. The window (in tokens) and the price may be unknown."""

    name: str
    context_tokens: int | None = None
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """The public server of a protocol, and how users name it.

    `key_name` is the environment variable of its key. `key_prefix` is how its keys begin, by which
    a key without an address is recognised. `example` is a model name for messages. `url_name` is
    the variable of another address, "" if there is none; unless `needs_key` is set it suffices by
    itself. With `before_proxies` the key also wins where a miners' container names its proxy.
    """

    base_url: str
    key_name: str
    key_prefix: str
    example: str
    url_name: str = ""
    needs_key: bool = True
    before_proxies: bool = False


@dataclass(frozen=True, slots=True)
class ServerProtocol:
    """Everything that `agent.llm` knows of one kind of server.

    `name` is the value of PATCHSHOT_PROTOCOL. `roots` gives the possible beginnings of an address,
    likeliest first; the one that works is remembered. `embeddings` is None where the protocol has
    none. `models_path` and `embedding_models_path` give the lists that `read_models` reads, in the
    server's order. `recognises` tells from the path of an address (lower case) that this protocol
    is spoken there. `provider` is the public server, if there is one.

    `list_chooses`: the model may be chosen from a list of several. `serves_runs`: requests name a
    run whose budget the server keeps; it may also choose the models itself.
    """

    name: str
    roots: Callable[[str], tuple[str, ...]]
    headers: Callable[[Endpoint], Mapping[str, str]]
    chat: Callable[[Endpoint], ChatProtocol]
    embeddings: Callable[[Endpoint], EmbeddingProtocol] | None
    read_models: Callable[[Any], tuple[ModelInfo, ...]]
    models_path: str = "/models"
    embedding_models_path: str = "/models"
    recognises: Callable[[str], bool] = lambda _: False
    provider: Provider | None = None
    list_chooses: bool = False
    serves_runs: bool = False
