"""What chat servers really answer, read without ever raising: pydantic models of the parts used.

Foreign objects carry fields that nobody here reads, so extra ones are ignored; a part of an
unexpected type counts as absent, because the rest of the reply may still be usable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler
from pydantic.functional_validators import WrapValidator

# Names of other protocols for "cut off at the output limit" that gateways pass through.
_LENGTH = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "token_limit"})
_TEXT_PARTS = frozenset({"text", "output_text", ""})

# How models of DeepSeek, Qwen and others write what they think before they answer, where the
# server leaves it in the text. The second form has lost its opening tag to a chat template.
_THOUGHT = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_UNFINISHED_THOUGHT = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_WITHOUT_BEGIN = re.compile(
    r"(?P<thought>\s*[^\s{\[<`].*?)^</think>", re.DOTALL | re.MULTILINE
)

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ReadReply:
    """The usable parts of one reply. `text` is "" when the model wrote nothing.

    Token counts and `cost_usd` are None where the server does not give them; `input_tokens` holds
    those of the cache, which are 0 where there is none.
    """

    text: str
    finish_reason: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


def _or_absent(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return None


_Absent = WrapValidator(_or_absent)
_Text = Annotated[str | None, _Absent]
_Count = Annotated[int | None, _Absent]
_List = Annotated[list[Any] | None, _Absent]


class _Foreign(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Part(_Foreign):
    type: _Text = None
    text: Any = None


class _Function(_Foreign):
    arguments: Any = None


class _ToolCall(_Foreign):
    function: Annotated[_Function | None, _Absent] = None
    arguments: Any = None


class _Message(_Foreign):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: _Text = None
    tool_calls: _List = None
    function_call: Annotated[_Function | None, _Absent] = None


class _Choice(_Foreign):
    message: Annotated[_Message | None, _Absent] = None
    text: _Text = None
    finish_reason: _Text = None


class _Cached(_Foreign):
    cached_tokens: _Count = None
    cache_write_tokens: _Count = None


class _Usage(_Foreign):
    prompt_tokens: _Count = None
    prompt_tokens_details: Annotated[_Cached | None, _Absent] = None
    completion_tokens: _Count = None
    input_tokens: _Count = None
    output_tokens: _Count = None
    cost: Annotated[float | None, _Absent] = None


class _Reply(_Foreign):
    choices: _List = None
    message: Annotated[_Message | None, _Absent] = None
    content: Any = None
    tool_calls: _List = None
    model: _Text = None
    usage: Annotated[_Usage | None, _Absent] = None


def without_surrogates(text: str) -> str:
    """`text` as it can be written: lone surrogates (JSON escapes cut in two) become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def read_chat_reply(value: Any) -> ReadReply | None:
    """Read the JSON of a chat reply; None when it is none at all.

    Known shapes: `choices[0].message.content` as text or a list of parts, `choices[0].text`, tool
    calls whose arguments carry the answer, a top-level `message` or `content`, a bare string. What
    the model thought is left out, unless it is all that there is.
    """
    if isinstance(value, str):
        text = without_thoughts(without_surrogates(value), "stop")
        return ReadReply(text, "stop" if value else "unknown")
    if not isinstance(value, dict) or not {"choices", "message", "content"} & value.keys():
        return None
    reply = _Reply.model_validate(value)
    if "choices" in value:
        first = reply.choices[0] if reply.choices else {}
        choice = _parse(_Choice, first) or _Choice()
    else:
        own = _Message(content=reply.content, tool_calls=reply.tool_calls)
        choice = _Choice(message=reply.message or own)
    return _with_usage(choice, reply)


def without_thoughts(text: str, finish_reason: str) -> str:
    """`text` without the thoughts at its beginning; "" when it was cut off while thinking."""
    closed = _THOUGHT.match(text)
    if closed:
        return text[closed.end() :].lstrip()
    if _UNFINISHED_THOUGHT.match(text):
        return "" if finish_reason == "length" else text
    headless = _THOUGHT_WITHOUT_BEGIN.match(text)
    if headless and headless["thought"].count("```") % 2 == 0:  # else the tag is part of some code
        return text[headless.end() :].lstrip() or text
    return text


def _with_usage(choice: _Choice, reply: _Reply) -> ReadReply:
    usage = reply.usage or _Usage()
    cached = usage.prompt_tokens_details or _Cached()
    message = choice.message or _Message()
    reason = choice.finish_reason or ""
    finish = "length" if reason.lower() in _LENGTH else reason or "unknown"
    text = _content(message.content) or choice.text or _arguments(message)
    text = without_thoughts(without_surrogates(text), finish)
    if not text.strip() and message.refusal:
        text, finish = without_surrogates(message.refusal), "refusal"
    if not text.strip() and finish == "stop":
        # Some servers take a whole answer for a thought when its closing tag is missing.
        thought = _content(message.reasoning_content) or _content(message.reasoning)
        text = without_surrogates(thought)
    return ReadReply(
        text,
        finish,
        reply.model or None,
        _count(usage.prompt_tokens, usage.input_tokens),
        _count(usage.completion_tokens, usage.output_tokens),
        usage.cost if usage.cost is not None and 0 <= usage.cost < float("inf") else None,
        _count(cached.cached_tokens) or 0,
        _count(cached.cache_write_tokens) or 0,
    )


def _content(content: Any) -> str:
    """Text of a message: a string, or the text parts of a list (reasoning parts left out)."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    texts = []
    for item in content:
        part = _Part(text=item) if isinstance(item, str) else _parse(_Part, item)
        if part and isinstance(part.text, str) and (part.type or "").lower() in _TEXT_PARTS:
            texts.append(part.text)
    return "".join(texts)


def _arguments(message: _Message) -> str:
    """The arguments of the first tool call that has any, as JSON text."""
    calls = [_parse(_ToolCall, call) for call in message.tool_calls or ()]
    found = [call.function.arguments if call.function else call.arguments for call in calls if call]
    if message.function_call:
        found.append(message.function_call.arguments)
    for arguments in found:
        if isinstance(arguments, str) and arguments.strip():
            return arguments
        named = _named(arguments)
        if named:
            return json.dumps(named, ensure_ascii=False)
    return ""


def _named(arguments: Any) -> Mapping[str, Any]:
    """Arguments by name: a mapping, or the `[{name, value}]` of the miners' proxy."""
    if isinstance(arguments, Mapping):
        return arguments
    items = arguments if isinstance(arguments, list) else []
    return {
        item["name"]: item.get("value")
        for item in items
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    }


def _count(*values: int | None) -> int | None:
    return next((value for value in values if value is not None and value >= 0), None)


def _parse(model: type[_M], value: Any) -> _M | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None
