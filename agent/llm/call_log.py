"""Reports each model call, and masks secrets in texts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent.errors import PatchshotError
from agent.llm.clients import ChatModelWrapper
from agent.llm.failures import BASIC_FORM
from agent.types import Completion, Prompt
from agent.types.events import ModelCall
from agent.types.protocols import ChatModel, Reporter

if TYPE_CHECKING:
    pass

MASK = "***"

# A shorter value is a placeholder ("test", "none", "ollama"), and would mask ordinary words.
SHORTEST_SECRET = 8
# A text that was cut, or a server's own quotation, may hold a part of a key: this many of its
# characters in a row are masked too.
PART = 12

_NAMES = r"[\w-]*(?:api[_-]?key|token|secret|password|passwd|signature|credentials?)|key|sig"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # Headers, as text and as JSON.
        (
            r"\b((?:proxy-)?authorization|x-api-key|api-key|x-goog-api-key)"
            r"""(["']?\s*[:=]\s*["']?)(?:(bearer|basic)\s+)?[^\s"',;]+""",
            rf"\1\2{MASK}",
        ),
        (r"\b(bearer\s+)[^\s\"',;]{4,}", rf"\1{MASK}"),
        # User and password of a URL, as its header carries them; "basic support" is a phrase.
        (rf"\b(basic\s+){BASIC_FORM}", rf"\1{MASK}"),
        (rf"([?&;](?:{_NAMES})=)[^&\s\"'#;]+", rf"\1{MASK}"),
        (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"']+@", rf"\1{MASK}@"),
        (r"\b(?:sk|rk|pk|xai|gsk)[-_][\w-]{12,}", MASK),
    )
)


class Redactor:
    """Masks secrets in texts. Values shorter than SHORTEST_SECRET are left alone."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        self._widths = sorted({min(len(secret), PART) for secret in values})
        self._parts = frozenset(part for secret in values for part in _parts(secret))

    def __call__(self, text: str) -> str:
        """`text` without the secrets, every part of PART of their characters, and key-like forms.

        What is masked is replaced by MASK; nothing is ever added to a text without secrets.
        """
        if self._parts:
            text = self._without_known(text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def known(self, text: str) -> str:
        """`text` without the secrets and their parts; what only looks like a key stays."""
        return self._without_known(text) if self._parts else text

    def _without_known(self, text: str) -> str:
        pieces: list[str] = []
        done = 0
        for start, end in _merged(self._spans(text)):
            pieces += (text[done:start], MASK)
            done = end
        return "".join(pieces) + text[done:]

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for start in range(len(text) - SHORTEST_SECRET + 1):
            for width in self._widths:
                if text[start : start + width] in self._parts:
                    yield start, start + width


def _parts(secret: str) -> Iterator[str]:
    width = min(len(secret), PART)
    for start in range(len(secret) - width + 1):
        yield secret[start : start + width]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            start, end = merged[-1][0], max(merged.pop()[1], end)
        merged.append((start, end))
    return merged


# ------------------------------------------------------------------------------ one event a call

_WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class LoggedChatModel(ChatModelWrapper):
    """A `ChatModel` that reports each call of another one when it ends, also by an exception."""

    def __init__(self, inner: ChatModel, report: Reporter) -> None:
        super().__init__(inner)
        self._report = report

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model. Raises what it raises."""
        clock = asyncio.get_running_loop().time
        started = clock()
        status, error, done = "crashed", "", None
        try:
            done = await super().complete(
                prompt, max_output_tokens=max_output_tokens, schema=schema
            )
            status = "cut-off" if done.finish_reason == "length" else "ok"
        except PatchshotError as raised:
            status, error = dashed_name(raised), str(raised)
            raise
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        finally:
            usage = done.usage if done else None
            self._report(
                ModelCall(
                    kind="chat",
                    model=done.model if done else self.model,
                    status=status,
                    seconds=clock() - started,
                    input_tokens=usage.input_tokens if usage else None,
                    output_tokens=usage.output_tokens if usage else None,
                    cost_usd=usage.cost_usd if usage else None,
                    error=error,
                )
            )
        return done


def dashed_name(value: object) -> str:
    """The class of an error or an event as a status: "context-too-long"."""
    return _WORD_STARTS.sub("-", type(value).__name__).lower()
