"""Line breaks that were escaped twice, so that a whole text is one line full of `\\n`."""

from __future__ import annotations

import re
from dataclasses import replace

from agent.types import CreateFile, Edit, SearchReplace

_BREAK = re.compile(r"\\n")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'")
# Beside these signs `\n` is of a regular expression or a format, not a line break.
_NOT_AFTER = frozenset("/[(|\\^%")
_NOT_BEFORE = frozenset("/])|*+?{$%")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/", "r": "\r"}


def unescaped_twice(edit: Edit) -> Edit:
    """The edit with line breaks where its text has only escaped ones, outside of any quotes.

    A search text decides for its replacement too. If the guess is wrong, it will not match.
    """
    match edit:
        case SearchReplace(search=search, replace=new) if is_one_line_of_many(search):
            fixed = new if "\n" in new else _plain(new)
            return replace(edit, search=_plain(search), replace=fixed)
        case CreateFile(content=content) if is_one_line_of_many(content):
            return replace(edit, content=_plain(content))
        case _:
            return edit


def is_one_line_of_many(text: str) -> bool:
    """Whether a text without a line break has escaped ones that only can be meant as such."""
    if "\\n" not in text or "\n" in text:
        return False
    masked = text
    for pair in ("\\\\", '\\"', "\\'"):
        masked = masked.replace(pair, "  ")
    outside = _QUOTED.sub(lambda match: " " * len(match[0]), masked)
    breaks = [match.start() for match in _BREAK.finditer(outside)]
    if not breaks or len(breaks) != len(_BREAK.findall(masked)):
        return False
    return all(
        outside[at - 1 : at] not in _NOT_AFTER and outside[at + 2 : at + 3] not in _NOT_BEFORE
        for at in breaks
    )


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)
