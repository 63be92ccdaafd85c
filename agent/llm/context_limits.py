"""Reads from a server's refusal how many tokens its model takes, and how many it counted."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"(\d[\d,_]{0,12})"

# Wordings as seen from OpenAI, OpenRouter, vLLM, Anthropic, llama.cpp, Mistral, Gemini, Cohere and
# text-generation-inference, in this order.
_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"maximum context length (?:is|of)\D{{0,12}}{_NUMBER}",
        rf"(?:too long|context limit)\D{{0,4}}{_NUMBER}[^>]{{0,60}}> {_NUMBER}",
        rf"context (?:size|window|length|limit) (?:is |of |\()?(?:only )?{_NUMBER}",
        rf"{_NUMBER} maximum context length",
        rf"maximum number of tokens allowed \(?{_NUMBER}",
        rf"cannot exceed {_NUMBER}",
        rf"tokens`? (?:\+ `?max_new_tokens`? )?must be <= {_NUMBER}",
        rf"must have less than {_NUMBER} tokens",
    )
)
_COUNTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NUMBER} (?:in the messages|of text input|input tokens|`inputs` tokens)",
        rf"(?:resulted in|request has|prompt contains|received|request \(|count \() ?{_NUMBER}",
        rf"(?:too long|context limit)\D{{0,4}}{_NUMBER}",
        rf"given: {_NUMBER}",
        rf"requested (?:about )?{_NUMBER} tokens",
    )
)
_LARGEST = 100_000_000  # more is no window of any model


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """Tokens: the model's window, and the prompt by the server's count; None where not told."""

    limit: int | None = None
    counted: int | None = None


def read_context_limit(wording: str) -> ContextLimit:
    """What a refusal says of sizes."""
    return ContextLimit(_first(_LIMITS, wording), _first(_COUNTS, wording))


def _first(patterns: tuple[re.Pattern[str], ...], wording: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(wording)
        if found:
            number = int(re.sub(r"\D", "", found.groups()[-1]))
            if 0 < number < _LARGEST:
                return number
    return None
