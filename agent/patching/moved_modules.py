"""What the Python modules that a reply moves are called, before and after."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from sys import stdlib_module_names

from agent.patching.missing_imports import binds
from agent.patching.syntax import parse_python

# Folders from which projects import their modules, beside the one above the outermost package.
_ROOTS = ((), ("src",), ("lib",), ("python",))

Parts = tuple[str, ...]
"""A dotted name, or the path of a module without its suffix."""


class UnclearError(Exception):
    """Why a file cannot be rewritten with certainty."""


def parts_of(path: str) -> Parts:
    """Return where a module is: `src/a/b.py` and `src/a/b/__init__.py` give (src, a, b)."""
    pure = PurePosixPath(path)
    return pure.parent.parts if pure.stem == "__init__" else (*pure.parent.parts, pure.stem)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moved modules: new path by old path.

    `known` has all paths, and `read` gives the texts before any import is rewritten.
    """

    moved: Mapping[str, str]
    known: Collection[str]
    read: Callable[[str], str | None]

    def root(self, path: str) -> Parts:
        """Return the folder above the outermost package of a module."""
        folders = PurePosixPath(path).parents
        inside = [f"{folder}/__init__.py" in self.known for folder in folders]
        if True not in inside:
            return PurePosixPath(path).parent.parts
        return folders[inside.index(False, inside.index(True))].parts

    def places(self) -> dict[Parts, tuple[Parts, Parts]]:
        """Return old and new path of each moved module by its old path."""
        return {parts_of(old): (parts_of(old), parts_of(new)) for old, new in self.moved.items()}

    def names(self, reader: str) -> dict[Parts, tuple[Parts, Parts]]:
        """Return the old path and the new name by each absolute name of a moved module."""
        found = {}
        for old, new in sorted(self.moved.items()):
            here, there = parts_of(old), parts_of(new)
            for root in sorted({self.root(old), *_ROOTS}):
                name = here[len(root) :]
                near = len(name) > 1 or root in _ROOTS or reader.startswith("/".join((*root, "")))
                if name and here[: len(root)] == root and near:
                    top = root if there[: len(root)] == root else self.root(new)
                    found[name] = (here, there[len(top) :])
        return found

    def check(self, name: Parts) -> None:
        """Raise UnclearError if an absolute name may be that of another module."""
        mine = {*self.moved, *self.moved.values()}
        for path in sorted(p for p in self.known if p.endswith(".py") and p not in mine):
            above, last = parts_of(path)[: -len(name)], parts_of(path)[-len(name) :]
            if last == name and above in {self.root(path), *_ROOTS}:
                raise UnclearError(f"{'.'.join(name)} may be {path}")
        if name[0] in stdlib_module_names:
            raise UnclearError(f"{name[0]} may be that of the standard library")

    def mentioned(self, text: str) -> bool:
        """Whether a text has the dotted name of a moved module."""
        names = (".".join(parts_of(old)[len(self.root(old)) :]) for old in sorted(self.moved))
        dotted = "|".join(re.escape(name) for name in names if "." in name)
        return bool(dotted) and re.search(rf"(?<![\w.])(?:{dotted})(?![\w])", text) is not None

    def bound_in_package(self, here: Parts) -> str:
        """Return what the package of a module binds to its name: "", "module" or "object".

        Raises UnclearError where that cannot be told.
        """
        path = "/".join((*here[:-1], "__init__.py"))
        kinds = set[str]()
        for node in ast.walk(parse_python(self.read(self.moved.get(path, path)) or "")):
            names = {*bound_by(node)}
            if here[-1] in names or "*" in names:
                itself = isinstance(node, ast.ImportFrom) and node.level == 1 and not node.module
                kinds.add("star" if "*" in names else "module" if itself else "object")
        if "star" in kinds or len(kinds) > 1:
            raise UnclearError(f"{path} may bind {here[-1]} too")
        return "".join(kinds)


def bound_by(node: ast.AST) -> Iterator[str]:
    """Return the names that a node binds, but for `a` of `import a.b`."""
    if isinstance(node, ast.Name):
        yield from () if isinstance(node.ctx, ast.Load) else (node.id,)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        plain = isinstance(node, ast.Import)
        yield from (n.asname or n.name for n in node.names if n.asname or not plain)
    elif not isinstance(node, ast.alias):
        yield from binds(node)
