"""The test command of a `noxfile.py`, read from its syntax tree and never executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from agent.patching.python_source import parse_python
from agent.protocols import Snapshot
from agent.validation.frameworks.configured import Configured

_FILE = "noxfile.py"

# Larger files are no configuration; the parser would take its time.
_MOST_CHARS = 200_000

_RUN = ("run", "run_always")


def read_nox(snapshot: Snapshot) -> Iterator[Configured]:
    """What the sessions run, those first whose name speaks of tests, then in order."""
    if _FILE not in snapshot.files:
        return
    tree = _parsed(snapshot.text(_FILE))
    sessions = [node for node in tree.body if _is_session(node)] if tree else []
    functions = [node for node in sessions if isinstance(node, ast.FunctionDef)]
    for function in sorted(functions, key=lambda node: ("test" not in node.name, node.lineno)):
        yield from _commands(function)


def _parsed(text: str) -> ast.Module | None:
    if len(text) > _MOST_CHARS:
        return None
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_session(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    return any("session" in ast.dump(decorator) for decorator in node.decorator_list)


def _commands(function: ast.FunctionDef) -> Iterator[Configured]:
    """Calls of `session.run` with words that stand in the file; others are passed over."""
    name = function.args.args[0].arg if function.args.args else "session"
    cwd = "."
    for call in _calls(function):
        target = call.func
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
            continue
        if target.value.id != name:
            continue
        words = _words(call.args)
        if target.attr == "chdir" and words:
            cwd = words[0]
        if target.attr in _RUN and words:
            yield Configured(words, f"{_FILE}, session {function.name}", _environment(call), cwd)


def _calls(function: ast.FunctionDef) -> list[ast.Call]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _words(arguments: Sequence[ast.expr]) -> tuple[str, ...] | None:
    """The words; None where one is computed. What follows from posargs is left out."""
    words: list[str] = []
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            words.extend(_default_of(argument.value))
        elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            words.append(argument.value)
        else:
            return None
    return tuple(words)


def _default_of(value: ast.expr) -> Iterator[str]:
    """`*(session.posargs or ["tests"])`: the words of the list."""
    options = value.values if isinstance(value, ast.BoolOp) else [value]
    for option in options:
        if isinstance(option, ast.List | ast.Tuple):
            for element in option.elts:
                if isinstance(element, ast.Constant) and isinstance(element.value, str):
                    yield element.value


def _environment(call: ast.Call) -> dict[str, str]:
    for keyword in call.keywords:
        if keyword.arg == "env" and isinstance(keyword.value, ast.Dict):
            pairs = zip(keyword.value.keys, keyword.value.values, strict=True)
            return {
                key.value: value.value
                for key, value in pairs
                if isinstance(key, ast.Constant)
                and isinstance(value, ast.Constant)
                and isinstance(key.value, str)
                and isinstance(value.value, str)
            }
    return {}
