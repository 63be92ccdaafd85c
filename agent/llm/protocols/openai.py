"""OpenAI's protocol, as OpenAI, vLLM, llama.cpp, Ollama, LM Studio and most gateways speak it.

OpenRouter speaks it too, with the cost of each call, and with prompt caching where it is marked.
Sources: https://platform.openai.com/docs/api-reference/chat and .../embeddings,
https://openrouter.ai/docs/use-cases/usage-accounting, .../guides/best-practices/prompt-caching
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.errors import ContextTooLong
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure, one_line
from agent.llm.prices import Price
from agent.llm.protocols.base import (
    ChatCall,
    Embeddings,
    ModelInfo,
    OptionalFields,
    Provider,
    ServerProtocol,
)
from agent.llm.replies import ReadReply, count, mapping, read_chat_reply, string

if TYPE_CHECKING:
    from agent.types import ToolDialogue

_SCHEMA_NAME = "patch"  # servers want a name for the schema; nothing reads it back
_LIMIT = re.compile(r"\bmax_(completion_)?tokens\b")
_REFUSED = re.compile(
    r"unsupported|not (be )?(supported|permitted|allowed)|(does|is) ?n.t support|not support"
    r"|unrecogni[sz]ed|unknown|unexpected|extra|deprecated|instead",
    re.IGNORECASE,
)
# Vendors whose models cache only what is marked; the others' do so by themselves.
_MARKED_VENDORS = ("anthropic/",)
CACHED: Mapping[str, str] = {"type": "ephemeral"}  # kept for five minutes since its last use

_ASKING = ("user", "tool")  # roles of messages that a reply follows
_MAX_BATCH = 64  # texts of a call; the lowest limit in wide use is 96 (Cohere's gateway)
_VERSION = re.compile(r"/v\d+\w*(/|$)")
_LONGEST_NAME = 100  # characters of a model's name that are kept

# Where OpenRouter, vLLM, the miners' proxy and Anthropic, and LM Studio give a model's window.
_WINDOWS = ("context_length", "max_model_len", "max_input_tokens", "max_context_length")

PriceReader = Callable[[Mapping[str, Any]], Price | None]


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


@dataclass(frozen=True, slots=True)
class OpenAIChat:
    """POST chat/completions. `is_openrouter`: with markers for the vendors that need them."""

    fields: OptionalFields = field(default_factory=OptionalFields)
    limit_name: str = "max_tokens"
    is_openrouter: bool = False
    path: str = "/chat/completions"

    def body(self, call: ChatCall) -> dict[str, Any]:
        if call.dialogue is not None and self.fields.tools:
            messages = _dialogue_messages(call.dialogue)
            tools = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in call.dialogue.tools
            ]
        else:
            messages = [{"role": m.role, "content": m.content} for m in call.messages]
            tools = []
        if self.is_openrouter and self.fields.caching and call.model.startswith(_MARKED_VENDORS):
            for position in breakpoints([message["role"] for message in messages]):
                part = {"type": "text", "text": messages[position]["content"]}
                messages[position]["content"] = [{**part, "cache_control": CACHED}]
        body = {"model": call.model, "messages": messages, "stream": False, **self._options(call)}
        return body | ({"tools": tools} if tools else {})

    def _options(self, call: ChatCall) -> dict[str, Any]:
        options: dict[str, Any] = {self.limit_name: self.fields.limit(call.max_output_tokens)}
        if self.fields.temperature:
            options["temperature"] = call.temperature
        schema = call.schema
        if schema is not None and self.fields.format == 0:
            wrapped = {"name": _SCHEMA_NAME, "schema": schema, "strict": is_strict(schema)}
            options["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        elif schema is not None and self.fields.format == 1:
            options["response_format"] = {"type": "json_object"}
        if call.effort is not None and self.fields.effort and self.is_openrouter:
            options["reasoning"] = {"effort": call.effort}
        elif call.effort is not None and self.fields.effort:
            options["reasoning_effort"] = call.effort
        return options

    @property
    def streaming(self) -> tuple[Mapping[str, Any], type[OpenAIAssembler]]:
        # The last chunk has the usage.
        return {"stream": True, "stream_options": {"include_usage": True}}, OpenAIAssembler

    def read(self, value: Any) -> ReadReply | str | None:
        return read_chat_reply(value)

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> OpenAIChat | None:
        names = {"tools": "tools", "response_format": "format", "temperature": "temperature"}
        names |= {"reasoning": "effort", "reasoning_effort": "effort"}
        used = [name for key, name in names.items() if key in sent]
        if self.is_openrouter and self.fields.caching:
            used.append("caching")
        fields = self.fields.without(failure, used, sent[self.limit_name])
        if fields is not None:
            return replace(self, fields=fields)
        wording, is_named = failure.wording, self.limit_name == "max_completion_tokens"
        if is_named or failure.status != 400 or not _LIMIT.search(wording):
            return None
        refused = _REFUSED.search(wording) and type(failure.error) is not ContextTooLong
        return replace(self, limit_name="max_completion_tokens") if refused else None


def breakpoints(roles: Sequence[str]) -> frozenset[int]:
    """Positions of the messages after which a later call may go on from the prompt cache.

    Writing costs a quarter more than input, reading a tenth: one second call in four pays for it.
    """
    system = [i for i, role in enumerate(roles) if role == "system"]
    user = [i for i, role in enumerate(roles) if role == "user"]  # a repair repeats the first
    asking = [i for i, role in enumerate(roles) if role in _ASKING]  # the next step, the last
    return frozenset([*system[-1:], *user[:1], *asking[-1:]])


def _dialogue_messages(dialogue: ToolDialogue) -> list[dict[str, Any]]:
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


def _embedding_body(endpoint: Endpoint, texts: Sequence[str]) -> dict[str, Any]:
    return {"model": endpoint.model, "input": list(texts)}


EMBEDDINGS = Embeddings("/embeddings", _MAX_BATCH, _embedding_body)


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
    pricing = mapping(row.get("pricing"))
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
    window = next(filter(None, (count(row.get(key)) for key in _WINDOWS)), None)
    return ModelInfo(one_line(name, _LONGEST_NAME), window, price(row))


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
    embeddings=EMBEDDINGS,
    read_models=read_models,
    provider=Provider(
        "https://api.openai.com/v1", "OPENAI_API_KEY", "sk-", "gpt-5.4", url_name="OPENAI_BASE_URL"
    ),
)

OPENROUTER = ServerProtocol(
    name="openrouter",
    roots=versioned_roots,
    # The title is the name that the user's own log shows.
    headers=lambda endpoint: {**bearer(endpoint), "x-title": "patchshot"},
    chat=lambda _: OpenAIChat(is_openrouter=True),
    embeddings=EMBEDDINGS,
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
