"""Takes comments and the details of docstrings out of a source, where a bundle would be too large.

What the source does stays the same; it stays formatted as it was.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def thinned(source: str) -> str:
    """`source` without lines that are comments only, docstrings cut to their first line."""
    lines = source.splitlines(keepends=True)
    dropped = set(_comment_lines(source))
    for first, last, short in _docstrings(ast.parse(source), lines):
        lines[first - 1] = short
        dropped.update(range(first + 1, last + 1))
    return "".join(line for number, line in enumerate(lines, 1) if number not in dropped)


def _comment_lines(source: str) -> Iterator[int]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            yield token.start[0]


def _docstrings(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, what takes their place) of docstrings of several lines."""
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
        if text is None:
            continue
        place = node.body[0]  # type: ignore[attr-defined]
        first, last, indent = (
            place.lineno,
            place.end_lineno,
            lines[place.lineno - 1][: place.col_offset],
        )
        alone = not indent.strip() and lines[last - 1].rstrip().endswith('"""')
        if last > first and alone:
            yield first, last, f"{indent}{text.splitlines()[0]!a}\n"
