"""Which functions and classes a change touches, in the languages whose tests are run. Pure.

Read from the lines that define them and their indentation rather than from a syntax tree: the file
may be written in a version of its language that no parser here knows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from agent.repository.languages import language_of
from agent.types import FileChange

_SCRIPT = re.compile(
    r"""
    (?P<indent>[ \t]*) (?: (?:export|default|async|static|abstract|public|private|protected|get|set)
    [ \t]+ )*
    (?: (?:function\*?|class|interface|enum) [ \t]+ (?P<a>[A-Za-z_$][\w$]*)
      | (?:const|let|var) [ \t]+ (?P<b>[A-Za-z_$][\w$]*) [ \t]* (?: : [^=\n]{0,200} )? =
      | (?!(?:if|for|while|switch|catch|return|function)\b) (?P<c>[A-Za-z_$][\w$]*) [ \t]*
        \( [^;\n]* \{ [ \t]* $ )
    """,
    re.VERBOSE,
)

# Group `indent`, then the name in one of the groups a, b, c.
_DEFINITIONS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "python": re.compile(
            r"(?P<indent>[ \t]*)(?:async[ \t]+)?(?:def|class)[ \t]+(?P<a>[A-Za-z_]\w*)"
        ),
        "javascript": _SCRIPT,
        "typescript": _SCRIPT,
        "tsx": _SCRIPT,
        "go": re.compile(
            r"(?P<indent>[ \t]*)(?:func[ \t]+(?:\([^)\n]*\)[ \t]*)?(?P<a>\w+)|type[ \t]+(?P<b>\w+))"
        ),
        "rust": re.compile(
            r"(?P<indent>[ \t]*)(?:pub(?:\([^)\n]*\))?[ \t]+)?(?:(?:async|unsafe|const)[ \t]+)*"
            r"(?:(?:fn|struct|enum|trait|mod)[ \t]+(?P<a>\w+)"
            r"|impl(?:<[^>\n]*>)?[ \t]+(?:[\w:<>, ]+[ \t]for[ \t]+)?(?P<b>\w+))"
        ),
        "java": re.compile(
            r"(?P<indent>[ \t]*)(?:(?:public|protected|private|static|final|abstract|synchronized"
            r"|default|sealed)[ \t]+)*(?:(?:class|interface|enum|record)[ \t]+(?P<a>\w+)"
            r"|(?!(?:return|new|else|throw)\b)[\w<>\[\].,?]+[ \t]+(?P<b>\w+)[ \t]*\([^;\n]*$)"
        ),
    }
)

# Deeper than any code's own nesting: a blank line belongs to whatever is above it.
_ANY_INDENT = 1000

# A line of code; what is longer is data, and patterns would take their time.
_MOST_CHARS = 400


def changed_symbols(changes: Iterable[FileChange]) -> frozenset[str]:
    """Names of the functions and classes that hold changed lines, without `__dunder__` names."""
    names: set[str] = set()
    for change in changes:
        definition = _DEFINITIONS.get(language_of(change.path))
        if definition is not None and change.before != change.after:
            names.update(_changed(_lines(change.before), _lines(change.after), definition))
    return frozenset(name for name in names if not (name.startswith("__") and name.endswith("__")))


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


def _changed(before: Sequence[str], after: Sequence[str], definition: re.Pattern[str]) -> set[str]:
    names: set[str] = set()
    matcher = difflib.SequenceMatcher(None, before, after)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            names.update(*(_enclosing(before, row, definition) for row in range(start, end)))
            names.update(*(_enclosing(after, row, definition) for row in range(new_start, new_end)))
    return names


def _enclosing(lines: Sequence[str], row: int, definition: re.Pattern[str]) -> list[str]:
    """The definitions that a line stands in, innermost first; a definition's own line is in it."""
    names: list[str] = []
    text = lines[row]
    indent = len(text) - len(text.lstrip()) if text.strip() else _ANY_INDENT
    for above in range(row, -1, -1):
        found = definition.match(lines[above][:_MOST_CHARS])
        if found and (len(found["indent"]) < indent or above == row):
            groups = found.groupdict()
            names.append(groups["a"] or groups.get("b") or groups.get("c") or "")
            indent = len(found["indent"])
        if indent == 0:
            break
    return names
