"""Imports that a reply speaks of and that its new Python code lacks."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping

from agent.patching.python_source import parse_python

_IMPORT = re.compile(
    r"(?<![\w.])(?:from[ \t]+(?P<module>\.*[A-Za-z_][\w.]*|\.+)[ \t]+)?"
    r"import[ \t]+(?P<names>[A-Za-z_][\w.]*(?:[ \t]+as[ \t]+[A-Za-z_]\w*)?"
    r"(?:[ \t]*,[ \t]*[A-Za-z_]\w*(?:[ \t]+as[ \t]+[A-Za-z_]\w*)?)*)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_MAX_TEXT = 1_000_000  # characters of a reply that are looked through
_PROSE = frozenset({"the", "a", "an", "it", "this", "that", "and", "to", "of", "is", "from"})


def new_names(search: str, replace: str) -> set[str]:
    """Words of a replacement that its search text does not have."""
    return set(_NAME.findall(replace)) - set(_NAME.findall(search))


def missing_imports(
    before: str, after: str, offers: Mapping[str, str]
) -> tuple[str, list[str]] | None:
    """A Python source with the imports added that it newly lacks, of those that are offered.

    `offers` are statements by the name that each binds. A name qualifies if the old source did not
    use it undefined and the new one does. Gives the new source and the statements; None if there is
    nothing to add.
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
    """Names for which texts spell out one import statement and no other, and that statement."""
    found = _offered(texts)
    return {name: next(iter(offers)) for name, offers in found.items() if len(offers) == 1}


def _offered(texts: Iterable[str]) -> dict[str, set[str]]:
    """Import statements that texts spell out, by the name that each binds."""
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
    """Names that a module reads and binds nowhere; None if that cannot be told.

    Scopes are not told apart: a name bound anywhere counts as bound, so that nothing is imported
    that might be there. A star import may bind everything.
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
            bound.update(_binds(node))
    return used - bound


def _binds(node: ast.AST) -> Iterator[str]:
    """Names that a node binds other than by assignment and import."""
    if isinstance(node, ast.keyword):
        return  # names a parameter of something else
    for name in ("name", "arg", "rest"):  # definitions, handlers, parameters, patterns
        value = getattr(node, name, None)
        if isinstance(value, str):
            yield value
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def _import_line(source: str) -> int:
    """How many lines stand before the place of a new import: after the last import at the top."""
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
    """After a shebang and comments at the very top (a coding cookie must stay in its line)."""
    lines = source.split("\n")
    return next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
