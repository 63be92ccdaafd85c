"""The interface of a protocol: what `agent.llm` needs to know of a kind of server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from agent.errors import ContextTooLong
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure, worded
from agent.llm.prices import Price
from agent.llm.replies import ReadReply

if TYPE_CHECKING:
    from agent.types import Message, ToolDialogue


@dataclass(frozen=True, slots=True)
class ChatCall:
    """What one call asks. `model` is "" for the server's own choice; `schema` is a JSON Schema.

    `dialogue` says what `messages` say, for servers that take tools.
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

    `finished`: the reason of the end, or an error, has come. `feed` returns the text that an event
    adds, arguments of tools included. `value`: the JSON that the server would have sent whole.
    """

    @property
    def finished(self) -> bool: ...

    def feed(self, event: Mapping[str, Any]) -> str: ...

    def value(self) -> Any: ...


class ChatProtocol(Protocol):
    """How chat calls are written for one server: a frozen value.

    `streaming`: the fields of a request for a streamed reply, and what puts its events together.
    `read` a 2xx reply: a str is an error sent as an answer; None is no chat reply. `adapted`: the
    value that avoids this refusal of the body `sent`; None when none would.
    """

    @property
    def path(self) -> str: ...

    @property
    def streaming(self) -> tuple[Mapping[str, Any], Callable[[], Assembler]] | None: ...

    def body(self, call: ChatCall) -> dict[str, Any]: ...

    def read(self, value: Any) -> ReadReply | str | None: ...

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> ChatProtocol | None: ...


# How servers name a field that they refuse. Ollama says "does not support tools", OpenRouter "No
# endpoints found that support tool use", vLLM names its option --enable-auto-tool-choice, and
# llama.cpp says, with 500, that the "tools param requires --jinja flag".
_NAMES = {
    "caching": worded("cache_control"),
    "effort": worded("reasoning|effort|output_config"),
    "tools": worded(r"\btools?\b|tool_c|function|input_schema"),
    "format": worded(
        r"response[_ ]format|output_(config|format)|json[_ ]?(schema|object|mode)"
        r"|structured[_ ]output|schema|grammar"
    ),
    "temperature": worded("temperature"),
}
# "This model supports at most 16384 completion tokens" (OpenAI), "max_tokens: 9000 > 8192, which is
# the maximum allowed number of output tokens" (Anthropic).
_OUTPUT_LIMIT = worded(r"at most (\d+) (?:completion|output)|max_tokens\D{0,5}\d+ > (\d+)")


@dataclass(frozen=True, slots=True)
class OptionalFields:
    """The optional fields of a request that one server takes; a refusal removes one for good.

    `format` counts its refusals. `output_limit`: tokens, once the server says it.
    """

    temperature: bool = True
    caching: bool = True
    effort: bool = True
    tools: bool = True
    format: int = 0
    output_limit: int | None = None

    def without(self, failure: Failure, sent: Sequence[str], limit: int) -> Self | None:
        """The value that leaves out which of the fields `sent` is refused, or asks for less."""
        wording, status = failure.wording, failure.status
        if isinstance(failure.error, ContextTooLong) or status not in (400, 404, 422, 500):
            return None
        for name in (name for name in _NAMES if name in sent):
            if status == 500 and name != "tools":
                continue
            if _NAMES[name].search(wording):
                if name == "format":
                    return replace(self, format=self.format + 1)
                return replace(self, **{name: False})
        match = _OUTPUT_LIMIT.search(wording) if status != 500 else None
        most = int(match.group(1) or match.group(2)) if match else limit
        return replace(self, output_limit=most) if most < limit else None

    def limit(self, wanted: int) -> int:
        """The tokens of a reply, at most `wanted`."""
        return min(wanted, self.output_limit or wanted)


@dataclass(frozen=True, slots=True)
class Embeddings:
    """How embedding calls are written, at most `max_batch` texts each."""

    path: str
    max_batch: int
    body: Callable[[Endpoint, Sequence[str]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model in a server's list. The window (in tokens) and the price may be unknown."""

    name: str
    context_tokens: int | None = None
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """The public server of a protocol. `key_name` and `url_name` are variables.

    With `before_proxies` the key also wins where a miners' container names its proxy.
    """

    base_url: str
    key_name: str
    key_prefix: str
    example: str
    url_name: str = ""
    before_proxies: bool = False


@dataclass(frozen=True, slots=True)
class ServerProtocol:
    """Everything that `agent.llm` knows of one kind of server.

    `roots` gives the possible beginnings of an address, likeliest first. `recognises` tells this
    protocol from a path (lower case). `list_chooses`: the model may be one of a list of several.
    `serves_runs`: requests name a run whose budget the server keeps.
    """

    name: str
    roots: Callable[[str], tuple[str, ...]]
    headers: Callable[[Endpoint], Mapping[str, str]]
    chat: Callable[[Endpoint], ChatProtocol]
    embeddings: Embeddings | None
    read_models: Callable[[Any], tuple[ModelInfo, ...]]
    models_path: str = "/models"
    embedding_models_path: str = "/models"
    recognises: Callable[[str], bool] = lambda _: False
    provider: Provider | None = None
    list_chooses: bool = False
    serves_runs: bool = False
