"""Unified diffs as HTML lines with numbers, coloured by Pygments. Other texts are shown plain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup, escape

from agent.repository.unified_diff import DiffError, DiffHunk, DiffLine, FileDiff, read_diff

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

Kind = Literal["added", "removed", "same", "hunk", "meta"]
_KINDS: dict[str, Kind] = {"+": "added", "-": "removed", " ": "same"}
_NO_NEWLINE = escape("\\ No newline at end of file")
_NAMES = ("diff --git ", "index ")  # header lines that repeat the path


@dataclass(frozen=True, slots=True)
class ShownLine:
    """One line without its sign. `old` and `new` are its 1-based numbers on either side."""

    kind: Kind
    html: Markup
    old: int | None = None
    new: int | None = None

    @property
    def sign(self) -> str:
        """The first character of the line in a diff."""
        return {"added": "+", "removed": "-"}.get(self.kind, " ")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """The changes of one file."""

    path: str
    lines: tuple[ShownLine, ...]

    @property
    def added(self) -> int:
        """The number of added lines."""
        return sum(line.kind == "added" for line in self.lines)

    @property
    def removed(self) -> int:
        """The number of removed lines."""
        return sum(line.kind == "removed" for line in self.lines)


def diff_files(diff: str) -> tuple[ShownFile, ...]:
    """Return the files of a diff in order. A text that is not a diff becomes one file."""
    try:
        files = read_diff(diff.encode("utf-8", "surrogatepass"), lenient=True)
    except DiffError:
        files = (FileDiff(1, text=diff.encode("utf-8", "surrogatepass").split(b"\n")),)
    shown = (ShownFile(file.new or file.old or "", tuple(_lines(file))) for file in files)
    return tuple(file for file in shown if file.lines)


def _lines(file: FileDiff) -> Iterator[ShownLine]:
    for line in map(_text, file.text):
        if line and not line.startswith(_NAMES):
            yield ShownLine("meta", escape(line))
    for hunk in file.hunks:
        yield ShownLine("hunk", escape(_text(hunk.header)))
        yield from _hunk_lines(hunk, file.new or file.old or "")


def _hunk_lines(hunk: DiffHunk, path: str) -> Iterator[ShownLine]:
    for line, html in zip(hunk.lines, _coloured(hunk.lines, path), strict=True):
        yield ShownLine(_KINDS[line.mark], html, line.old, line.new)
        if not line.text.endswith(b"\n"):
            yield ShownLine("meta", _NO_NEWLINE)


def _coloured(lines: Sequence[DiffLine], path: str) -> list[Markup]:
    """Return the HTML of each line. Each side of the change is coloured as one text."""
    html: dict[int, Markup] = {}
    for removed in (False, True):
        numbers = [n for n, line in enumerate(lines) if (line.mark == "-") is removed]
        texts = coloured(path, [_text(lines[n].text.removesuffix(b"\n")) for n in numbers])
        html.update(zip(numbers, texts, strict=True))
    return [html[n] for n in range(len(lines))]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


# Lexers by suffix only: the model chooses the file names, and guessing would run all lexers.
_LEXERS = MappingProxyType(
    {
        ".bash": "bash", ".c": "c", ".cc": "cpp", ".cpp": "cpp", ".cs": "csharp", ".go": "go",
        ".h": "c", ".hpp": "cpp", ".java": "java", ".js": "javascript", ".json": "json",
        ".jsx": "javascript", ".kt": "kotlin", ".php": "php", ".py": "python", ".pyi": "python",
        ".rb": "ruby", ".rs": "rust", ".sh": "bash", ".toml": "toml", ".ts": "typescript",
        ".tsx": "typescript", ".yaml": "yaml", ".yml": "yaml",
    }
)  # fmt: skip

# Limits for Pygments, whose lexers expect the short lines and texts that people write.
_LONGEST_LINE = 2000
_LONGEST_TEXT = 64 * 1024


def coloured(path: str, lines: Sequence[str]) -> list[Markup]:
    """Return each line as escaped HTML, with words in `<span class=yk|ys|yc|yn>`."""
    lexer = _lexer(path)
    text = "\n".join(lines)
    if (
        lexer is None
        or text.startswith("\ufeff")  # Pygments leaves a byte order mark out
        or len(text) > _LONGEST_TEXT
        or max(map(len, lines), default=0) > _LONGEST_LINE
    ):
        return [escape(line) for line in lines]
    found = _by_line(lexer, text)
    if len(found) != len(lines):  # a lexer that changes lines cannot be used
        return [escape(line) for line in lines]
    return found


def _lexer(path: str) -> Lexer | None:
    name = _LEXERS.get(PurePosixPath(path).suffix.lower())
    if name is None:
        return None
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


_QUOTES = ('"""', "'''")


def _tokens(lexer: Lexer, text: str) -> list[tuple[_TokenType, str]]:
    """Return the tokens. A hunk of Python may begin inside a docstring: it is read both ways, and
    that way counts in which fewer words stand side by side as names, as in prose.
    """
    plain = list(lexer.get_tokens(text))
    if lexer.name != "Python":
        return plain
    readings = [plain]
    for quote in _QUOTES:
        closing = "" if quote in text else f"\n{quote}"
        inside = list(lexer.get_tokens(f"{quote}\n{text}{closing}"))
        readings.append(_cut(inside, len(quote) + 1, len(text)))
    return min(readings, key=_prose)


def _cut(
    tokens: Sequence[tuple[_TokenType, str]], start: int, length: int
) -> list[tuple[_TokenType, str]]:
    """Return the tokens of a part of the text."""
    place, kept = -start, []
    for token, value in tokens:
        part = value[max(0, -place) : max(0, length - place)]
        place += len(value)
        if part:
            kept.append((token, part))
    return kept


def _prose(tokens: Sequence[tuple[_TokenType, str]]) -> int:
    """Count the names that follow a name, and the characters that are no code."""
    from pygments.token import Error, Name, Whitespace

    count, after_name = 0, False
    for token, value in tokens:
        if token in Whitespace or (value.isspace() and "\n" not in value):
            continue
        is_name = token in Name and token not in Name.Decorator
        count += (is_name and after_name) + (token in Error)
        after_name = is_name
    return count


def _by_line(lexer: Lexer, text: str) -> list[Markup]:
    lines: list[list[Markup]] = [[]]
    for token, value in _tokens(lexer, text):
        kind = _kind(token)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append(_word(part, kind))
    return [Markup("").join(parts) for parts in lines]


def _word(text: str, kind: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(kind, text) if kind else escape(text)


def _kind(token: _TokenType) -> str:
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    if token in Comment or token in String.Doc:
        return "yc"
    if token in String or token in Number:
        return "ys"
    if token in Keyword or token is Operator.Word:
        return "yk"
    if token in Name.Function or token in Name.Class or token in Name.Decorator:
        return "yn"
    return ""
