"""Counts texts that have most of their lines in common, as the views of a file that is filled."""

from __future__ import annotations

import re

from agent.protocols import TokenCounter

# A line with the blank lines after it. Tokenizers cut where a line that is not blank begins, so
# that the counts of such parts add up (but for rare joins: `)` with a `//` of the next line).
_PART = re.compile(r"[^\n]*+\n(?:[^\S\n]*+\n)*+|[^\n]++")


class PartCounter:
    """Counts a text by its lines and remembers each; exact but for the rare joins named above."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Tokens of the text, summed over its lines."""
        return sum(map(self._part, _PART.findall(text)))

    def _part(self, part: str) -> int:
        tokens = self._known.get(part)
        if tokens is None:
            tokens = self._known[part] = self._counter.count(part)
        return tokens
