"""Reads a streamed reply (server-sent events) into the JSON that the server would have sent whole.

A reply that goes on with text after its one JSON object is ended early: the rest would be paid for
and thrown away. Its usage is then unknown.
Source of the format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterable, Callable, Mapping
from typing import Any, Protocol

_MOST_LINE = 4 * 1024 * 1024  # bytes of one event; a reply in one piece is smaller
_LINE_END = re.compile(rb"\r\n|\n|\r")
# What may follow the object without being text: blanks, and the end of a code fence.
_CLOSING = re.compile(r"[\s`]*")
_OPENING = re.compile(r"\s*(?:```\w*\s*)?(?=\{)")

OnText = Callable[[int], None]
"""Is told how many characters the reply has so far."""


class Assembler(Protocol):
    """Puts the events of one reply together. Unknown events and parts are ignored."""

    def feed(self, event: Mapping[str, Any]) -> str:
        """Take one event; return the text that it adds, arguments of tools included."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the reply has come to its end."""
        ...

    def value(self) -> Any:
        """The JSON of the whole reply."""
        ...


class ObjectEnd:
    """Finds where a text that begins with a JSON object goes on after the object's end."""

    def __init__(self) -> None:
        self._begun = ""
        self._depth = 0
        self._in_string = self._escaped = self._complete = False

    def feed(self, text: str) -> bool:
        """Take more text; return whether text follows a complete object."""
        if self._complete:
            return _CLOSING.fullmatch(text) is None
        if self._depth == 0:
            self._begun += text
            opening = _OPENING.match(self._begun)
            if opening is None:
                return False
            text = self._begun[opening.end() :]
        for position, character in enumerate(text):
            self._step(character)
            if self._depth == 0 and not self._in_string:
                self._complete = True
                return _CLOSING.fullmatch(text, position + 1) is None
        return False

    def _step(self, character: str) -> None:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self._in_string = False
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1


class ReplyStream:
    """One streamed reply. With `one_object`, it is ended early where that is complete."""

    def __init__(self, assembler: Assembler, on_text: OnText, *, one_object: bool) -> None:
        self._assembler = assembler
        self._on_text = on_text
        self._end = ObjectEnd() if one_object else None
        self._characters = 0

    async def read(self, pieces: AsyncIterable[bytes], most: int) -> Any:
        """The JSON of the reply; None where it is longer than `most` bytes or has no end."""
        rest, received = b"", 0
        async for piece in pieces:
            received += len(piece)
            if received > most or len(rest) > _MOST_LINE:
                return None
            *lines, rest = _LINE_END.split(rest + piece)
            for line in lines:
                if self._take(line):
                    return self._assembler.value()
        self._take(rest)
        return self._assembler.value() if self._assembler.finished else None

    def _take(self, line: bytes) -> bool:
        """Take one line; return whether nothing more is needed."""
        name, _, data = line.partition(b":")
        if name != b"data":
            return False
        if data.strip() == b"[DONE]":
            return self._assembler.finished
        try:
            event = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            return False
        text = self._assembler.feed(event) if isinstance(event, dict) else ""
        if not text:
            return False
        self._characters += len(text)
        self._on_text(self._characters)
        return self._end is not None and self._end.feed(text)


class OpenAIAssembler:
    """Puts chunks of OpenAI's protocol together."""

    def __init__(self) -> None:
        self._message: dict[str, str] = {}
        self._calls: dict[int, dict[str, str]] = {}
        self._whole: dict[str, Any] = {}
        self._finish: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the reason of the end, or an error, has come."""
        return self._finish is not None or "error" in self._whole

    def feed(self, event: Mapping[str, Any]) -> str:
        """Take one chunk."""
        for key in ("id", "model", "usage", "error"):
            if event.get(key) is not None:
                self._whole[key] = event[key]
        choice = _first(event.get("choices"))
        if isinstance(choice.get("error"), dict):
            self._whole["error"] = choice["error"]
        if isinstance(choice.get("finish_reason"), str):
            self._finish = choice["finish_reason"]
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        for key in ("content", "reasoning_content", "reasoning", "refusal"):
            if isinstance(delta.get(key), str):
                self._message[key] = self._message.get(key, "") + delta[key]
        content = delta.get("content")
        calls = delta.get("tool_calls")
        added = [self._add_call(call) for call in (calls if isinstance(calls, list) else ())]
        return (content if isinstance(content, str) else "") + "".join(added)

    def _add_call(self, call: Any) -> str:
        if not isinstance(call, dict):
            return ""
        index = call.get("index")
        kept = self._calls.setdefault(index if isinstance(index, int) else 0, {})
        function = call.get("function")
        for key, value in (function if isinstance(function, dict) else {}).items():
            if isinstance(value, str):
                kept[key] = kept.get(key, "") + value
        said = function.get("arguments") if isinstance(function, dict) else ""
        return said if isinstance(said, str) else ""

    def value(self) -> Any:
        """A `chat.completion`."""
        message: dict[str, Any] = dict(self._message)
        if self._calls:
            ordered = [self._calls[index] for index in sorted(self._calls)]
            message["tool_calls"] = [{"type": "function", "function": call} for call in ordered]
        message.setdefault("content", None)
        choice = {"index": 0, "message": message, "finish_reason": self._finish or "stop"}
        return {**self._whole, "choices": [choice]}


class AnthropicAssembler:
    """Puts the events of Anthropic's Messages API together."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._reason: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the reason of the end, or an error, has come."""
        return self._reason is not None or "error" in self._whole

    def feed(self, event: Mapping[str, Any]) -> str:
        """Take one event."""
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
                    self._whole["usage"] = {**self._usage(), **event["usage"]}
            case {"type": "error", "error": error}:
                self._whole["error"] = error
        return ""

    def _usage(self) -> Mapping[str, Any]:
        usage = self._whole.get("usage")
        return usage if isinstance(usage, dict) else {}

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
        """A message. The input of a tool is a text where it is no JSON."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        usage = dict(self._usage())
        if self._reason is None and usage:  # ended early: what was counted was the beginning
            usage.pop("output_tokens", None)
        whole = {**self._whole, "usage": usage} if usage else self._whole
        content = [_block(block) for block in blocks]
        return {**whole, "content": content, "stop_reason": self._reason or "end_turn"}


def _block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    plain = {key: value for key, value in block.items() if key != "_json"}
    return {**plain, "input": block["_json"]} if block["_json"] else plain


def _first(choices: Any) -> Mapping[str, Any]:
    first = choices[0] if isinstance(choices, list) and choices else {}
    return first if isinstance(first, dict) else {}
