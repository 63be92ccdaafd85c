"""Keeps what looks like a secret out of prompts.

Masking never changes the number of lines, so line numbers stay those of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.secrets.finding import find_secrets

MASK = "<secret removed>"


@dataclass(frozen=True, slots=True)
class Masked:
    """A text without its secrets. `count` is the number of values replaced by MASK."""

    text: str
    count: int


def mask_secrets(text: str) -> Masked:
    """Replace what looks like a secret by MASK, keeping every line break."""
    found = find_secrets(text)
    parts: list[str] = []
    position = 0
    for one in found:
        parts += (text[position : one.start], MASK)
        position = one.end
    parts.append(text[position:])
    return Masked("".join(parts), len(found))
