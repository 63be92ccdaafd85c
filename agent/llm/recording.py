"""Recorded replies, an optional part: `--record`, `--replay`, and replies that are paid once.

A recording is a file of JSON Lines, one `ChatExchange` a line. A replayed prompt must have the hash
it was recorded with. `ReplyGate` serves what earlier attempts of a batch or a kept run have paid.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from agent.errors import BudgetRefused, ConfigurationError, ReplayMismatch, UsageError
from agent.llm.budget import Budget
from agent.llm.clients import ChatModelWrapper
from agent.llm.failures import one_line
from agent.llm.replies import without_surrogates
from agent.shared.files import AppendFile
from agent.types import Completion, Message, Prompt, Usage
from agent.types.protocols import ChatModel

_EXCERPT = 80  # characters of a line that a mismatch shows

# Measured times and addresses: "0.12s", "1.5 seconds", "3 ms", "0x7f3a91c0d2e0".
_VARYING = re.compile(r"\b0x[0-9a-fA-F]{4,16}\b|\b\d+(?:\.\d+)?(?= ?(?:ms|s|sec|seconds?)\b)")


class ChatRequest(BaseModel, frozen=True, extra="forbid"):
    """The request of a chat call."""

    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int


class ChatReply(BaseModel, frozen=True, extra="forbid"):
    """The reply of a chat call. `masked`: it held a secret, so `text` is not what was received."""

    text: str
    model: str
    finish_reason: str
    usage: Usage
    masked: bool = False


class ChatExchange(BaseModel, frozen=True, extra="forbid"):
    """One chat call. `sha256` is `Prompt.sha256`."""

    format: Literal[1] = 1
    kind: Literal["chat"] = "chat"
    sha256: str
    request: ChatRequest
    reply: ChatReply
    seconds: float = Field(ge=0)


def _messages(prompt: Prompt) -> tuple[Message, ...]:
    return tuple(Message(m.role, without_surrogates(m.content)) for m in prompt.messages)


def exchange_of(
    prompt: Prompt, model: str, max_output_tokens: int, done: Completion
) -> ChatExchange:
    """The exchange of a completed call."""
    return ChatExchange(
        sha256=prompt.sha256,
        request=ChatRequest(
            model=model, messages=_messages(prompt), max_output_tokens=max_output_tokens
        ),
        reply=ChatReply(
            text=without_surrogates(done.text),
            model=done.model,
            finish_reason=done.finish_reason,
            usage=done.usage,
        ),
        seconds=done.seconds,
    )


def _completion_of(exchange: ChatExchange) -> Completion:
    reply = exchange.reply
    return Completion(reply.text, reply.model, reply.finish_reason, reply.usage, exchange.seconds)


def _masked(exchange: ChatExchange, hide: Callable[[str], str]) -> ChatExchange:
    """The exchange with `hide` applied to the texts; the hash stays that of what was sent."""
    messages = tuple(Message(m.role, hide(m.content)) for m in exchange.request.messages)
    request = exchange.request.model_copy(update={"messages": messages})
    reply, text = exchange.reply, hide(exchange.reply.text)
    if text != reply.text:
        reply = reply.model_copy(update={"text": text, "masked": True})
    return exchange.model_copy(update={"request": request, "reply": reply})


def format_exchange(exchange: ChatExchange) -> bytes:
    """One line of the file, in ASCII, so that no Unicode line separator can split it."""
    value = exchange.model_dump(mode="json", exclude_defaults=True)
    value = {"format": exchange.format, "kind": exchange.kind, **value}
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def parse_exchange(line: bytes) -> ChatExchange | str:
    """The exchange of one line, or a text that says what is wrong with it."""
    try:
        return ChatExchange.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return one_line(f"{where}: {first['msg']}" if where else first["msg"], 160)


def _read(path: Path) -> list[ChatExchange]:
    exchanges = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        exchange = parse_exchange(line)
        if isinstance(exchange, str):
            raise ConfigurationError(
                f"{path}:{number}: not a recorded reply ({exchange}); remove the line, or record "
                "it again with --record"
            )
        exchanges.append(exchange)
    return exchanges


class ReplayingChatModel:
    """A `ChatModel` that answers from a file: each reply once, those of one prompt in order.

    Raises UsageError when the file cannot be read, ConfigurationError when it is no recording.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._left = list(enumerate(_read(path), start=1))
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be replayed ({error.strerror or error}): record one with --record"
            ) from None
        self.model = self._left[0][1].request.model if self._left else "replay"

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The recorded reply to this prompt. Raises ReplayMismatch."""
        for position, (_, exchange) in enumerate(self._left):
            if exchange.sha256 == prompt.sha256:
                return _completion_of(self._left.pop(position)[1])
        if not self._left:
            raise ReplayMismatch(
                f"{self._path} has no further reply: the run now makes more calls than the "
                "recorded one; record it again with --record"
            )
        number, first = self._left[0]
        raise ReplayMismatch(
            f"exchange {number} of {self._path} was recorded for another prompt "
            f"({_first_difference(first.request.messages, _messages(prompt))}): record it again "
            "with --record, or go back to the recorded issue, repository and settings"
        )


def _first_difference(recorded: Sequence[Message], actual: Sequence[Message]) -> str:
    for number, (old, new) in enumerate(zip(recorded, actual, strict=False), start=1):
        olds, news = (f"{one.content}\n".split("\n") for one in (old, new))
        for line, (before, after) in enumerate(zip(olds, news, strict=False), start=1):
            if before != after:
                pairs = zip(before, after, strict=False)
                same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(before))
                start = max(0, min(same, len(after)) - 30)
                shown = [one_line(text[start:], _EXCERPT) for text in (before, after)]
                return f"text {number}, line {line}: recorded {shown[0]!r}, now {shown[1]!r}"
    return f"recorded {len(recorded)} texts, now {len(actual)}"


class ReplyRecording:
    """The replies of one run, to which all of its attempts append. An attempt gets each once.

    A reply that held a secret is not served again. Raises ConfigurationError. The caller closes it.
    """

    def __init__(self, path: Path, hide: Callable[[str], str] = str) -> None:
        self.path = path
        self._hide = hide
        self._file = AppendFile(path)
        self.exchanges: list[ChatExchange] = _read(path)
        self._unused = list(self.exchanges)

    def take(self, prompt: Prompt, model: str, max_output_tokens: int) -> ChatExchange | None:
        """Return the next unused reply to this prompt, None if there is none.

        Measured times and addresses, which tests print and repair prompts quote, may differ.
        """
        fitting = [
            exchange
            for exchange in self._unused
            if not exchange.reply.masked
            and exchange.request.model == model
            and exchange.request.max_output_tokens == max_output_tokens
        ]
        same = [exchange for exchange in fitting if exchange.sha256 == prompt.sha256]
        if not same:
            messages = _without_varying(_messages(prompt))
            same = [one for one in fitting if _without_varying(one.request.messages) == messages]
        if not same:
            return None
        self._unused = [exchange for exchange in self._unused if exchange is not same[0]]
        return same[0]

    def add(self, exchange: ChatExchange) -> None:
        """Append a reply. Raises OSError, and appends nothing, if the disk is full."""
        masked = _masked(exchange, self._hide)
        self._file.append(format_exchange(masked))
        self.exchanges.append(masked)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _without_varying(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, _VARYING.sub("0", message.content)) for message in messages]


class RecordingChatModel(ChatModelWrapper):
    """A `ChatModel` that records every reply of another one."""

    def __init__(self, inner: ChatModel, recording: ReplyRecording) -> None:
        super().__init__(inner)
        self._recording = recording

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model and record. Raises what it raises, and UsageError."""
        done = await self._inner.complete(
            prompt, max_output_tokens=max_output_tokens, schema=schema
        )
        try:
            self._recording.add(exchange_of(prompt, self.model, max_output_tokens, done))
        except OSError as error:
            raise _unwritable(self._recording.path, error) from None
        return done


def open_recording(path: Path, hide: Callable[[str], str]) -> ReplyRecording:
    """Open a file for `--record`. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return ReplyRecording(path, hide)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> UsageError:
    reason = error.strerror or error
    return UsageError(f"{path}: cannot be recorded to ({reason}): choose another place")


class ReplyGate:
    """Guards the chat models of one solve. Requests keep a distance of `seconds`.

    With `salvage`, a cancelled run waits for the call under way and keeps its reply. `broke` says
    that the provider's own budget is used up.
    """

    def __init__(
        self, recording: ReplyRecording, reused: Callable[[], object], seconds: float = 0.0
    ) -> None:
        self.recording = recording
        self.reused = reused
        self.salvage = False
        self.broke = False
        self._seconds = seconds
        self._next = 0.0

    def guard(self, chat: ChatModel, budget: Budget) -> ChatModel:
        """Return `chat` behind this gate. `budget` supplies prices."""
        return _GatedChatModel(chat, budget, self)

    async def sleep(self, seconds: float) -> None:
        """Wait before a request is sent again, which has to keep the distance too."""
        await asyncio.sleep(seconds)
        await self.wait_for_turn()

    async def wait_for_turn(self) -> None:
        """Wait until one more request may be sent."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next)
        self._next = turn + self._seconds
        await asyncio.sleep(turn - now)


class _GatedChatModel(ChatModelWrapper):
    def __init__(self, inner: ChatModel, budget: Budget, gate: ReplyGate) -> None:
        super().__init__(inner)
        self._budget = budget
        self._gate = gate

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Return the recorded reply or a new one, with its cost in `usage`.

        Raises whatever the inner model raises, and OSError if the reply cannot be recorded.
        """
        gate, asked = self._gate, self._inner.model
        earlier = gate.recording.take(prompt, asked, max_output_tokens)
        if earlier is not None:
            gate.reused()
            return _completion_of(earlier)
        await gate.wait_for_turn()
        call = asyncio.create_task(
            self._inner.complete(prompt, max_output_tokens=max_output_tokens, schema=schema)
        )
        try:
            return self._record(prompt, asked, max_output_tokens, await asyncio.shield(call))
        except BudgetRefused:
            gate.broke = True
            raise
        except asyncio.CancelledError:
            if not gate.salvage:
                call.cancel()
            await asyncio.wait([call])
            if not call.cancelled() and call.exception() is None:
                self._record(prompt, asked, max_output_tokens, call.result())
            raise

    def _record(
        self, prompt: Prompt, asked: str, max_output_tokens: int, done: Completion
    ) -> Completion:
        done = replace(done, usage=self._budget.priced(done.usage))
        self._gate.recording.add(exchange_of(prompt, asked, max_output_tokens, done))
        return done
