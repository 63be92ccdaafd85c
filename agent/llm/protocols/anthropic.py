"""Anthropic's Messages API: POST /v1/messages.

Sources: https://platform.claude.com/docs/en/api/messages/create (request, content blocks, usage),
.../build-with-claude/handling-stop-reasons, .../structured-outputs (`output_config.format`),
.../prompt-caching (`cache_control`, at most four marks) and .../api/errors (529 overloaded).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.llm.endpoint import Endpoint
from agent.llm.protocols.base import ChatCall, OptionalFields, Provider, ServerProtocol
from agent.llm.protocols.openai import CACHED, breakpoints, is_strict, read_models, versioned_roots
from agent.llm.replies import (
    CalledTools,
    ReadReply,
    count,
    mapping,
    read_arguments,
    string,
    without_surrogates,
)

if TYPE_CHECKING:
    from agent.llm.failures import Failure
    from agent.types import Message, ToolDialogue

_VERSION = "2023-06-01"  # of the API; the newest one there is

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


@dataclass(frozen=True, slots=True)
class AnthropicChat:
    """POST messages."""

    fields: OptionalFields = field(default_factory=OptionalFields)
    path: str = "/messages"

    def body(self, call: ChatCall) -> dict[str, Any]:
        fields = self.fields
        native = call.dialogue if fields.tools else None
        written = _plain(call.messages) if native is None else _with_tools(native)
        if fields.caching:
            for position in breakpoints([message["role"] for message in written]):
                written[position]["content"][-1]["cache_control"] = CACHED
        body: dict[str, Any] = {
            "model": call.model,
            "max_tokens": fields.limit(call.max_output_tokens),
            "messages": [message for message in written if message["role"] != "system"],
        }
        system = [block for m in written if m["role"] == "system" for block in m["content"]]
        if system:
            body["system"] = system
        if fields.temperature:
            body["temperature"] = min(call.temperature, 1.0)  # the API's own maximum
        if native is not None:
            body["tools"] = [
                {"name": one.name, "description": one.description, "input_schema": one.parameters}
                for one in native.tools
            ]
        config: dict[str, Any] = {}
        if is_strict(call.schema) and call.schema and not fields.format:  # open ones are refused
            config["format"] = {"type": "json_schema", "schema": call.schema}
        if fields.effort and call.effort is not None:
            config["effort"] = call.effort
        return body | ({"output_config": config} if config else {})

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> AnthropicChat | None:
        config = sent.get("output_config", {})
        uses = {
            "caching": self.fields.caching,
            "temperature": "temperature" in sent,
            "effort": "effort" in config,
            "tools": "tools" in sent,
            "format": "format" in config,
        }
        used = [name for name, is_used in uses.items() if is_used]
        fields = self.fields.without(failure, used, sent["max_tokens"])
        return None if fields is None else replace(self, fields=fields)

    @property
    def streaming(self) -> tuple[Mapping[str, Any], type[AnthropicAssembler]]:
        return {"stream": True}, AnthropicAssembler

    def read(self, value: Any) -> ReadReply | str | None:
        if not isinstance(value, dict) or not isinstance(value.get("content"), list):
            return None
        blocks = [block for block in value["content"] if isinstance(block, dict)]
        reason = string(value.get("stop_reason")) or "unknown"
        usage = mapping(value.get("usage"))
        read = count(usage.get("cache_read_input_tokens")) or 0
        written = count(usage.get("cache_creation_input_tokens")) or 0
        fresh = count(usage.get("input_tokens"))
        return ReadReply(
            without_surrogates(_text(blocks)),
            _FINISH.get(reason, reason),
            string(value.get("model")) or None,
            None if fresh is None else fresh + read + written,
            count(usage.get("output_tokens")),
            cache_read_tokens=read,
            cache_write_tokens=written,
            called=_called(blocks),
        )


class AnthropicAssembler:
    """Puts the events of Anthropic's Messages API together."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._reason: str | None = None

    @property
    def finished(self) -> bool:
        return self._reason is not None or "error" in self._whole

    def feed(self, event: Mapping[str, Any]) -> str:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._whole |= {k: message[k] for k in ("model", "usage") if k in message}
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = {**block, "_json": ""}
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                return self._add(self._blocks.setdefault(index, {"_json": ""}), delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                if isinstance(delta.get("stop_reason"), str):
                    self._reason = delta["stop_reason"]
                if isinstance(event.get("usage"), dict):
                    self._whole["usage"] = {**mapping(self._whole.get("usage")), **event["usage"]}
            case {"type": "error", "error": error}:
                self._whole["error"] = error
        return ""

    def _add(self, block: dict[str, Any], delta: Mapping[str, Any]) -> str:
        text, part = delta.get("text"), delta.get("partial_json")
        if isinstance(text, str):
            block["text"] = f"{block.get('text', '')}{text}"
            return text
        if isinstance(part, str):
            block["_json"] += part
            return part
        return ""

    def value(self) -> Any:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        usage = dict(mapping(self._whole.get("usage")))
        if self._reason is None and usage:  # ended early: what was counted was the beginning
            usage.pop("output_tokens", None)
        whole = {**self._whole, "usage": usage} if usage else self._whole
        content = [_whole_block(block) for block in blocks]
        return {**whole, "content": content, "stop_reason": self._reason or "end_turn"}


def _whole_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    plain = {key: value for key, value in block.items() if key != "_json"}
    return {**plain, "input": block["_json"]} if block["_json"] else plain


def _plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [{"role": m.role, "content": [_block(m.content)]} for m in messages]


def _with_tools(dialogue: ToolDialogue) -> list[dict[str, Any]]:
    written = [
        {"role": "system", "content": [_block(dialogue.system)]},
        {"role": "user", "content": [_block(dialogue.opening)]},
    ]
    for turn in dialogue.turns:
        text = [_block(turn.said)] if turn.said.strip() else []
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
            for call in turn.calls
        ]
        results: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": call.id, "content": [_block(result)]}
            for call, result in zip(turn.calls, turn.results, strict=False)
        ]
        written.append({"role": "assistant", "content": [*text, *calls]})
        answers = results if turn.calls else [_block(result) for result in turn.results]
        written.append({"role": "user", "content": answers})
    return written


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _called(blocks: Sequence[Mapping[str, Any]]) -> CalledTools | None:
    calls = tuple(
        (block["name"], read_arguments(block.get("input")))
        for block in blocks
        if block.get("type") == "tool_use" and isinstance(block.get("name"), str)
    )
    return CalledTools(without_surrogates(_written(blocks)), calls) if calls else None


def _written(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "".join(string(one.get("text")) for one in blocks if one.get("type") == "text")


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    text = _written(blocks)
    if text.strip():
        return text
    inputs = [block.get("input") for block in blocks if block.get("type") == "tool_use"]
    first = next((item for item in inputs if mapping(item)), None)
    return text if first is None else json.dumps(first, ensure_ascii=False)


def _headers(endpoint: Endpoint) -> Mapping[str, str]:
    headers = {"anthropic-version": _VERSION}
    if endpoint.api_key is not None:
        headers["x-api-key"] = endpoint.api_key.get_secret_value()
    return headers


ANTHROPIC = ServerProtocol(
    name="anthropic",
    roots=lambda base_url: versioned_roots(base_url)[::-1],  # usually written without /v1
    headers=_headers,
    chat=lambda _: AnthropicChat(),
    embeddings=None,
    read_models=read_models,
    models_path="/models?limit=1000",  # a page holds 20 otherwise
    recognises=lambda path: path.endswith("/messages") or "anthropic" in path.split("/"),
    provider=Provider(
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        "sk-ant-",
        "claude-sonnet-5-5",
        url_name="ANTHROPIC_BASE_URL",
    ),
)
