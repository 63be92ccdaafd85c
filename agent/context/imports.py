"""Finds a file's import statements line by line, without parsing it.

Only exact lines are ever shown, so a false hit costs a few tokens and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_MAX_STATEMENT = 40  # lines; a longer "statement" is a bracket that never closes

_PYTHON = r"from\s+[\w.]+\s+import\b|import\s+[\w.]+(?:\s+as\s+\w+)?\s*(?:[,;#\\]|$)"
_JAVASCRIPT = (
    r"import\b(?!\s*\()|export\s.{0,2000}\sfrom\s|(?:const|let|var)\s.{1,500}=\s*require\s*\("
)
_C = r"\s*#\s*include\b"
_JAVA = r"import\s+(?:static\s+)?[\w.*]+\s*;"
_STARTS: Mapping[str, re.Pattern[str]] = {
    language: re.compile(pattern)
    for language, pattern in {
        "python": _PYTHON,
        "cython": _PYTHON.replace("import", "c?import"),
        "javascript": _JAVASCRIPT,
        "typescript": _JAVASCRIPT,
        "tsx": _JAVASCRIPT,
        "c": _C,
        "cpp": _C,
        "java": _JAVA,
        "kotlin": r"import\s+[\w.*]+",
        "scala": r"import\s+[\w.]+",
        "go": r"import\b",
        "rust": r"(?:pub\s+)?use\s+[\w:{]|extern\s+crate\b",
        "php": r"use\s+(?:function\s+|const\s+)?[\w\\]+|(?:require|include)(?:_once)?\b",
        "ruby": r"require(?:_relative)?\b",
        "csharp": r"(?:global\s+)?using\s+(?:static\s+)?[\w.=\s]+;",
    }.items()
}


@dataclass(frozen=True, slots=True)
class ImportStatement:
    """Lines `start`..`end` of a file, and every identifier written in them."""

    start: int
    end: int
    names: frozenset[str]


def import_statements(lines: Sequence[str], language: str) -> tuple[ImportStatement, ...]:
    """The import statements at the outer level of a file, in order; none for unknown languages."""
    pattern = _STARTS.get(language)
    if pattern is None:
        return ()
    found: list[ImportStatement] = []
    after = 0
    for index, line in enumerate(lines):
        if index < after or not pattern.match(line):
            continue
        after = _end_of_statement(lines, index)
        names = frozenset(_NAME.findall("\n".join(lines[index:after])))
        found.append(ImportStatement(index + 1, after, names))
    return tuple(found)


def _end_of_statement(lines: Sequence[str], start: int) -> int:
    """Index after the last line: brackets closed and no backslash at its end."""
    depth = 0
    for index in range(start, min(len(lines), start + _MAX_STATEMENT)):
        line = lines[index]
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        if depth <= 0 and not line.rstrip().endswith("\\"):
            return index + 1
    return start + 1
