"""OpenAI's protocol, as OpenAI, vLLM, llama.cpp, Ollama, LM Studio and most gateways speak it.

Source: https://platform.openai.com/docs/api-reference/chat and .../embeddings
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from agent.errors import ContextTooLong
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure
from agent.llm.prices import Price
from agent.llm.protocols.base import ChatCall, ModelInfo, Provider, ServerProtocol, Streaming
from agent.llm.redaction import one_line
from agent.llm.replies import ReadReply, read_chat_reply, read_vectors
from agent.llm.streaming import OpenAIAssembler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.types import Tool, ToolDialogue

LimitName = Literal["max_tokens", "max_completion_tokens"]
Format = Literal["json_schema", "json_object", "none"]

# Where servers of this protocol take the effort of reasoning: OpenAI and most, OpenRouter.
_EFFORT_FIELDS = frozenset({"reasoning_effort", "reasoning"})
_EFFORT = re.compile(r"reasoning|effort", re.IGNORECASE)

_SCHEMA_NAME = "patch"  # servers want a name for the schema; nothing reads it back

_LESS_STRICT: Mapping[Format, Format] = {"json_schema": "json_object", "json_object": "none"}

_FORMAT = re.compile(
    r"response[_ ]format|json[_ ]?(schema|object|mode)|structured[_ ]output|grammar", re.IGNORECASE
)
_REFUSED = re.compile(
    r"unsupported|not (be )?(supported|permitted|allowed)|(does|is) ?n.t support|not support"
    r"|unrecogni[sz]ed|unknown|unexpected|extra|deprecated|instead",
    re.IGNORECASE,
)
# "This model supports at most 16384 completion tokens" (OpenAI), "max_tokens: 9000 > 8192, which is
# the maximum allowed number of output tokens" (Anthropic).
_OUTPUT_LIMIT = re.compile(
    r"at most (\d+) (?:completion|output)|max_tokens\D{0,5}\d+ > (\d+)", re.IGNORECASE
)


# Ollama says "does not support tools", OpenRouter "No endpoints found that support tool use", vLLM
# names its option --enable-auto-tool-choice, and llama.cpp says, with 500, that the "tools param
# requires --jinja flag".
_TOOLS = re.compile(r"\btools?\b|tool_c|function", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The optional fields that one server takes. The defaults suit most servers."""

    limit_name: LimitName = "max_tokens"
    temperature: bool = True
    format: Format = "json_schema"
    output_limit: int | None = None  # the longest reply in tokens, once the server has said it
    tools: bool = True
    effort: bool = True

    def options(
        self, max_output_tokens: int, temperature: float, schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The optional fields of the request's body."""
        limit = min(max_output_tokens, self.output_limit or max_output_tokens)
        fields: dict[str, Any] = {self.limit_name: limit}
        if self.temperature:
            fields["temperature"] = temperature
        if schema is not None and self.format == "json_schema":
            wrapped = {"name": _SCHEMA_NAME, "schema": schema, "strict": is_strict(schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        elif schema is not None and self.format == "json_object":
            fields["response_format"] = {"type": "json_object"}
        return fields

    def less_strict(self) -> Dialect:
        """Ask for the reply's format one step less strictly."""
        return replace(self, format=_LESS_STRICT.get(self.format, "none"))

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> Dialect | None:
        """The dialect that avoids this refusal of the fields `sent`; None when none would."""
        if isinstance(failure.error, ContextTooLong):
            return None
        wording = failure.wording
        said_effort = failure.status in (400, 404, 422) and _EFFORT.search(wording)
        if said_effort and _EFFORT_FIELDS & sent.keys():
            return replace(self, effort=False)
        if failure.status in (400, 404, 422, 500) and "tools" in sent and _TOOLS.search(wording):
            return replace(self, tools=False)
        if failure.status not in (400, 404, 422):
            return None
        if "response_format" in sent and _FORMAT.search(wording):
            return self.less_strict()
        limit = output_limit(wording)
        if limit and limit < sent[self.limit_name]:
            return replace(self, output_limit=limit)
        if (
            self.limit_name == "max_tokens"
            and re.search(r"\bmax_(completion_)?tokens\b", wording)
            and _REFUSED.search(wording)
        ):
            return replace(self, limit_name="max_completion_tokens")
        if "temperature" in sent and "temperature" in wording.lower():
            return replace(self, temperature=False)
        return None


def is_strict(schema: Any) -> bool:
    """Whether a JSON Schema obeys OpenAI's rules for `strict`: closed objects, all required."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", {})):
            return False
    return all(is_strict(value) for value in schema.values())


def output_limit(wording: str) -> int | None:
    """The longest output in tokens, if a refusal states it."""
    found = _OUTPUT_LIMIT.search(wording)
    return int(found.group(1) or found.group(2)) if found else None


_MAX_BATCH = 64  # texts of a call; the lowest limit in wide use is 96 (Cohere's gateway)
_VERSION = re.compile(r"/v\d+\w*(/|$)")
_LONGEST_NAME = 100  # characters of a model's name that are kept

# Where servers say how large a model's window is: OpenRouter, vLLM, the miners' proxy, Anthropic,
# LM Studio.
_WINDOWS = (
    "context_length",
    "max_model_len",
    "max_input_tokens",
    "max_context_length",
)


PriceReader = Callable[[Mapping[str, Any]], Price | None]


@dataclass(frozen=True, slots=True)
class OpenAIChat:
    """POST chat/completions, not streamed."""

    dialect: Dialect = field(default_factory=Dialect)
    path: str = "/chat/completions"

    def body(self, call: ChatCall) -> dict[str, Any]:
        """Messages and the optional fields that the server is known to take."""
        options = self.dialect.options(call.max_output_tokens, call.temperature, call.schema)
        if call.effort is not None and self.dialect.effort:
            options["reasoning_effort"] = call.effort
        if call.dialogue is not None and self.dialect.tools:
            messages = _dialogue_messages(call.dialogue)
            options["tools"] = [_tool(tool) for tool in call.dialogue.tools]
        else:
            messages = [{"role": m.role, "content": m.content} for m in call.messages]
        return {"model": call.model, "messages": messages, "stream": False, **options}

    @property
    def streaming(self) -> Streaming:
        """Chunks, the last one with the usage."""
        usage = {"stream_options": {"include_usage": True}}
        return Streaming({"stream": True, **usage}, OpenAIAssembler)

    def read(self, value: Any) -> ReadReply | str | None:
        """See `agent.llm.replies`."""
        return read_chat_reply(value)

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> OpenAIChat | None:
        """Leaves out what the server refuses."""
        dialect = self.dialect.adapted(failure, sent)
        return None if dialect is None else replace(self, dialect=dialect)

    def plainer(self) -> OpenAIChat:
        """A JSON object in place of a schema, then nothing."""
        return replace(self, dialect=self.dialect.less_strict())


def _tool(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _dialogue_messages(dialogue: ToolDialogue) -> list[dict[str, Any]]:
    """Calls with their ids, and one message of the role `tool` for each result."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": dialogue.system},
        {"role": "user", "content": dialogue.opening},
    ]
    for turn in dialogue.turns:
        if not turn.calls:
            messages.append({"role": "assistant", "content": turn.said})
            messages.extend({"role": "user", "content": result} for result in turn.results)
            continue
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for call in turn.calls
        ]
        said = turn.said.strip() or None
        messages.append({"role": "assistant", "content": said, "tool_calls": calls})
        messages.extend(
            {"role": "tool", "tool_call_id": call.id, "content": result}
            for call, result in zip(turn.calls, turn.results, strict=True)
        )
    return messages


@dataclass(frozen=True, slots=True)
class OpenAIEmbeddings:
    """POST embeddings, a list of texts at a time."""

    path: str = "/embeddings"
    max_batch: int = _MAX_BATCH

    def body(self, model: str, texts: Sequence[str]) -> dict[str, Any]:
        """Model and texts, nothing else: the dimension is the model's own."""
        return {"model": model, "input": list(texts)}

    def read(self, value: Any, count: int) -> NDArray[np.float32] | None:
        """See `agent.llm.replies`."""
        return read_vectors(value, count)

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> OpenAIEmbeddings | None:
        """Nothing here can be left out."""
        return None


def versioned_roots(base_url: str) -> tuple[str, ...]:
    """The base URL, and the same with `/v1` where its path names no version."""
    if _VERSION.search(urlsplit(base_url).path):
        return (base_url,)
    return (base_url, f"{base_url}/v1")


def bearer(endpoint: Endpoint) -> Mapping[str, str]:
    """The key as RFC 6750 has it; nothing without one."""
    if endpoint.api_key is None:
        return {}
    return {"authorization": f"Bearer {endpoint.api_key.get_secret_value()}"}


def price_a_token(row: Mapping[str, Any]) -> Price | None:
    """The price of a listed model as OpenRouter gives it: dollars a token, as text."""
    pricing = row.get("pricing")
    if not isinstance(pricing, dict):
        return None
    prompt, completion = (_dollars(pricing.get(name)) for name in ("prompt", "completion"))
    if prompt is None or completion is None:
        return None
    return Price(prompt * 1e6, completion * 1e6)


def read_models(value: Any, price: PriceReader = price_a_token) -> tuple[ModelInfo, ...]:
    """The models of a list (`data[]`, or the bare list), in its order, each once."""
    rows = value.get("data") if isinstance(value, dict) else value
    found = [_model(row, price) for row in (rows if isinstance(rows, list) else ())]
    return tuple({info.name: info for info in found if info is not None}.values())


def _model(row: Any, price: PriceReader) -> ModelInfo | None:
    if isinstance(row, str):
        return ModelInfo(one_line(row, _LONGEST_NAME)) if row.strip() else None
    if not isinstance(row, dict):
        return None
    name = row.get("id") or row.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    window = next((row[key] for key in _WINDOWS if _is_size(row.get(key))), None)
    return ModelInfo(one_line(name, _LONGEST_NAME), window, price(row))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _dollars(value: Any) -> float | None:
    """A price that is one: OpenRouter marks what varies with -1."""
    try:
        amount = float(value)
    except (TypeError, ValueError):
        return None
    return amount if 0 <= amount < float("inf") else None


OPENAI = ServerProtocol(
    name="openai",
    roots=versioned_roots,
    headers=bearer,
    chat=lambda _: OpenAIChat(),
    embeddings=lambda _: OpenAIEmbeddings(),
    read_models=read_models,
    provider=Provider(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "sk-",
        "gpt-5.4",
        url_name="OPENAI_BASE_URL",
        needs_key=False,
    ),
)
