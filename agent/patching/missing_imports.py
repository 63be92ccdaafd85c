"""Adds imports that a reply mentions and that its new Python code lacks."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping

from agent.patching.syntax import parse_python

_IMPORT = re.compile(
    r"(?<![\w.])(?:from[ \t]+(?P<module>\.*[A-Za-z_][\w.]*|\.+)[ \t]+)?"
    r"import[ \t]+(?P<names>[A-Za-z_][\w.]*(?:[ \t]+as[ \t]+[A-Za-z_]\w*)?"
    r"(?:[ \t]*,[ \t]*[A-Za-z_]\w*(?:[ \t]+as[ \t]+[A-Za-z_]\w*)?)*)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_MAX_TEXT = 1_000_000  # characters of a reply that are searched
_PROSE = frozenset({"the", "a", "an", "it", "this", "that", "and", "to", "of", "is", "from"})


def new_names(search: str, replace: str) -> set[str]:
    """Return the words of a replacement that its search text lacks."""
    return set(_NAME.findall(replace)) - set(_NAME.findall(search))


def missing_imports(
    before: str, after: str, offers: Mapping[str, str]
) -> tuple[str, list[str]] | None:
    """Add the offered imports that a Python source newly lacks.

    `offers` maps a name to the statement that binds it. A name qualifies if the new source uses it
    undefined and the old one does not. Returns the new source and the added statements, or None if
    there is nothing to add.
    """
    if not offers or before == after:
        return None
    new = _undefined(after)
    lacking = sorted(new & offers.keys()) if new else []
    old = _undefined(before) if lacking else None
    if old is None:
        return None
    statements = [offers[name] for name in lacking if name not in old]
    if not statements:
        return None
    at = _import_line(after)
    lines = after.split("\n")
    return "\n".join([*lines[:at], *statements, *lines[at:]]), statements


def offered_imports(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the names for which the texts have exactly one import statement, and the statement."""
    found = _offered(texts)
    return {name: next(iter(offers)) for name, offers in found.items() if len(offers) == 1}


def _offered(texts: Iterable[str]) -> dict[str, set[str]]:
    """Return the import statements of the texts by the name that each binds."""
    offers: dict[str, set[str]] = {}
    left = _MAX_TEXT
    for text in texts:
        if "import" not in text or not left:
            continue
        looked, left = text[:left], max(0, left - len(text))
        for found in _IMPORT.finditer(looked.replace("`", " ")):
            for item in found["names"].split(","):
                name, _, alias = (part.strip() for part in item.partition(" as "))
                bound = alias or name.split(".")[0]
                if bound in _PROSE or (found["module"] and "." in name):
                    continue
                words = f"{name} as {alias}" if alias else name
                start = f"from {found['module']} import " if found["module"] else "import "
                offers.setdefault(bound, set()).add(start + words)
    return offers


def _parsed(source: str) -> ast.Module | None:
    try:
        return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _undefined(source: str) -> set[str] | None:
    """Return the names that a module reads and binds nowhere; None if that is unknown.

    A name bound in any scope counts as bound, so that no existing name is imported again. With a
    star import nothing is known.
    """
    tree = _parsed(source)
    if tree is None:
        return None
    used: set[str] = set()
    bound: set[str] = {*dir(builtins), "__file__", "__path__", "__class__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            if node.name == "*":
                return None
            bound.add(node.asname or node.name.split(".")[0])
        else:
            bound.update(binds(node))
    return used - bound


def binds(node: ast.AST) -> Iterator[str]:
    """Return the names that a node binds other than by assignment and import."""
    if isinstance(node, ast.keyword):
        return  # the name of a parameter of another function
    for name in ("name", "arg", "rest"):  # definitions, handlers, parameters, patterns
        value = getattr(node, name, None)
        if isinstance(value, str):
            yield value
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def _import_line(source: str) -> int:
    """Return the index of the line for a new import: after the last import at the top."""
    tree = _parsed(source)
    body = tree.body if tree else []
    end = 0
    for index, node in enumerate(body):
        is_doc = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_doc:
            end = node.end_lineno or end
        else:
            break
    return end or _first_code_line(source)


def _first_code_line(source: str) -> int:
    """Return the first line after the shebang and comments (a coding cookie must stay there)."""
    lines = source.split("\n")
    return next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
