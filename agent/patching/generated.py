"""Recognises generated files.

A file that a program writes again loses its edit, so the source that it is made from has to change.
"""

from __future__ import annotations

import re

# Generators mark their files at the top: `@generated` (Buck, Phabricator), and the sentence of
# https://go.dev/s/generatedcode, which others write in their own words.
_HEAD = 1500
_MARK = re.compile(
    r"^\s*(?:#|//|/\*|\*|--|;|<!--|%|\"\"\"|''')[^\n]*"
    r"(?:@generated\b|\bgenerated\b[^\n]*\bdo not (?:edit|modify)\b"
    r"|\bdo not (?:edit|modify)\b[^\n]*\bgenerated\b)",
    re.IGNORECASE | re.MULTILINE,
)


def is_generated(content: bytes) -> bool:
    """Whether a comment at the top of a file says that a program generates it."""
    return _MARK.search(content[:_HEAD].decode("utf-8", "replace")) is not None
