"""Reads the replies of chat and embedding servers, in all the shapes that they send. Never raises.

Fields that are not used are ignored. A part of an unexpected type counts as absent, because the
rest of the reply may still be usable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    Figures are None when the server does not give them. `input_tokens` includes those of the cache.
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


def without_surrogates(text: str) -> str:
    """`text` with lone surrogates (JSON escapes cut in two) replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def read_chat_reply(value: Any) -> ReadReply | None:
    """Read the JSON of a chat reply, a bare string included; None when it is not one.

    The model's thoughts are left out, unless there is nothing else.
    """
    if isinstance(value, str):
        text = without_thoughts(without_surrogates(value), "stop")
        return ReadReply(text, "stop" if value else "unknown")
    if not isinstance(value, dict) or not {"choices", "message", "content"} & value.keys():
        return None
    if "choices" in value:
        choice = mapping(next(iter(_items(value["choices"])), None))
        message = mapping(choice.get("message"))
    else:
        choice, message = {}, mapping(value.get("message")) or value
    usage = mapping(value.get("usage"))
    cached = mapping(usage.get("prompt_tokens_details"))
    cost = usage.get("cost")
    text, finish = _text(choice, message)
    return ReadReply(
        text,
        finish,
        string(value.get("model")) or None,
        _first_count(usage, "prompt_tokens", "input_tokens"),
        _first_count(usage, "completion_tokens", "output_tokens"),
        cost if isinstance(cost, int | float) and 0 <= cost < float("inf") else None,
        count(cached.get("cached_tokens")) or 0,
        count(cached.get("cache_write_tokens")) or 0,
        _called(message, finish),
    )


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


def _text(choice: Mapping[str, Any], message: Mapping[str, Any]) -> tuple[str, str]:
    reason = string(choice.get("finish_reason"))
    finish = "length" if reason.lower() in _LENGTH else reason or "unknown"
    text = _content(message.get("content")) or string(choice.get("text")) or _arguments(message)
    text = without_thoughts(without_surrogates(text), finish)
    refusal = string(message.get("refusal"))
    if not text.strip() and refusal:
        return without_surrogates(refusal), "refusal"
    if not text.strip() and finish == "stop":
        # Some servers report a whole answer as a thought when its closing tag is missing.
        thought = _content(message.get("reasoning_content")) or _content(message.get("reasoning"))
        text = without_surrogates(thought)
    return text, finish


def _functions(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = [mapping(call) for call in _items(message.get("tool_calls"))]
    return [mapping(call.get("function")) or call for call in calls]


def _called(message: Mapping[str, Any], finish: str) -> CalledTools | None:
    calls = tuple(
        (part["name"], read_arguments(part.get("arguments")))
        for part in _functions(message)
        if string(part.get("name"))
    )
    if not calls:
        return None
    said = without_thoughts(without_surrogates(_content(message.get("content"))), finish)
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
    if isinstance(content, str):
        return content
    texts = []
    for item in [content] if isinstance(content, dict) else _items(content):
        part = {"text": item} if isinstance(item, str) else mapping(item)
        if string(part.get("type")).lower() in _TEXT_PARTS:
            texts.append(string(part.get("text")))
    return "".join(texts)


def _arguments(message: Mapping[str, Any]) -> str:
    for part in (*_functions(message), mapping(message.get("function_call"))):
        arguments = part.get("arguments")
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
    pairs = [mapping(item) for item in _items(arguments)]
    return {pair["name"]: pair.get("value") for pair in pairs if isinstance(pair.get("name"), str)}


# ---------------------------------------------------------------------- parts that may be anything


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def string(value: Any) -> str:
    """`value` if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """`value` if it is a whole number of at least zero."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and value >= 0 else None


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _first_count(usage: Mapping[str, Any], *names: str) -> int | None:
    counts = (count(usage.get(name)) for name in names)
    return next((one for one in counts if one is not None), None)


# ------------------------------------------------------------------------------------------ vectors


def read_vectors(value: Any, number: int) -> NDArray[np.float32] | None:
    """`number` vectors from the JSON of a reply, float32 (number, d); None for anything else.

    Known: `data[i].embedding`, `embeddings[i]`, `embedding` and a bare list (flat or nested).
    """
    import numpy as np

    rows = _rows(value)
    if len(rows) != number or not number:
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
        lists = (value.get(name) for name in ("data", "embeddings", "embedding"))
        value = next((item for item in lists if item), [])
    if not isinstance(value, list) or not value:
        return []
    if not isinstance(value[0], list | dict):
        return [value]
    if all(isinstance(item, dict) for item in value):
        indexes = [count(item.get("index")) for item in value]
        if sorted(i for i in indexes if i is not None) == list(range(len(value))):
            value = [value[indexes.index(i)] for i in range(len(value))]
        value = [item.get("embedding") for item in value]
    return [_unwrapped(item) for item in value]


def _unwrapped(vector: Any) -> Any:
    """llama.cpp wraps each vector in a list of one."""
    nested = isinstance(vector, list) and len(vector) == 1 and isinstance(vector[0], list)
    return vector[0] if nested else vector
