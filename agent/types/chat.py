"""A conversation with a model: messages, tools, replies and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolTurn:
    said: str  # the text beside the calls
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToolDialogue:
    system: str
    opening: str
    tools: tuple[Tool, ...]
    turns: tuple[ToolTurn, ...] = ()

    def mapped(self, change: Callable[[str], str]) -> ToolDialogue:
        """Return the dialogue with `change` applied to every text that is not a tool's."""
        turns = tuple(_mapped_turn(turn, change) for turn in self.turns)
        return ToolDialogue(change(self.system), change(self.opening), self.tools, turns)


def _mapped_turn(turn: ToolTurn, change: Callable[[str], str]) -> ToolTurn:
    calls = tuple(
        ToolCall(call.id, call.name, mapped_json(dict(call.arguments), change))
        for call in turn.calls
    )
    return ToolTurn(change(turn.said), calls, tuple(map(change, turn.results)))


def mapped_json(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with `change` applied to its texts, but not to its keys."""
    match value:
        case str():
            return change(value)
        case dict():
            return {key: mapped_json(item, change) for key, item in value.items()}
        case list():
            return [mapped_json(item, change) for item in value]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Prompt:
    messages: tuple[Message, ...]
    sha256: str  # of roles and contents
    tokens: int  # an upper bound
    dialogue: ToolDialogue | None = None  # the same conversation for a server that takes tools


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0  # all input, with what the provider's prompt cache took
    output_tokens: int = 0
    cost_usd: float | None = 0.0  # None where no price is known
    calls: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False  # the server did not count the tokens of a call

    @property
    def summary(self) -> str:
        """Tokens and cost in words."""
        cost = "" if self.cost_usd is None else f", ${self.cost_usd:.4f}"
        cost += " (estimated)" if self.estimated else ""
        return f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out{cost}"

    def __add__(self, other: Usage) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
            self.calls + other.calls,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    model: str
    finish_reason: str  # "length": it was cut off at the output limit
    usage: Usage
    seconds: float
