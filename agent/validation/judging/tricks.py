"""Ways of passing tests without fixing anything that can be read off a patch. Pure.

Objects that equal everything, code that asks whether it is being tested, and configuration that
hides tests are things that no fix needs. Only what the patch adds counts. What is
not found here may still be there: this is a short list of plain cases, not an analysis.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agent.patching.python_source import parse_python
from agent.types import FileChange

_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__")

# How a program finds out that a test runs it, or reaches for what judges it.
_AWARE = re.compile(
    r"PYTEST_CURRENT_TEST|SANDBOX_REPORT|SANDBOX_JUNIT|PATCHSHOT_SEAL|patchshot_(?:pytest|watch|unittest|hook)"
    r"|\b(?:import|from)\s+_pytest\b|['\"]_?pytest['\"]\s+(?:not\s+)?in\s+sys\.modules"
    r"|sys\.modules\s*(?:\.get\(|\[)\s*['\"]_?pytest"
)

# Ways of pytest not to run what is there. Marks on tests show in the runs.
_HIDES = re.compile(
    r"collect_ignore(?:_glob)?\b|--ignore(?:-glob)?\b|--deselect\b"
    r"|pytest_ignore_collect|pytest_collection_modifyitems|pytest_deselected"
)


def find_tricks(source: Sequence[FileChange], project: Iterable[str]) -> tuple[str, ...]:
    """What the patch adds, one sentence each, in order of the paths.

    `source` are the changes that could be a fix. `project` are texts of source files of the base:
    a project that speaks of its test runner already may go on doing so.
    """
    changed = [change for change in source if change.path.endswith(".py") and change.after]
    found = [f"{change.path}: {words}" for change in changed for words in _equal(change)]
    aware = {change.path: words for change in changed if (words := _aware(change))}
    if aware and not any(map(_AWARE.search, project)):
        found.extend(f"{path}: {words}" for path, words in aware.items())
    return tuple(sorted(found))


def find_hiding(held: Sequence[FileChange]) -> tuple[str, ...]:
    """What the patch adds to the configuration that takes tests out of a run of all of them."""
    found = []
    for change in held:
        new = _added(_HIDES, change)
        if new:
            found.append(f"{change.path}: takes tests out of the run ({new})")
    return tuple(sorted(found))


def _aware(change: FileChange) -> str:
    new = _added(_AWARE, change)
    return f"the code asks for what tests it ({new})" if new else ""


def _added(pattern: re.Pattern[str], change: FileChange) -> str:
    """The first of the matches that the file has more of than before, "" for none."""
    before, after = (Counter(pattern.findall(_text(d))) for d in (change.before, change.after))
    return min((found.strip() for found in after - before), default="")


def _equal(change: FileChange) -> Iterator[str]:
    new = Counter(_constant_comparisons(change.after))
    new.subtract(_constant_comparisons(change.before))
    for name in sorted(name for name, count in new.items() if count > 0):
        yield f"{name} answers the same whatever it is compared with"


def _constant_comparisons(data: bytes | None) -> Iterator[str]:
    """`Class.__eq__` for each comparison of a class that only returns a true constant."""
    for node in ast.walk(_tree(data)):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                name = _constant(statement)
                if name in _COMPARISONS:
                    yield f"{node.name}.{name}"


def _constant(statement: ast.stmt) -> str:
    """The name that a statement binds to a function which always returns True; "" for others."""
    if isinstance(statement, ast.FunctionDef):
        body = [s for s in statement.body if not _is_docstring(s)]
        returned = body[0] if len(body) == 1 else None
        if isinstance(returned, ast.Return) and _is_true(returned.value):
            return statement.name
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        target = statement.targets[0]
        if isinstance(target, ast.Name) and _is_true(statement.value.body):
            return target.id
    return ""


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and bool(value.value)


def _tree(data: bytes | None) -> ast.AST:
    """The syntax tree; an empty one for what this Python cannot parse."""
    try:
        return parse_python(data or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
