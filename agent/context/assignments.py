"""Finds the statements that bind a constant, a table or a class attribute."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

from agent.context.layout import FileView

_MAX_STATEMENT = 600  # lines; a longer "statement" is a bracket that never closes
_STRINGS = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`|(?:#|//).*")


def assignments(view: FileView, name: str) -> list[tuple[int, int]]:
    """Return the first and last lines of statements that bind the name outside of functions."""
    if view.language == "python":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a wrong escape in the file warns
                tree = ast.parse("\n".join(view.lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        else:
            return list(_bindings(tree, name))
    return list(_statements(view.lines, name))


def _bindings(tree: ast.AST, name: str) -> Iterator[tuple[int, int]]:
    """Yield the statements of a module and of its classes that bind the name."""
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
            if name in names:
                yield node.lineno, node.end_lineno or node.lineno
        elif isinstance(node, ast.stmt | ast.ExceptHandler):
            waiting.extend(ast.iter_child_nodes(node))


def _statements(lines: Sequence[str], name: str) -> Iterator[tuple[int, int]]:
    """Yield the statements that bind the name, for languages without a parser here."""
    begin = re.compile(
        rf"\s*(?:[\w<>\[\]*&,.]+\s+){{0,6}}[*&]?{re.escape(name)}\s*(?::[^=]*)?=(?!=)|#define\s+{re.escape(name)}\b"
    )
    for index, line in enumerate(lines):
        if begin.match(line):
            yield index + 1, _end(lines, index)


def _end(lines: Sequence[str], start: int) -> int:
    """Return the last line of a statement, 1-based: its brackets are closed there."""
    depth = 0
    for index in range(start, min(len(lines), start + _MAX_STATEMENT)):
        line = _STRINGS.sub("", lines[index])
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        if depth <= 0 and not line.rstrip().endswith(("\\", "=")):
            return index + 1
    return start + 1
