"""Finds state that a patch makes outlive a call: variables of a module that its functions change.

Pure, for Python and JavaScript. With such state a result may be right for the first call and wrong
later. Tables that no function changes and attributes of instances are no such state.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.repository import language_of
from agent.types import FileChange
from agent.verify.judging.tricks import tree_of

_DISPLAYS = (ast.List, ast.Dict, ast.Set)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SPEAKS_OF_STATE = re.compile(
    r"cach|memo|\bstate|global|\bonce\b|twice|again|repeat|\bfirst\b|second (?:call|time)|regist"
    r"|remember|reuse|\bcount|slow|perform|speed|fast|thread|\block|pool|singleton|leak|lazy|lazi"
    r"|init|default|hook|plugin",
    re.IGNORECASE,
)
_CHANGES = frozenset(
    {"append", "appendleft", "add", "extend", "insert", "update", "setdefault", "pop", "popleft"}
    | {"popitem", "remove", "discard", "clear", "reverse", "sort", "rotate", "push", "put", "set"}
    | {"send", "__next__", "__setitem__", "__delitem__"}
)


_TOP_VARIABLE = re.compile(r"^(?:export\s+)?(?:let|const|var)\s+(\w+)", re.MULTILINE)
_METHODS = "push|pop|shift|unshift|splice|add|set|delete|clear|next"


def find_new_state(source: Sequence[FileChange], issue: str) -> tuple[str, ...]:
    """Return `path: name` of what functions change newly; none where the issue speaks of state."""
    if _SPEAKS_OF_STATE.search(issue):
        return ()
    found: set[str] = set()
    for change in source:
        read = _READERS.get(language_of(change.path))
        if read is not None and change.after is not None:
            new = set(read(change.after)) - set(read(change.before))
            found.update(f"{change.path}: {name}" for name in new)
    return tuple(sorted(found))


def _state_of_script(data: bytes | None) -> Iterator[str]:
    """Yield the variables at the top of a JavaScript file that indented lines change."""
    text = (data or b"").decode("utf-8", "replace")
    for name in dict.fromkeys(_TOP_VARIABLE.findall(text)):
        changed = rf"(?<![\w.]){name}\s*(?:[-+*/|&?]{{0,2}}=(?![=>])|\+\+|--|\.(?:{_METHODS})\()"
        local = rf"^[ \t]+.*\b(?:let|const|var)\s+{name}\b"
        lines = re.search(rf"^[ \t]+.*?{changed}", text, re.MULTILINE)
        if lines and not re.search(local, text, re.MULTILINE):
            yield name


def _state(data: bytes | None) -> Iterator[str]:
    """Yield the names of modules, classes and mutable defaults that functions change."""
    tree = tree_of(data)
    shared = {*_shared_names(tree), *_shared_by_instances(tree)}
    for function in (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)):
        own = {arg.arg for arg in _arguments(function)} | set(_assigned(function))
        mutable = set(_mutable_defaults(function))
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield from node.names
            for name in _changed(node):
                if name in mutable or (name in shared and name not in own):
                    yield name


def _shared_names(tree: ast.AST) -> Iterator[str]:
    """Yield what modules and classes bind, outside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if not isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            yield from _shared_names(node)


def _shared_by_instances(tree: ast.AST) -> Iterator[str]:
    """Yield `self.name` for lists, dictionaries and sets that a class binds for all instances."""
    replaced = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for statement in node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, _DISPLAYS):
                names = {t.id for t in statement.targets if isinstance(t, ast.Name)}
                yield from (f"self.{name}" for name in sorted(names - replaced))


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = function.args
    more = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


def _assigned(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _mutable_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    given = function.args
    last = [*given.posonlyargs, *given.args][::-1]
    pairs = [*zip(last, given.defaults[::-1], strict=False)]
    pairs += [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d]
    for argument, default in pairs:
        if isinstance(default, (*_DISPLAYS, ast.Call)):
            yield argument.arg


def _changed(node: ast.AST) -> tuple[str, ...]:
    """Return names whose object a node changes: by a method, an item or an attribute."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _CHANGES:
            return (_name(value),)
        case ast.Call(func=ast.Name(id="next"), args=[value, *_]):
            return (_name(value),)
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            return (_name(value),)
        case ast.Attribute(value=value, ctx=ast.Store() | ast.Del()):
            return _name(value), _name(node)
    return ()


def _name(value: ast.expr) -> str:
    """Return the name of a variable, or of one that a class or its instances share."""
    match value:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if (
            owner == "cls" or owner[:1].isupper()
        ):
            return name
        case ast.Attribute(value=ast.Call(func=ast.Name(id="type")), attr=name):
            return name
        case ast.Attribute(value=ast.Attribute(attr="__class__"), attr=name):
            return name
    return ""


_READERS: Mapping[str, Callable[[bytes | None], Iterator[str]]] = {
    "python": _state,
    **dict.fromkeys(("javascript", "typescript", "tsx"), _state_of_script),
}
