"""Finds edited files that no longer parse, and functions by their qualified names. For Python, two
parsers must agree: that of this interpreter, which is exact for one version, and tree-sitter's,
which reads all. If the target has this version of Python, its parser alone decides.
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent.patching.file_text import FileText, Spliced
from agent.patching.matching import Match
from agent.patching.refusals import Miss
from agent.repository import language_of
from agent.shared.files import parse_toml
from agent.types import ChunkKind, FileChange, SyntaxProblem

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

    from agent.retrieval.index import Piece


# Macros make valid C and C++ unreadable without its headers; a header may be either language.
_UNRELIABLE = frozenset({"c", "cpp"})

# "JSON with comments" by the programs that read these.
_COMMENTED_JSON = ("tsconfig", "jsconfig", "devcontainer", ".eslintrc", "settings", "launch")

# A larger file holds data or generated code, and is slow to parse.
_MAX_BYTES = 4 * 1024 * 1024

_Fault = tuple[int, str]  # line (1-based), message


def check_syntax(
    changes: Iterable[FileChange], *, exact: bool = False
) -> tuple[SyntaxProblem, ...]:
    """Return the syntax problems that the changes caused, one a file, in order of path.

    With `exact` the Python files are for this version of Python.
    """
    found = (_check(change, exact) for change in sorted(changes, key=lambda change: change.path))
    return tuple(problem for problem in found if problem is not None)


def parses(path: str, data: bytes) -> bool:
    """Whether a file parses. For Python this interpreter decides, which knows indentation."""
    if language_of(path) == "python":
        return _python_error(data) is None
    reader = _reader(path, data) if len(data) <= _MAX_BYTES else None
    return reader is None or reader(data) is None


def _check(change: FileChange, exact: bool) -> SyntaxProblem | None:
    if change.after is None or len(change.after) > _MAX_BYTES or change.after == change.before:
        return None
    reader = _reader(change.path, change.after)
    if reader is None:
        return None
    if exact and reader is _both_python:
        reader = _python_error
    found = reader(change.after)
    if found is None or (change.before is not None and reader(change.before) is not None):
        return None
    return SyntaxProblem(change.path, *found)


def _reader(path: str, data: bytes) -> Callable[[bytes], _Fault | None] | None:
    language = language_of(path, data[:128])
    if language == "python":
        return _both_python
    if language == "toml":
        return functools.partial(_data, parse_toml)
    name = PurePosixPath(path)
    if language == "json" and name.suffix == ".json":
        commented = name.name.startswith(_COMMENTED_JSON)
        return None if commented else functools.partial(_data, json.loads)
    from agent.retrieval.index import GRAMMARS  # loads numpy

    if language in GRAMMARS and language not in _UNRELIABLE:
        return functools.partial(_tree, language)
    return None


def _both_python(data: bytes) -> _Fault | None:
    exact = _python_error(data)
    if exact is None:
        return None
    return exact if b"\0" in data or _tree("python", data) is not None else None


def _python_error(data: bytes) -> _Fault | None:
    try:
        parse_python(data)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except ValueError as error:
        return 1, str(error)
    except (RecursionError, MemoryError):
        return None  # nested too deeply to tell
    return None


def _data(load: Callable[[bytes], object], data: bytes) -> _Fault | None:
    """Return the fault of a JSON or TOML file."""
    try:
        load(data)
    except RecursionError:
        return None  # nested too deeply to tell
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        return int(line[1]) if line else 1, str(error)
    return None


def _tree(language: str, data: bytes) -> _Fault | None:
    parser = _parser(language)
    root = parser.parse(data).root_node if parser else None
    if root is None or not root.has_error:
        return None
    node = next(_errors(root), root)
    line = node.start_point[0] + 1
    if node.is_missing:
        return line, f"missing {node.type!r}"
    text = (node.text or b"").decode("utf-8", "replace").strip().splitlines()
    return line, f"cannot be parsed near {text[0][:60]!r}" if text else "cannot be parsed"


def _errors(root: Node) -> Iterator[Node]:
    """Return error and missing nodes in order, without recursion: trees may be deep."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            yield node
        if node.has_error:
            pending.extend(reversed(node.children))


@functools.cache
def _parser(language: str) -> Parser | None:
    from agent.retrieval.index import GRAMMARS, make_parser

    return make_parser(GRAMMARS[language])


# Bytes of one file, and of all that are parsed for one reply (2 MB take a second in the slowest
# grammar). Files beyond these limits are not checked, and tiers that rely on it are not used.
MAX_PARSED = 2 * 1024 * 1024
_MAX_IN_ALL = 6 * 1024 * 1024


@dataclass(slots=True)
class Checker:
    """Checks whether edits keep files intact, and remembers each state of a file."""

    left: int = _MAX_IN_ALL  # bytes that may still be parsed
    _known: dict[tuple[str, bytes], bool] = field(default_factory=dict)

    def affords(self, data: bytes) -> bool:
        """Whether a file of this size can be checked."""
        return len(data) <= min(MAX_PARSED, self.left)

    def intact(self, path: str, file: FileText, match: Match) -> bool:
        """Whether a file that parses still does so after a match. True if it cannot be checked."""
        if not self.affords(file.data):
            return True
        new = file.splice(match.start, match.end, match.replacement)
        if not isinstance(new, Spliced):
            return True  # the caller reports this
        return self._parses(path, new.data) or not self._parses(path, file.data)

    def _parses(self, path: str, data: bytes) -> bool:
        key = (path, data)
        if key not in self._known:
            affords = self.affords(data)
            self.left -= len(data) if affords else 0
            self._known[key] = parses(path, data) if affords else True
        return self._known[key]


# Up to Python 3.11.7 and 3.12.1 the parser counts the depth of all threads together and raises
# SystemError when two of them differ (https://github.com/python/cpython/issues/106905). Warning
# filters are shared by all threads too.
_ONE_AT_A_TIME = threading.Lock()


def parse_python(source: str | bytes) -> ast.Module:
    """Return the syntax tree without printing warnings. Raises what `ast.parse` raises."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


# Names that a refusal lists.
_SHOWN = 12

# A line of a comment in the languages of the outlines; `#[` and `#!` are attributes of Rust.
_COMMENT = re.compile(r"\s*(?://|/\*|\*|#(?![\[!]))")


@dataclass(frozen=True, slots=True)
class SymbolSite:
    """A function in a text: its lines (1-based, inclusive) and its offsets."""

    first: int
    last: int
    start: int
    end: int


def find_symbol(text: str, language: str, symbol: str) -> SymbolSite | Miss:
    """Return where a function stands. A name without its class is enough if only one fits."""
    from agent.retrieval.index import TreeSitterChunker  # loads numpy

    pieces = TreeSitterChunker().pieces(text, language)
    functions = [piece for piece in pieces if piece.kind in (ChunkKind.FUNCTION, ChunkKind.METHOD)]
    name = symbol.strip().replace("::", ".").removesuffix("()")
    matches = [piece for piece in functions if piece.symbol == name]
    if not matches and "." not in name:
        matches = [piece for piece in functions if piece.symbol.endswith(f".{name}")]
    if len(matches) == 1:
        return _site(text, matches[0])
    if matches:
        lines = ", ".join(f"{piece.symbol} at line {piece.start}" for piece in matches[:_SHOWN])
        reason = f"{name} is defined {len(matches)} times ({lines})"
        return Miss("ambiguous", reason, advice='use "search" and "replace" for it')
    names = ", ".join(sorted({piece.symbol for piece in functions})[:_SHOWN])
    reason = f"there is no function {name} in the file; it has {names or 'none'}"
    return Miss("no-match", reason, advice="name a whole function, or use a search text")


def _site(text: str, piece: Piece) -> SymbolSite:
    lines, last = text.split("\n"), piece.end
    while last > piece.start and not lines[last - 1].strip():
        last -= 1  # blank lines below the function stay
    start = sum(len(line) + 1 for line in lines[: piece.start - 1])
    size = sum(len(line) + 1 for line in lines[piece.start - 1 : last])
    return SymbolSite(piece.start, last, start, min(start + size, len(text)))


def fitted(old: str, new: str) -> str:
    """Return a new function with the indentation, line end and comments above of the old one."""
    lines = new.strip("\n").split("\n")
    above = "".join(itertools.takewhile(_COMMENT.match, old.splitlines(keepends=True)))
    above = "" if _COMMENT.match(lines[0]) else above
    margin, given = _indent(old[len(above) :].split("\n")), _indent(lines)
    if margin != given and all(line.startswith(given) for line in lines if line.strip()):
        lines = [margin + line[len(given) :] if line.strip() else line for line in lines]
    return above + "\n".join(lines) + ("\n" if old.endswith("\n") else "")


def _indent(lines: Sequence[str]) -> str:
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]
