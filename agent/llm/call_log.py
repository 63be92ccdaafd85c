"""Reports one event for each model call, and writes events to a file (`--log-file`, JSON Lines).

The file tells which model was called, how the call ended and what it cost. Prompts and replies are
never written. Keys are masked in every text.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import PatchshotError, UsageError
from agent.llm.chat import ChatModelWrapper
from agent.types import Completion, Prompt
from agent.types.events import Event, ModelCall, Notice, StageProgress
from agent.types.protocols import ChatModel, Reporter

if TYPE_CHECKING:
    from io import FileIO

_WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class _Tries:
    """The number of tries of the running call."""

    def __init__(self) -> None:
        self.count = 1


# Transports count tries and `LoggedChatModel` reports calls: they share this, one for each task.
_TRIES: ContextVar[_Tries | None] = ContextVar("patchshot_tries", default=None)


def counting_tries(report: Reporter) -> Reporter:
    """A reporter for `Retrier` that counts the tries of the running call.

    `Retrier` reports once before each further try.
    """

    def count(event: Event, /) -> None:
        tries = _TRIES.get()
        if tries is not None:
            tries.count += 1
        report(event)

    return count


class LoggedChatModel(ChatModelWrapper):
    """A `ChatModel` that reports each call of another one when it ends, also by an exception."""

    def __init__(self, inner: ChatModel, report: Reporter) -> None:
        super().__init__(inner)
        self._report = report

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model. Raises what it raises."""
        tries = _Tries()
        token = _TRIES.set(tries)
        clock = asyncio.get_running_loop().time
        started = clock()
        status, error, done = "crashed", "", None
        try:
            done = await super().complete(
                prompt, max_output_tokens=max_output_tokens, schema=schema
            )
            status = "cut-off" if done.finish_reason == "length" else "ok"
        except PatchshotError as raised:
            status, error = error_name(raised), str(raised)
            raise
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        finally:
            _TRIES.reset(token)
            self._tell(done, status, error, clock() - started, tries.count)
        return done

    def _tell(
        self,
        done: Completion | None,
        status: str,
        error: str,
        seconds: float,
        attempt: int,
    ) -> None:
        usage = done.usage if done else None
        self._report(
            ModelCall(
                kind="chat",
                model=done.model if done else self.model,
                status=status,
                seconds=seconds,
                attempt=attempt,
                input_tokens=usage.input_tokens if usage else None,
                output_tokens=usage.output_tokens if usage else None,
                cost_usd=usage.cost_usd if usage else None,
                error=error,
            )
        )


def error_name(error: PatchshotError) -> str:
    """The error's class as a status: "context-too-long"."""
    return _WORD_STARTS.sub("-", type(error).__name__).lower()


class LogFile:
    """A reporter that also appends every event except progress to a file, one JSON object a line.

    Each line has `time` (UTC, milliseconds), `event` (the class as in `error_name`) and the event's
    fields; every text passes through `redact`. Thread-safe. If the disk fails later, that is
    reported once and only the log ends.
    """

    def __init__(self, path: Path, forward: Reporter, redact: Callable[[str], str]) -> None:
        """Open `path` for appending. Raises UsageError when that cannot be done."""
        self._forward = forward
        self._redact = redact
        self._lock = threading.Lock()
        self._path = path
        self._file: FileIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: each line is one write, which no other run and no crash can split.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be logged to ({error.strerror}): choose another place"
            ) from None

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; events are still forwarded."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __call__(self, event: Event, /) -> None:
        """Write the event and pass it on."""
        if not isinstance(event, StageProgress):
            self._write(event)
        self._forward(event)

    def _write(self, event: Event) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": _WORD_STARTS.sub("-", type(event).__name__).lower(),
            **asdict(event),
        }
        data = json.dumps(_redacted(line, self._redact), allow_nan=False).encode("ascii") + b"\n"
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(data)
                return
            except OSError as error:
                said = error.strerror
                self._file.close()
                self._file = None
        self._forward(Notice(f"{self._path} is no longer logged to ({said})", "warning"))


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    match value:
        case str():
            return redact(value)
        case float():
            return round(value, 6) if math.isfinite(value) else None
        case dict():
            return {key: _redacted(item, redact) for key, item in value.items()}
        case list() | tuple():
            return [_redacted(item, redact) for item in value]
        case _:
            return value
