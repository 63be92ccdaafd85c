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
        self._parts = _Parts(counter)
        self._texts: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Tokens of the text, summed over its lines."""
        tokens = self._texts.get(text)
        if tokens is None:
            tokens = sum(map(self._parts.__getitem__, _PART.findall(text)))
            self._texts[text] = tokens
        return tokens


class _Parts(dict[str, int]):
    """Tokens of parts, counted when first asked for: a known one costs no call of Python."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def __missing__(self, part: str) -> int:
        tokens = self[part] = self._counter.count(part)
        return tokens
