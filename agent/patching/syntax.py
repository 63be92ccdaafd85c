"""Finds edited files that no longer parse. In this process, without running anything of the target.

A patch is blamed only for what it broke: a file that did not parse before is not held against it.
For Python, two readers must agree: this interpreter's grammar, which is exact but of one version,
and tree-sitter's, which reads every version. Where they disagree the target's own interpreter is
the judge (`agent.validation.running.bench`). Other languages are read with tree-sitter.
"""

from __future__ import annotations

import functools
import importlib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent.patching.python_source import parse_python
from agent.repository.languages import language_of
from agent.retrieval.grammars import GRAMMARS
from agent.types import FileChange, SyntaxProblem

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Macros make valid C and C++ unreadable without its headers; a header may be either language.
_UNRELIABLE = frozenset({"c", "cpp"})

# "JSON with comments" by the programs that read these.
_COMMENTED_JSON = ("tsconfig", "jsconfig", "devcontainer", ".eslintrc", "settings", "launch")

# A file beyond this is data or generated, and slow to parse.
_MAX_BYTES = 4 * 1024 * 1024

_Found = tuple[int, str]  # line (1-based), message


def check_syntax(changes: Iterable[FileChange]) -> tuple[SyntaxProblem, ...]:
    """The problems that the changes brought, in order of path; at most one a file."""
    found = (_check(change) for change in sorted(changes, key=lambda change: change.path))
    return tuple(problem for problem in found if problem is not None)


def doubtful(changes: Iterable[FileChange]) -> tuple[str, ...]:
    """Python files, in order, that this interpreter refuses and `check_syntax` lets pass."""
    refused = [
        change.path
        for change in changes
        if change.after is not None
        and language_of(change.path) == "python"
        and _python_error(change.after) is not None
        and _check(change) is None
    ]
    return tuple(sorted(refused))


def parses(path: str, data: bytes) -> bool:
    """Whether a file's bytes parse, by the strictest reader at hand; true where there is none.

    For Python this interpreter alone decides: tree-sitter passes over most faults of indentation.
    """
    if language_of(path) == "python":
        return _python_error(data) is None
    reader = _reader(path, data) if len(data) <= _MAX_BYTES else None
    return reader is None or reader(data) is None


def _check(change: FileChange) -> SyntaxProblem | None:
    if change.after is None or len(change.after) > _MAX_BYTES or change.after == change.before:
        return None
    reader = _reader(change.path, change.after)
    if reader is None:
        return None
    found = reader(change.after)
    if found is None or (change.before is not None and reader(change.before) is not None):
        return None
    return SyntaxProblem(change.path, *found)


def _reader(path: str, data: bytes) -> Callable[[bytes], _Found | None] | None:
    """What finds the first problem of a file's bytes, by language; None: not checked."""
    language = language_of(path, data[:128])
    if language == "python":
        return _both_python
    if language == "toml":
        return _toml
    name = PurePosixPath(path)
    if language == "json" and name.suffix == ".json":
        return None if name.name.startswith(_COMMENTED_JSON) else _json
    if language in GRAMMARS and language not in _UNRELIABLE:
        return functools.partial(_tree, language)
    return None


def _both_python(data: bytes) -> _Found | None:
    exact = _python_error(data)
    if exact is None:
        return None
    return exact if b"\0" in data or _tree("python", data) is not None else None


def _python_error(data: bytes) -> _Found | None:
    try:
        parse_python(data)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except ValueError as error:
        return 1, str(error)
    except (RecursionError, MemoryError):
        return None  # nested too deeply to tell
    return None


def _json(data: bytes) -> _Found | None:
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        return error.lineno, error.msg
    except UnicodeDecodeError as error:
        return 1, str(error)
    except RecursionError:
        return None
    return None


def _toml(data: bytes) -> _Found | None:
    try:
        tomllib.loads(data.decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        line = getattr(error, "lineno", None)  # Python 3.14
        return line if isinstance(line, int) else _line_in(str(error)), str(error)
    except UnicodeDecodeError as error:
        return 1, str(error)
    except RecursionError:
        return None
    return None


def _line_in(message: str) -> int:
    """The number in "... (at line 3, column 5)"; 1 when it names the end of the document."""
    digits = message.rpartition("at line ")[2].partition(",")[0]
    return int(digits) if digits.isdigit() else 1


def _tree(language: str, data: bytes) -> _Found | None:
    """The first place that tree-sitter cannot read."""
    root = _parser(language).parse(data).root_node
    if not root.has_error:
        return None
    node = next(_errors(root), root)
    line = node.start_point[0] + 1
    if node.is_missing:
        return line, f"missing {node.type!r}"
    text = (node.text or b"").decode("utf-8", "replace").strip().splitlines()
    return line, f"cannot be parsed near {text[0][:60]!r}" if text else "cannot be parsed"


def _errors(root: Node) -> Iterator[Node]:
    """Error and missing nodes in the order of the text. A loop: trees may be deep."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            yield node
        if node.has_error:
            pending.extend(reversed(node.children))


@functools.cache
def _parser(language: str) -> Parser:
    import tree_sitter

    grammar = GRAMMARS[language]
    factory = getattr(importlib.import_module(grammar.module), grammar.factory)
    return tree_sitter.Parser(tree_sitter.Language(factory()))
