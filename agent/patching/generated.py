"""Recognises what an edit of one file means for others: generated files, and imports of a module.

A file that a program writes again loses its edit, so the source that it is made from has to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

# Generators mark their files at the top: `@generated` (Buck, Phabricator), and the sentence of
# https://go.dev/s/generatedcode, which others write in their own words.
_HEAD = 1500
_MARK = re.compile(
    r"^\s*(?:#|//|/\*|\*|--|;|<!--|%|\"\"\"|''')[^\n]*"
    r"(?:@generated\b|\bgenerated\b[^\n]*\bdo not (?:edit|modify)\b"
    r"|\bdo not (?:edit|modify)\b[^\n]*\bgenerated\b)",
    re.IGNORECASE | re.MULTILINE,
)

# Files that a note names.
_SHOWN = 5


def is_generated(content: bytes) -> bool:
    """Whether a comment at the top of a file says that a program generates it."""
    return _MARK.search(content[:_HEAD].decode("utf-8", "replace")) is not None


def stale_imports(old: str, files: Iterable[tuple[str, str]]) -> str:
    """Return a note with the Python `files` (path, text) that import the module of a moved file.

    "" for none. `old` is the path before the move.
    """
    pure = PurePosixPath(old)
    name = pure.parent.name if pure.stem == "__init__" else pure.stem
    word = re.escape(name)
    pattern = re.compile(
        rf"^[ \t]*(?:from[ \t]+[\w.]*?\b{word}[ \t]+import\b|import[ \t]+[\w.]*?\b{word}\b"
        rf"|from[ \t]+[\w.]+[ \t]+import[ \t(]+(?:[\w, \t\n]*[\s,(])?{word}\b)",
        re.MULTILINE,
    )
    found = [path for path, text in files if name in text and pattern.search(text)]
    if not found:
        return ""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"{old} was moved; imports are not rewritten, and these files still import {name}: "
        f"{', '.join(found[:_SHOWN])}{more}"
    )
