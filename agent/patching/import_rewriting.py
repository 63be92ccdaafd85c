"""Rewrites the imports of Python modules that a reply moves, at positions of the syntax tree.

A file whose meaning after the change is not certain is left as it is, and a note names it.
"""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.patching.file_text import Spliced, open_text
from agent.patching.file_tree import Tree
from agent.patching.generated import is_generated
from agent.patching.moved_modules import Moves, Parts, UnclearError, bound_by, parts_of
from agent.patching.paths import RefusedPath, check_path, is_allowed
from agent.patching.refusals import Miss
from agent.patching.syntax import MAX_PARSED, parse_python

# Files that a note names.
_SHOWN = 20

# Files that name modules in texts: entry points, options of tools.
_NAMING = (".py", ".toml", ".cfg", ".ini")


def rewrite_imports(
    tree: Tree, moved: Sequence[tuple[str, str]], allow: Collection[str]
) -> tuple[str, ...]:
    """Rewrite the imports of moved modules in all files that may be edited.

    `moved` has old and new paths, in order. Returns notes: what was rewritten, and what still
    names a module by its old name.
    """
    origins: dict[str, str] = {}
    for old, new in moved:
        if old.endswith(".py") and new.endswith(".py"):
            origins[new] = origins.pop(old, old)
    if not origins:
        return ()
    gone = {old: new for new, old in origins.items() if not tree.exists(old)}
    known = frozenset({*tree.files.files, *tree.contents})
    before = Tree(tree.files, {**tree.contents})
    moves = Moves(gone, known, lambda path: _text(before.content(path)))
    done, left = [], dict[str, str]()
    tails = [parts_of(old)[-1].encode() for old in gone]
    for path in sorted(path for path in tree.known if path.endswith(_NAMING)):
        content = tree.content(path)
        if isinstance(content, Miss) or len(content) > MAX_PARSED:
            continue
        if path in origins or any(tail in content for tail in tails):
            why = ""
            if path.endswith(".py"):
                why = _rewrite(tree, path, origins.get(path, path), content, moves, allow)
            if tree.content(path) is not content:
                done.append(path)
            elif why or moves.mentioned(_text(content) or ""):
                left[path] = f"{path} ({why})" if why else path
    notes = [f"imports of moved modules were rewritten in {_listed(done)}"] if done else []
    if left:
        names = ", ".join(sorted(gone))
        notes.append(f"{names} was moved, and is still named in {_listed([*left.values()])}")
    return tuple(notes)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _text(content: bytes | Miss | None) -> str | None:
    file = open_text(content, python=True) if isinstance(content, bytes) else None
    return file.text if file is not None else None


def _rewrite(
    tree: Tree, path: str, before: str, content: bytes, moves: Moves, allow: Collection[str]
) -> str:
    """Rewrite one file. Return why it is left as it is; "" if it need not or could be changed."""
    file = open_text(content, python=True)
    base = tree.files.read(before) if before in tree.files.files else None
    if file is None:
        return "it cannot be decoded"
    try:
        text = _rewritten(file.text, path, before, _text(base) or "", moves)
    except UnclearError as error:
        return str(error)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "it cannot be parsed"
    if text == file.text:
        return ""
    checked = check_path(path, allow=allow)
    refused = tree.off_limits(path)
    if isinstance(checked, RefusedPath):
        return checked.reason
    if not is_allowed(path, allow) and (refused is not None or is_generated(base or b"")):
        return "it is generated" if refused is None else refused.reason
    new = file.splice(0, len(file.text), text)
    if isinstance(new, Spliced):
        tree.contents[path] = new.data
    return "" if isinstance(new, Spliced) else new


def _rewritten(text: str, path: str, before: str, base: str, moves: Moves) -> str:
    """Return the text of a Python file with the imports of moved modules rewritten.

    `path` is where the file is now and `before` where it was. `base` is its text before the reply:
    an import that only the reply has is not rewritten. Raises UnclearError, and what `ast.parse`
    raises.
    """
    if "\r" in text:
        raise UnclearError("its lines end differently")
    tree = parse_python(text)
    file = _File(text, path, before, base, moves, moves.names(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            file.from_import(node)
        elif isinstance(node, ast.Import):
            file.plain_import(node, kept=node in tree.body)
    file.attributes(tree)
    for start, end, new in sorted(file.edits, reverse=True):
        text = f"{text[:start]}{new}{text[end:]}"
    parse_python(text)
    return text


@dataclass(slots=True)
class _File:
    """One file. `edits` are (start, end, new text); `plain` is what `import a.b` names, old: new.

    `kept` are the names that an unchanged `import a.c` binds at the top level.
    """

    text: str
    path: str
    before: str
    base: str
    moves: Moves
    names: Mapping[Parts, tuple[Parts, Parts]]
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    plain: dict[Parts, Parts] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def _span(self, node: ast.stmt | ast.expr | ast.alias) -> tuple[int, int]:
        lines = self.text.split("\n")
        start = sum(len(one) + 1 for one in lines[: node.lineno - 1])
        start += len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
        return start, start + len(ast.get_source_segment(self.text, node) or "")

    def _check(self, node: ast.stmt) -> None:
        start, end = self._span(node)
        if self.text[start:end] not in self.base:
            raise UnclearError("the reply itself writes this import")

    def from_import(self, node: ast.ImportFrom) -> None:
        """Rewrite `from a.b import c`, relative or not. What has another place goes before it."""
        folder = PurePosixPath(self.before).parent.parts
        above = folder[: len(folder) - node.level + 1] if node.level else ()
        base = (*above, *(node.module.split(".") if node.module else ()))
        new = [self._target(base, alias.name, relative=node.level > 0) for alias in node.names]
        written = [self._written(place, relative=node.level > 0) for place, _ in new]
        was = "." * node.level + (node.module or "")
        if all(one == was for one in written) and [name for _, name in new] == [
            alias.name for alias in node.names
        ]:
            return
        self._check(node)
        start, end = self._span(node)
        indent = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        joint = "; " if indent.strip() else f"\n{indent}"
        kept = next((place for place in (was, *written) if place and place in written), None)
        spans, others = [self._span(alias) for alias in node.names], []
        for at, alias in enumerate(node.names):
            name, bound = new[at][1], alias.asname or alias.name
            text = name if bound == name else f"{name} as {bound}"
            if written[at] == kept:
                self.edits.append((*spans[at], text))
                continue
            others.append(f"from {written[at]} import {text}" if written[at] else f"import {text}")
            if kept in written[at:]:
                self.edits.append((spans[at][0], spans[at + 1][0], ""))
            elif kept is not None:
                self.edits.append((spans[at - 1][1], spans[at][1], ""))
        if kept is None:
            self.edits.append((start, end, joint.join(others)))
            return
        before = "".join(f"{other}{joint}" for other in others)
        self.edits += [(start, start, before), (*self._module_span(node), kept)]

    def _target(self, base: Parts, name: str, *, relative: bool) -> tuple[Parts, str]:
        """Return the place and name that `from base import name` means from now on."""
        look = self.moves.places() if relative else self.names
        moved, package = look.get((*base, name)), look.get(base)
        if (moved or package) and not relative:
            self.moves.check((*base, name) if moved else base)
        if moved is not None and self.moves.bound_in_package(moved[0]) != "object":
            return moved[1][:-1], moved[1][-1]
        return package[1] if package is not None else base, name

    def _written(self, place: Parts, *, relative: bool) -> str:
        """Return a module as this file imports it."""
        if not relative:
            return ".".join(place)
        home, root = PurePosixPath(self.path).parent.parts, self.moves.root(self.path)
        same = [a == b for a, b in zip(home, place, strict=False)]
        common = (*same, False).index(False)
        stays = home == PurePosixPath(self.before).parent.parts
        if common > len(root) or (stays and common == len(home)):
            return "." * (len(home) - common + 1) + ".".join(place[common:])
        below = place[: len(root)] == root
        return ".".join(place[len(root if below else self.moves.root("/".join(place))) :])

    def _module_span(self, node: ast.ImportFrom) -> tuple[int, int]:
        """Return where the name of the module is, dots included."""
        start, end = self._span(node)
        lines = self.text[start:end].splitlines(keepends=True)
        tokens = list(tokenize.generate_tokens(io.StringIO("".join(lines)).readline))
        last = next(at for at, token in enumerate(tokens) if token.string == "import")
        ends = (tokens[1].start, tokens[last - 1].end)
        first, second = (start + sum(map(len, lines[: row - 1])) + col for row, col in ends)
        return first, second

    def plain_import(self, node: ast.Import, *, kept: bool) -> None:
        """Rewrite `import a.b`."""
        for alias in node.names:
            name = tuple(alias.name.split("."))
            if name not in self.names:
                if any(name[:size] in self.names for size in range(1, len(name))):
                    raise UnclearError(f"{alias.name} was not moved with its package")
                if alias.asname is None:
                    self.plain[name] = name
                    self.kept |= {name[0]} if kept else set()
                continue
            self.moves.check(name)
            self._check(node)
            new, start = self.names[name][1], self._span(alias)[0]
            if not self.text.startswith(alias.name, start):
                raise UnclearError(f"white space within {alias.name}")
            single = alias.asname is None and len(name) == 1
            text = ".".join(new) + (f" as {alias.name}" if single else "")
            self.edits.append((start, start + len(alias.name), text))
            if alias.asname is None and not single:
                self.plain[name] = new

    def attributes(self, tree: ast.Module) -> None:
        """Rewrite the uses `a.b.c` of what `import a.b` brings."""
        tops = {name[0] for name in self.plain}
        usable = {name[:size] for name in self.plain for size in range(2, len(name) + 1)}
        uses = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        inner = set[ast.AST]()
        for node in ast.walk(tree):  # outer nodes come first
            name = _dotted(node)
            if node in inner or name not in self.names or name[0] not in tops or len(name) < 2:
                continue
            here, new = self.names[name]
            bound = self.moves.bound_in_package(here)
            if bound == "object" or (bound and name not in usable):
                continue
            assert isinstance(node, ast.Attribute)
            start, end = self._span(node)
            if name not in usable or self.text[start:end] != ".".join(name):
                raise UnclearError(f"{'.'.join(name)} is used without being imported")
            self.edits.append((start, end, ".".join(new)))
            uses[name[0]] -= 1
            inner |= {*ast.walk(node)}
        bound_names = {name for node in ast.walk(tree) for name in bound_by(node)}
        for name, new in self.plain.items():
            old_top, top = name[0], new[0]
            if name != new and old_top in bound_names:
                raise UnclearError(f"{old_top} is the name of something else too")
            if old_top != top and (top in bound_names or hasattr(builtins, top)):
                raise UnclearError(f"{top} is the name of something else")
            if old_top != top and uses[old_top] and old_top not in self.kept:
                raise UnclearError(f"{old_top} is used for more than {'.'.join(name)}")


def _dotted(node: ast.AST) -> Parts:
    """Return the names of `a.b.c`; () for another expression."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _dotted(node.value) if isinstance(node, ast.Attribute) else ()
    return (*before, node.attr) if before and isinstance(node, ast.Attribute) else ()
