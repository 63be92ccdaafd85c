"""Which modules and packages a program needs: everything that its roots import, also in functions.

Imports for type checkers do not count. A string counts if it is the whole name of a module, or if
it begins with the name of a foreign package: processes (`-m agent.retrieval.index.pool`),
grammars and plugins are named that way.

A package whose `__init__` only imports names is a face. Of a face a program needs the names that it
imports, not the modules behind the others, so the carried `__init__` is cut down to those names.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from agent.errors import ConfigurationError

PACKAGES = ("agent", "sandbox", "prompts")

_DISTRIBUTION = "patchshot"
_DISTRIBUTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Exports = Mapping[str, tuple[str, str]]
"""What a face exports: name -> (module that it imports the name from, name there)."""

Reference = tuple[str, str | None]
"""A module and one name in it; None: the module as a whole, "": only that it exists."""


@dataclass(frozen=True, slots=True)
class Closure:
    """The result of `close`.

    `modules`: our own modules by name, in order of name. `faces`: the source of each face among
    them, cut down to the names in use. `foreign`: top-level names of other packages. `left_out`:
    modules that are imported somewhere but were to be left out, in order.
    """

    modules: Mapping[str, Path]
    faces: Mapping[str, str]
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
    search = _Search(modules, leave_out, known)
    search.follow([(name, None) for name in sorted(roots)])
    carried = sorted(search.whole | set(search.used))
    return Closure(
        {name: modules[name] for name in carried},
        {name: search.face_text(name) for name in sorted(search.used)},
        frozenset(search.foreign - sys.stdlib_module_names - {"__future__"}),
        tuple(sorted(search.left_out)),
    )


class _Search:
    """Follows imports. `whole`: modules needed as they are; `used`: names needed of each face."""

    def __init__(
        self, modules: Mapping[str, Path], leave_out: Collection[str], known: Collection[str]
    ) -> None:
        self._modules = modules
        self._leave_out = leave_out
        self._names = frozenset(modules) | frozenset(known)
        self._trees: dict[str, ast.Module] = {}
        self.whole: set[str] = set()
        self.used: dict[str, set[str]] = {}
        self.foreign: set[str] = set()
        self.left_out: set[str] = set()

    def follow(self, pending: list[Reference]) -> None:
        done: set[Reference] = set()
        while pending:
            reference = pending.pop()
            if reference not in done:
                done.add(reference)
                pending.extend(self._needed_by(*reference))

    def face_text(self, name: str) -> str:
        """The source of a face with the imports in use, each on its own line."""
        exports = self._exports(name) or {}
        document = ast.get_docstring(self._tree(name))
        lines = [f'"""{document}"""\n'] if document else []
        for exported, (module, original) in exports.items():
            if exported not in self.used[name]:
                continue
            renamed = "" if exported == original else f" as {exported}"
            lines.append(f"from {module} import {original}{renamed}\n")
        return "".join(lines)

    def _needed_by(self, name: str, attribute: str | None) -> Iterator[Reference]:
        """What is needed next where a module, or one name of it, is needed."""
        if name not in self._modules:
            self.foreign.add(name.partition(".")[0])
            return
        parent = name.rpartition(".")[0]
        if parent:
            yield parent, ""
        if self._is_left_out(name):
            self.left_out.add(name)
            return
        exports = self._exports(name)
        if exports is None:
            self.whole.add(name)
            yield from _references(self._tree(name), self._names)
            return
        used = self.used.setdefault(name, set())
        for wanted in exports if attribute is None else [attribute]:
            if wanted in exports:
                source, original = exports[wanted]
                if not self._is_left_out(source):
                    used.add(wanted)
                yield source, original

    def _tree(self, name: str) -> ast.Module:
        if name not in self._trees:
            self._trees[name] = ast.parse(self._modules[name].read_text("utf-8"))
        return self._trees[name]

    def _exports(self, name: str) -> Exports | None:
        is_package = self._modules[name].name == "__init__.py"
        return _exports(self._tree(name), self._modules) if is_package else None

    def _is_left_out(self, name: str) -> bool:
        return any(name == part or name.startswith(f"{part}.") for part in self._leave_out)


def _exports(tree: ast.Module, modules: Collection[str]) -> Exports | None:
    """What an `__init__` exports if it is a face; None for any other module.

    A face holds a docstring, imports of names from our own modules, and `__all__`.
    """
    found: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in modules:
                    return None
                found[alias.asname or alias.name] = (str(node.module), alias.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            continue
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return None
    return found or None


def _references(tree: ast.AST, names: Collection[str]) -> Iterator[Reference]:
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, None) if whole in names else (node.module, alias.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            first, dot, _ = node.value.partition(".")
            if node.value in names:
                yield node.value, None
            elif dot and first in names and first not in PACKAGES:
                yield first, None


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except those that only a type checker reads."""
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


# ---------------------------------------------------------------------------------- requirements


def declared(root: Path) -> Mapping[str, str]:
    """Import name -> requirement, of each installed package that is declared without an extra.

    The declaration is that of the checkout at `root`, else the metadata of the installation. Raises
    ConfigurationError when there is neither.
    """
    wanted = {_distribution(line): line for line in _declared_lines(root)}
    return {
        name: wanted[distribution]
        for name, distributions in sorted(metadata.packages_distributions().items())
        for distribution in map(_distribution, distributions)
        if distribution in wanted
    }


def needed(root: Path, foreign: Collection[str]) -> tuple[tuple[str, str, str], ...]:
    """(import name, package, requirement) of the declared packages among `foreign`, in order."""
    known = declared(root)
    return tuple(
        (name, _distribution(line), line) for name, line in known.items() if name in foreign
    )


def _declared_lines(root: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
        return list(project["dependencies"])
    try:
        given = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        raise ConfigurationError(
            "the declared packages are not known: install Patchshot (pip install -e .) first"
        ) from None
    return [line for line in given if "extra ==" not in line]


def _distribution(requirement: str) -> str:
    """The normalised name (PEP 503) of the distribution in a requirement."""
    match = _DISTRIBUTION_NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
