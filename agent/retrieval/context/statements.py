"""Finds statements: those that bind a constant, a table or a class attribute, and imports."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.retrieval.context.layout import FileView, Run

_MAX_STATEMENT = 600  # lines; a longer "statement" is a bracket that never closes
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_STRINGS = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`|(?:#|//).*")

_LONG_QUOTES = ('"""', "'''")
_BINDS = re.compile(r"([A-Za-z_]\w*)\s*(?::[^=]*)?=(?!=)")
_FIELD = re.compile(r"([A-Za-z_]\w*)\s*:\s*\S")  # of a dataclass, without a default


# A declaration at the start of a line, in languages without a parser here.
_DECLARED = re.compile(
    r"(?:export\s+|pub\s+)?(?:const|let|var|static|type)\s+(?:mut\s+)?(\w+)|([A-Z][A-Z0-9_]+)\s*="
)


def assignments(view: FileView, name: str) -> list[tuple[int, int]]:
    """Return the first and last lines of statements that bind the name outside of functions."""
    tree = _tree(view)
    if tree is None:
        return list(_statements(view.lines, name))
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for _, node, names in _bindings(tree)
        if name in names
    ]


def bindings_of_module(lines: Sequence[str]) -> Mapping[str, Run]:
    """Return the last statement at the left margin that binds each name, found without a parser."""
    return dict(_bound(enumerate(lines, 1), lines, _BINDS))


def bindings_of_class(numbers: Iterable[int], lines: Sequence[str]) -> Mapping[str, Run]:
    """Return the first statement that binds or declares each name, of the lines of a class."""
    own = [(number, lines[number - 1].lstrip()) for number in sorted(numbers)]
    return dict(reversed(list(_bound(own, lines, _BINDS, _FIELD))))


def _bound(
    numbered: Iterable[tuple[int, str]], lines: Sequence[str], *patterns: re.Pattern[str]
) -> Iterator[tuple[str, Run]]:
    """Yield the names that the numbered lines bind, with the lines of the statement."""
    after = 0
    for number, line in numbered:
        matches = (pattern.match(line) for pattern in patterns)
        if number > after and (match := next(filter(None, matches), None)):
            after = end_of_statement(lines, number - 1)
            yield match[1], (number, after)


def bound_names(view: FileView) -> list[tuple[str, int]]:
    """Return the names that statements outside of functions bind, and their lines.

    An attribute of a class or of its instances is `Class.name`; those of instances come last. Of
    equal names only the first is returned.
    """
    found: dict[str, int] = {}
    tree = _tree(view)
    if tree is None:
        for number, line in enumerate(view.lines, start=1):
            if match := _DECLARED.match(line):
                found.setdefault(match[1] or match[2], number)
    else:
        for inside, node, names in _bindings(tree):
            for name in names:
                found.setdefault(f"{inside}{name}", node.lineno)
        for owner in ast.walk(tree):
            if isinstance(owner, ast.ClassDef):
                for name, number in _instance_attributes(owner):
                    found.setdefault(f"{owner.name}.{name}", number)
    return list(found.items())


def _instance_attributes(owner: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """Yield the attributes that methods of a class bind through their first parameter."""
    for method in owner.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.args.args:
            receiver = method.args.args[0].arg
            for node in ast.walk(method):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == receiver
                ):
                    yield node.attr, node.lineno


def _tree(view: FileView) -> ast.Module | None:
    if view.language != "python":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a wrong escape in the file warns
            return ast.parse("\n".join(view.lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bindings(
    tree: ast.AST,
) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign | ast.AugAssign, tuple[str, ...]]]:
    """Yield the statements of a module and its classes that bind names, with owner and names.

    The owner is "" for a module, else the dotted name of the class and a dot.
    """
    waiting = [("", node) for node in ast.iter_child_nodes(tree)]
    while waiting:
        owner, node = waiting.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            yield owner, node, tuple(names)
        elif isinstance(node, ast.stmt | ast.ExceptHandler):
            inside = f"{owner}{node.name}." if isinstance(node, ast.ClassDef) else owner
            waiting.extend((inside, child) for child in ast.iter_child_nodes(node))


def _statements(lines: Sequence[str], name: str) -> Iterator[tuple[int, int]]:
    """Yield the statements that bind the name, for languages without a parser here."""
    begin = re.compile(
        rf"\s*(?:[\w<>\[\]*&,.]+\s+){{0,6}}[*&]?{re.escape(name)}\s*(?::[^=]*)?=(?!=)|#define\s+{re.escape(name)}\b"
    )
    for index, line in enumerate(lines):
        if begin.match(line):
            yield index + 1, end_of_statement(lines, index)


def end_of_statement(lines: Sequence[str], start: int) -> int:
    """Return the index after a statement's last line: its brackets and strings are closed there."""
    depth, quote = 0, ""
    for index in range(start, min(len(lines), start + _MAX_STATEMENT)):
        inside = bool(quote)
        if not inside:
            quote = next((q for q in _LONG_QUOTES if lines[index].count(q) % 2), "")
        elif quote in lines[index]:
            quote = ""
        if quote or (inside and depth > 0):
            continue
        line = "" if inside else _STRINGS.sub("", lines[index])
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        if depth <= 0 and not line.rstrip().endswith(("\\", "=")):
            return index + 1
    return start + 1


# ------------------------------------------------------------------------------- import statements

# Lines. Of a longer statement, such as a bracket that never closes, the first line is taken.
_MAX_IMPORT = 40
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
    """An import statement on lines `start`..`end`, and the identifiers in it."""

    start: int
    end: int
    names: frozenset[str]


def import_statements(lines: Sequence[str], language: str) -> tuple[ImportStatement, ...]:
    """Return the top-level import statements of a file; none for unknown languages.

    They are found line by line, without a parser. A false match costs a few tokens only, since the
    lines are shown unchanged.
    """
    pattern = _STARTS.get(language)
    if pattern is None:
        return ()
    found: list[ImportStatement] = []
    after = 0
    for index, line in enumerate(lines):
        if index < after or not pattern.match(line):
            continue
        after = end_of_statement(lines, index)
        if after - index > _MAX_IMPORT:
            after = index + 1
        names = frozenset(IDENTIFIER.findall("\n".join(lines[index:after])))
        found.append(ImportStatement(index + 1, after, names))
    return tuple(found)
