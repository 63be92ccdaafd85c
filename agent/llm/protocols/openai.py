"""OpenAI's protocol, as OpenAI, vLLM, llama.cpp, Ollama, LM Studio and most gateways speak it.

OpenRouter speaks it too, with the cost of each call, and with prompt caching where it is marked.
Sources: https://platform.openai.com/docs/api-reference/chat and .../embeddings,
https://openrouter.ai/docs/use-cases/usage-accounting (`usage.cost`, in dollars),
https://openrouter.ai/docs/guides/best-practices/prompt-caching
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from agent.errors import ContextTooLong
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure, one_line
from agent.llm.prices import Price
from agent.llm.protocols.base import ChatCall, ModelInfo, Provider, ServerProtocol
from agent.llm.replies import (
    ReadReply,
    count,
    mapping,
    read_chat_reply,
    read_vectors,
    string,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.types import Tool, ToolDialogue

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
_LIMIT = re.compile(r"\bmax_(completion_)?tokens\b")
# "This model supports at most 16384 completion tokens" (OpenAI), "max_tokens: 9000 > 8192, which is
# the maximum allowed number of output tokens" (Anthropic).
_OUTPUT_LIMIT = re.compile(
    r"at most (\d+) (?:completion|output)|max_tokens\D{0,5}\d+ > (\d+)", re.IGNORECASE
)


# Ollama says "does not support tools", OpenRouter "No endpoints found that support tool use", vLLM
# names its option --enable-auto-tool-choice, and llama.cpp says, with 500, that the "tools param
# requires --jinja flag".
_TOOLS = re.compile(r"\btools?\b|tool_c|function", re.IGNORECASE)


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
    match = _OUTPUT_LIMIT.search(wording)
    return int(match.group(1) or match.group(2)) if match else None


# Vendors whose models cache only what is marked; the others' do so by themselves.
_MARKED_VENDORS = ("anthropic/",)
CACHED: Mapping[str, str] = {"type": "ephemeral"}  # kept for five minutes since its last use

_ASKING = ("user", "tool")  # roles of messages that a reply follows
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
    """POST chat/completions, with the optional fields that one server takes.

    The defaults suit most servers. `output_limit` is the longest reply in tokens, once the server
    has said it. `is_openrouter`: with markers for the vendors that need them.
    """

    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: bool = True
    format: Format = "json_schema"
    output_limit: int | None = None
    tools: bool = True
    effort: bool = True
    caching: bool = True
    is_openrouter: bool = False
    path: str = "/chat/completions"

    def body(self, call: ChatCall) -> dict[str, Any]:
        options = self._options(call)
        if call.effort is not None and self.effort:
            effort = {"reasoning": {"effort": call.effort}}
            options |= effort if self.is_openrouter else {"reasoning_effort": call.effort}
        if call.dialogue is not None and self.tools:
            messages = _dialogue_messages(call.dialogue)
            options["tools"] = [_tool(tool) for tool in call.dialogue.tools]
        else:
            messages = [{"role": m.role, "content": m.content} for m in call.messages]
        if self.is_openrouter and self.caching and call.model.startswith(_MARKED_VENDORS):
            for position in breakpoints([message["role"] for message in messages]):
                part = {"type": "text", "text": messages[position]["content"]}
                messages[position]["content"] = [{**part, "cache_control": CACHED}]
        return {"model": call.model, "messages": messages, "stream": False, **options}

    def _options(self, call: ChatCall) -> dict[str, Any]:
        limit = min(call.max_output_tokens, self.output_limit or call.max_output_tokens)
        fields: dict[str, Any] = {self.limit_name: limit}
        if self.temperature:
            fields["temperature"] = call.temperature
        schema = call.schema
        if schema is not None and self.format == "json_schema":
            wrapped = {"name": _SCHEMA_NAME, "schema": schema, "strict": is_strict(schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        elif schema is not None and self.format == "json_object":
            fields["response_format"] = {"type": "json_object"}
        return fields

    @property
    def streaming(self) -> tuple[Mapping[str, Any], type[OpenAIAssembler]]:
        # The last chunk has the usage.
        return {"stream": True, "stream_options": {"include_usage": True}}, OpenAIAssembler

    def read(self, value: Any) -> ReadReply | str | None:
        return read_chat_reply(value)

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> OpenAIChat | None:
        if isinstance(failure.error, ContextTooLong):
            return None
        wording, status = failure.wording, failure.status
        if self.is_openrouter and self.caching and "cache_control" in wording:
            return replace(self, caching=False)
        if status == 500 and "tools" in sent and _TOOLS.search(wording):
            return replace(self, tools=False)
        if status not in (400, 404, 422):
            return None
        if _EFFORT.search(wording) and _EFFORT_FIELDS & sent.keys():
            return replace(self, effort=False)
        if "tools" in sent and _TOOLS.search(wording):
            return replace(self, tools=False)
        if "response_format" in sent and _FORMAT.search(wording):
            return self.plainer()
        limit = output_limit(wording)
        if limit and limit < sent[self.limit_name]:
            return replace(self, output_limit=limit)
        if self.limit_name == "max_tokens" and _LIMIT.search(wording) and _REFUSED.search(wording):
            return replace(self, limit_name="max_completion_tokens")
        if "temperature" in sent and "temperature" in wording.lower():
            return replace(self, temperature=False)
        return None

    def plainer(self) -> OpenAIChat:
        return replace(self, format=_LESS_STRICT.get(self.format, "none"))


def breakpoints(roles: Sequence[str]) -> frozenset[int]:
    """Positions of the messages after which a later call may go on from the prompt cache.

    The system text, the first user message (issue and context, which a repair call repeats) and
    the last message (which the next step of the iterative mode repeats). Writing costs a quarter
    more than plain input and reading a tenth, so that marks pay from one second call in four.
    """
    system = [i for i, role in enumerate(roles) if role == "system"]
    user = [i for i, role in enumerate(roles) if role == "user"]
    asking = [i for i, role in enumerate(roles) if role in _ASKING]
    return frozenset([*system[-1:], *user[:1], *asking[-1:]])


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
        text = turn.said.strip() or None
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        messages.extend(
            {"role": "tool", "tool_call_id": call.id, "content": result}
            for call, result in zip(turn.calls, turn.results, strict=True)
        )
    return messages


class OpenAIAssembler:
    """Puts chunks of OpenAI's protocol together."""

    def __init__(self) -> None:
        self._message: dict[str, str] = {}
        self._calls: dict[int, dict[str, str]] = {}
        self._whole: dict[str, Any] = {}
        self._finish: str | None = None

    @property
    def finished(self) -> bool:
        return self._finish is not None or "error" in self._whole

    def feed(self, event: Mapping[str, Any]) -> str:
        for key in ("id", "model", "usage", "error"):
            if event.get(key) is not None:
                self._whole[key] = event[key]
        choices = event.get("choices")
        choice = mapping(choices[0] if isinstance(choices, list) and choices else None)
        if isinstance(choice.get("error"), dict):
            self._whole["error"] = choice["error"]
        self._finish = string(choice.get("finish_reason")) or self._finish
        delta = mapping(choice.get("delta"))
        for key in ("content", "reasoning_content", "reasoning", "refusal"):
            if isinstance(delta.get(key), str):
                self._message[key] = self._message.get(key, "") + delta[key]
        calls = delta.get("tool_calls")
        added = [self._add_call(mapping(call)) for call in calls] if isinstance(calls, list) else []
        return string(delta.get("content")) + "".join(added)

    def _add_call(self, call: Mapping[str, Any]) -> str:
        parts = self._calls.setdefault(count(call.get("index")) or 0, {})
        function = mapping(call.get("function"))
        for key, value in function.items():
            if isinstance(value, str):
                parts[key] = parts.get(key, "") + value
        return string(function.get("arguments"))

    def value(self) -> Any:
        message: dict[str, Any] = dict(self._message)
        if self._calls:
            ordered = [self._calls[index] for index in sorted(self._calls)]
            message["tool_calls"] = [{"type": "function", "function": call} for call in ordered]
        message.setdefault("content", None)
        choice = {"index": 0, "message": message, "finish_reason": self._finish or "stop"}
        return {**self._whole, "choices": [choice]}


@dataclass(frozen=True, slots=True)
class OpenAIEmbeddings:
    """POST embeddings, a list of texts at a time."""

    path: str = "/embeddings"
    max_batch: int = _MAX_BATCH

    def body(self, model: str, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": model, "input": list(texts)}

    def read(self, value: Any, number: int) -> NDArray[np.float32] | None:
        return read_vectors(value, number)

    def adapted(self, failure: Failure) -> None:
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
    models = [_model(row, price) for row in (rows if isinstance(rows, list) else ())]
    return tuple({info.name: info for info in models if info is not None}.values())


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

OPENROUTER = ServerProtocol(
    name="openrouter",
    roots=versioned_roots,
    # The title is the name that the user's own log shows.
    headers=lambda endpoint: {**bearer(endpoint), "x-title": "patchshot"},
    chat=lambda _: OpenAIChat(is_openrouter=True),
    embeddings=lambda _: OpenAIEmbeddings(),
    read_models=read_models,
    provider=Provider(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "sk-or-",
        "anthropic/claude-sonnet-5.5",
        before_proxies=True,
    ),
    list_chooses=True,
)
