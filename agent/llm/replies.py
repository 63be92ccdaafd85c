"""Reads the replies of chat and embedding servers, in all the shapes that they send. Never raises.

Fields that are not used are ignored. A part of an unexpected type counts as absent, because the
rest of the reply may still be usable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler
from pydantic.functional_validators import WrapValidator

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# "Cut off at the output limit" in other protocols, which gateways pass through.
_LENGTH = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "token_limit"})
_TEXT_PARTS = frozenset({"text", "output_text", ""})

# Thoughts that models of DeepSeek, Qwen and others write before the answer, if the server leaves
# them in the text. The last form has lost its opening tag to a chat template.
_THOUGHT = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_UNFINISHED_THOUGHT = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_WITHOUT_BEGIN = re.compile(
    r"(?P<thought>\s*[^\s{\[<`].*?)^</think>", re.DOTALL | re.MULTILINE
)

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class CalledTools:
    """The tools that a reply calls: name and arguments. `said` is its text beside them.

    Arguments are an object, or the text that should have been the JSON of one.
    """

    said: str
    calls: tuple[tuple[str, Mapping[str, Any] | str], ...]

    def as_text(self) -> str:
        """The calls as a JSON text: one action, or a thought with a list of actions."""
        actions = [_action(name, arguments) for name, arguments in self.calls]
        said = self.said.strip()
        one = len(actions) == 1 and not said
        value = actions[0] if one else {"thought": said, "actions": actions}
        return without_surrogates(json.dumps(value, ensure_ascii=False))


def _action(name: str, arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        return {"action": name, "arguments": arguments}
    return {"action": name, **{key: arguments[key] for key in arguments if key != "action"}}


@dataclass(frozen=True, slots=True)
class ReadReply:
    """The usable parts of one reply. `text` is "" when the model wrote nothing.

    Token counts and `cost_usd` are None when the server does not give them. `input_tokens` includes
    the tokens of the cache, which are 0 when there is none.
    """

    text: str
    finish_reason: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    called: CalledTools | None = None


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
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class _Part(_Foreign):
    type: _Text = None
    text: Any = None


class _Function(_Foreign):
    name: _Text = None
    arguments: Any = None


class _ToolCall(_Foreign):
    function: Annotated[_Function | None, _Absent] = None
    name: _Text = None
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
    """`text` with lone surrogates (JSON escapes cut in two) replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def read_chat_reply(value: Any) -> ReadReply | None:
    """Read the JSON of a chat reply; None when it is not one.

    Known shapes: `choices[0].message.content` as text or a list of parts, `choices[0].text`, tool
    calls whose arguments carry the answer, a top-level `message` or `content`, a bare string. The
    model's thoughts are left out, unless there is nothing else.
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
    """`text` without the thoughts at its beginning; "" when it was cut off inside them."""
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
        # Some servers report a whole answer as a thought when its closing tag is missing.
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
        _called(message, finish),
    )


def _called(message: _Message, finish: str) -> CalledTools | None:
    """The tools that a message calls; calls without a name are left out."""
    found = [_parse(_ToolCall, call) for call in message.tool_calls or ()]
    parts = [
        call.function or _Function(name=call.name, arguments=call.arguments)
        for call in found
        if call
    ]
    calls = tuple((part.name, read_arguments(part.arguments)) for part in parts if part.name)
    if not calls:
        return None
    said = without_thoughts(without_surrogates(_content(message.content)), finish)
    return CalledTools(said, calls)


def read_arguments(arguments: Any) -> Mapping[str, Any] | str:
    """The arguments of a call as an object; as text where they are no JSON object."""
    if not isinstance(arguments, str):
        return _named(arguments)
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return without_surrogates(arguments)
    return value if isinstance(value, dict) else without_surrogates(arguments)


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


# ------------------------------------------------------------------------------------------ vectors


def read_vectors(value: Any, count: int) -> NDArray[np.float32] | None:
    """`count` vectors from the JSON of a reply, float32 (count, d); None for anything else.

    Known shapes: `data[i].embedding` (put in the order of `index` where all have one),
    `embeddings[i]`, `embedding` (flat or nested), a bare list (flat or nested).
    """
    import numpy as np

    rows = _rows(value)
    if len(rows) != count or not count:
        return None
    try:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused below
            vectors = np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):  # ragged rows, or no numbers
        return None
    if vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(vectors).all():
        return None
    return vectors


def _rows(value: Any) -> list[Any]:
    if isinstance(value, dict):
        found = (value.get(name) for name in ("data", "embeddings", "embedding"))
        value = next((item for item in found if item), [])
    if not isinstance(value, list) or not value:
        return []
    if not isinstance(value[0], list | dict):
        return [value]
    if all(isinstance(item, dict) for item in value):
        return [_vector(item) for item in _in_order(value)]
    return [_unwrapped(item) for item in value]


def _in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    indexes = [item.get("index") for item in items]
    whole = [i for i in indexes if isinstance(i, int)]
    if sorted(whole) != list(range(len(items))):
        return items
    return [item for _, item in sorted(zip(whole, items, strict=True), key=lambda pair: pair[0])]


def _vector(item: dict[str, Any]) -> Any:
    return _unwrapped(item.get("embedding"))


def _unwrapped(vector: Any) -> Any:
    """llama.cpp wraps each vector in a list of one."""
    nested = isinstance(vector, list) and len(vector) == 1 and isinstance(vector[0], list)
    return vector[0] if nested else vector
