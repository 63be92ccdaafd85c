"""Which of our modules a program needs: all that is imported from its roots, also in functions.

Imports for type checkers only do not count. A string that is the whole name of a module does, or
that begins a path of modules in a foreign package: that is how processes (`-m
agent.retrieval.worker`), grammars and plugins are named.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("agent", "sandbox", "prompts")


@dataclass(frozen=True, slots=True)
class Closure:
    """`modules`: our own by name -> file, in order of name. `foreign`: top-level names of others.

    `left_out`: modules that are imported somewhere and were to be left out, in order.
    """

    modules: Mapping[str, Path]
    foreign: frozenset[str]
    left_out: tuple[str, ...]


def own_modules(root: Path) -> Mapping[str, Path]:
    """Every module of our packages below `root`, by name."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path
    return found


def close(
    modules: Mapping[str, Path],
    roots: Iterable[str],
    *,
    leave_out: Collection[str] = (),
    known: Collection[str] = (),
) -> Closure:
    """The modules that `roots` need, without those below a name in `leave_out`.

    `known`: names of foreign packages that count where a string is or begins with their name.
    """
    names = frozenset(modules) | frozenset(known)
    seen: set[str] = set()
    foreign: set[str] = set()
    left_out: set[str] = set()
    pending = sorted(roots)
    while pending:
        name = pending.pop()
        if name in seen or name in left_out:
            continue
        if name not in modules:
            foreign.add(name.partition(".")[0])
        elif any(name == part or name.startswith(f"{part}.") for part in leave_out):
            left_out.add(name)
        else:
            seen.add(name)
            tree = ast.parse(modules[name].read_text("utf-8"))
            pending.extend(with_parents(_named(tree, names), names))
            pending.extend(with_parents([name], names))
    outside = foreign - sys.stdlib_module_names - {"__future__"}
    return Closure(
        {name: modules[name] for name in sorted(seen)}, frozenset(outside), tuple(sorted(left_out))
    )


def with_parents(found: Iterable[str], names: Collection[str]) -> Iterator[str]:
    """Each module and the packages it is in; of what is not ours the top-level name."""
    for name in found:
        parts = name.split(".")
        if parts[0] not in names:
            yield parts[0]
            continue
        for end in range(1, len(parts) + 1):
            whole = ".".join(parts[:end])
            if whole in names:
                yield whole


def _named(tree: ast.AST, names: Collection[str]) -> Iterator[str]:
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (
                whole for alias in node.names if (whole := f"{node.module}.{alias.name}") in names
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            first, dot, _ = node.value.partition(".")
            if node.value in names:
                yield node.value
            elif dot and first in names and first not in PACKAGES:
                yield first


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            pending.extend(node.orelse)
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
