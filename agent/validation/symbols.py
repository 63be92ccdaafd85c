"""Which functions and classes of a Python file a change touches. Pure, and for any Python version.

Read from `def` and `class` lines and their indentation rather than from a syntax tree: the file may
be written in a Python that this interpreter does not parse.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from agent.types import FileChange

_DEFINITION = re.compile(r"([ \t]*)(?:async[ \t]+)?(?:def|class)[ \t]+([A-Za-z_]\w*)")

# Deeper than any code's own nesting: a blank line belongs to whatever is above it.
_ANY_INDENT = 1000


def changed_symbols(changes: Iterable[FileChange]) -> frozenset[str]:
    """Names of the functions and classes that hold changed lines, without `__dunder__` names."""
    names: set[str] = set()
    for change in changes:
        if change.path.endswith(".py"):
            names.update(_changed(_lines(change.before), _lines(change.after)))
    return frozenset(name for name in names if not (name.startswith("__") and name.endswith("__")))


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


def _changed(before: Sequence[str], after: Sequence[str]) -> set[str]:
    names: set[str] = set()
    matcher = difflib.SequenceMatcher(None, before, after)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            names.update(*(_enclosing(before, row) for row in range(start, end)))
            names.update(*(_enclosing(after, row) for row in range(new_start, new_end)))
    return names


def _enclosing(lines: Sequence[str], row: int) -> list[str]:
    """The definitions that a line stands in, innermost first; a definition's own line is in it."""
    names: list[str] = []
    text = lines[row]
    indent = len(text) - len(text.lstrip()) if text.strip() else _ANY_INDENT
    for above in range(row, -1, -1):
        found = _DEFINITION.match(lines[above])
        if found and (len(found[1]) < indent or above == row):
            names.append(found[2])
            indent = len(found[1])
        if indent == 0:
            break
    return names
