"""Anthropic's Messages API: POST /v1/messages.

Sources: https://platform.claude.com/docs/en/api/messages/create (request, content blocks, usage),
.../build-with-claude/handling-stop-reasons, .../structured-outputs (`output_config.format`),
.../prompt-caching (`cache_control`, at most four marks) and .../api/errors (529 overloaded).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from agent.errors import ContextTooLong
from agent.llm.endpoint import Endpoint
from agent.llm.protocols.base import ChatCall, Provider, ServerProtocol, Streaming
from agent.llm.protocols.openai import is_strict, output_limit, read_models, versioned_roots
from agent.llm.replies import CalledTools, ReadReply, read_arguments, without_surrogates
from agent.llm.streaming import AnthropicAssembler

if TYPE_CHECKING:
    from agent.llm.failures import Failure
    from agent.types import Message, ToolDialogue

_VERSION = "2023-06-01"  # of the API; the newest one there is
_TOOL = "reply"  # the name of the tool whose input is the reply; nothing reads it back
CACHED: Mapping[str, str] = {"type": "ephemeral"}  # kept for five minutes since its last use

_ASKING = ("user", "tool")  # roles of messages that a reply follows

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}

Format = Literal["schema", "tool", "none"]
_PLAINER: Mapping[Format, Format] = {"schema": "tool", "tool": "none", "none": "none"}
# Models before the structured outputs take a tool; some gateways take neither.
_FORMAT_REFUSED = re.compile(r"output_(config|format)|json_schema|structured|schema|grammar", re.I)
_TOOL_REFUSED = re.compile(r"\btools?\b|tool_choice|input_schema|schema", re.I)


@dataclass(frozen=True, slots=True)
class AnthropicChat:
    """POST messages, not streamed. The defaults suit the newest models."""

    temperature: bool = True
    format: Format = "schema"
    caching: bool = True
    output_limit: int | None = None  # the longest reply in tokens, once the server has said it
    tools: bool = True
    effort: bool = True
    path: str = "/messages"

    def body(self, call: ChatCall) -> dict[str, Any]:
        """System texts at the top level, the rest as messages, marks for the prompt cache."""
        native = call.dialogue if self.tools else None
        written = _plain(call.messages) if native is None else _with_tools(native)
        if self.caching and call.caching:
            for position in breakpoints([message["role"] for message in written]):
                written[position]["content"][-1]["cache_control"] = CACHED
        limit = min(call.max_output_tokens, self.output_limit or call.max_output_tokens)
        body: dict[str, Any] = {
            "model": call.model,
            "max_tokens": limit,
            "messages": [message for message in written if message["role"] != "system"],
        }
        system = [block for m in written if m["role"] == "system" for block in m["content"]]
        if system:
            body["system"] = system
        if self.temperature:
            body["temperature"] = min(call.temperature, 1.0)  # the API's own maximum
        if native is not None:
            body["tools"] = [
                {"name": one.name, "description": one.description, "input_schema": one.parameters}
                for one in native.tools
            ]
        body |= self._format_fields(call.schema)
        if self.effort and call.effort is not None:
            body["output_config"] = {**body.get("output_config", {}), "effort": call.effort}
        return body

    @property
    def streaming(self) -> Streaming:
        """Events of the message, its blocks and their growth."""
        return Streaming({"stream": True}, AnthropicAssembler)

    def read(self, value: Any) -> ReadReply | str | None:
        """Text blocks, or the input of the tool; thoughts are left out."""
        if not isinstance(value, dict) or not isinstance(value.get("content"), list):
            return None
        blocks = [block for block in value["content"] if isinstance(block, dict)]
        reason = value.get("stop_reason")
        reason = reason if isinstance(reason, str) else "unknown"
        usage = value.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        read, written = (
            _count(usage.get(f"cache_{name}_input_tokens")) or 0 for name in ("read", "creation")
        )
        fresh = _count(usage.get("input_tokens"))
        model = value.get("model")
        return ReadReply(
            without_surrogates(_text(blocks)),
            _FINISH.get(reason, reason),
            model if isinstance(model, str) else None,
            None if fresh is None else fresh + read + written,
            _count(usage.get("output_tokens")),
            cache_read_tokens=read,
            cache_write_tokens=written,
            called=_called(blocks),
        )

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> AnthropicChat | None:
        """Leaves out what the model refuses."""
        if failure.status not in (400, 404, 422) or isinstance(failure.error, ContextTooLong):
            return None
        wording = failure.wording
        if "temperature" in sent and "temperature" in wording.lower():
            return replace(self, temperature=False)
        if self.caching and "cache_control" in wording:
            return replace(self, caching=False)
        asked = sent.get("output_config", {})
        if "effort" in asked and ("effort" in wording or _is_refused_alone(asked, wording)):
            return replace(self, effort=False)
        if "tools" in sent and "tool_choice" not in sent and _TOOL_REFUSED.search(wording):
            return replace(self, tools=False)
        limit = output_limit(wording)
        if limit and limit < sent["max_tokens"]:
            return replace(self, output_limit=limit)
        if ("format" in asked and _FORMAT_REFUSED.search(wording)) or (
            "tools" in sent and _TOOL_REFUSED.search(wording)
        ):
            return self.plainer()
        return None

    def plainer(self) -> AnthropicChat:
        """A tool in place of an output format, then nothing."""
        return replace(self, format=_PLAINER[self.format])

    def _format_fields(self, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        if schema is None or self.format == "none":
            return {}
        if self.format == "schema" and is_strict(schema):  # open objects are refused
            return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
        return {
            "tools": [{"name": _TOOL, "description": "The reply.", "input_schema": schema}],
            "tool_choice": {"type": "tool", "name": _TOOL},
        }


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


def _is_refused_alone(asked: Mapping[str, Any], wording: str) -> bool:
    return len(asked) == 1 and _FORMAT_REFUSED.search(wording) is not None


def _plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [{"role": m.role, "content": [_block(m.content)]} for m in messages]


def _with_tools(dialogue: ToolDialogue) -> list[dict[str, Any]]:
    """Calls as `tool_use` blocks, their results as `tool_result` blocks of the next message."""
    written = [
        {"role": "system", "content": [_block(dialogue.system)]},
        {"role": "user", "content": [_block(dialogue.opening)]},
    ]
    for turn in dialogue.turns:
        said = [_block(turn.said)] if turn.said.strip() else []
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
            for call in turn.calls
        ]
        results: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": call.id, "content": [_block(result)]}
            for call, result in zip(turn.calls, turn.results, strict=False)
        ]
        written.append({"role": "assistant", "content": [*said, *calls]})
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
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    said = "".join(text for text in texts if isinstance(text, str))
    return CalledTools(without_surrogates(said), calls) if calls else None


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    text = "".join(item for item in texts if isinstance(item, str))
    if text.strip():
        return text
    inputs = [block.get("input") for block in blocks if block.get("type") == "tool_use"]
    found = next((item for item in inputs if isinstance(item, dict) and item), None)
    return text if found is None else json.dumps(found, ensure_ascii=False)


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and value >= 0 else None


def _headers(endpoint: Endpoint) -> Mapping[str, str]:
    headers = {"anthropic-version": _VERSION}
    if endpoint.api_key is not None:
        headers["x-api-key"] = endpoint.api_key.get_secret_value()
    return headers


def _roots(base_url: str) -> tuple[str, ...]:
    """With `/v1` first: base URLs of this protocol are usually written without it."""
    return versioned_roots(base_url)[::-1]


def _recognises(path: str) -> bool:
    return path.endswith("/messages") or "anthropic" in path.split("/")


ANTHROPIC = ServerProtocol(
    name="anthropic",
    roots=_roots,
    headers=_headers,
    chat=lambda _: AnthropicChat(),
    embeddings=None,
    read_models=read_models,
    models_path="/models?limit=1000",  # a page holds 20 otherwise
    recognises=_recognises,
    provider=Provider(
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        "sk-ant-",
        "claude-sonnet-5-5",
        url_name="ANTHROPIC_BASE_URL",
    ),
)
