"""Colours lines of code for HTML, by Pygments: four kinds of words, or none where nothing fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

# By suffix, and no guessing: names come from a model, and guessing runs every lexer there is.
_LEXERS = MappingProxyType(
    {
        ".bash": "bash", ".c": "c", ".cc": "cpp", ".cpp": "cpp", ".cs": "csharp", ".go": "go",
        ".h": "c", ".hpp": "cpp", ".java": "java", ".js": "javascript", ".json": "json",
        ".jsx": "javascript", ".kt": "kotlin", ".php": "php", ".py": "python", ".pyi": "python",
        ".rb": "ruby", ".rs": "rust", ".sh": "bash", ".toml": "toml", ".ts": "typescript",
        ".tsx": "typescript", ".yaml": "yaml", ".yml": "yaml",
    }
)  # fmt: skip

# Lexers are made for code that people write; longer lines and texts are not.
_LONGEST_LINE = 2000
_LONGEST_TEXT = 64 * 1024


def coloured(path: str, lines: Sequence[str]) -> list[Markup]:
    """Each line as HTML: words in `<span class=yk|ys|yc|yn>`, everything escaped."""
    lexer = _lexer(path)
    text = "\n".join(lines)
    if (
        lexer is None
        or len(text) > _LONGEST_TEXT
        or max(map(len, lines), default=0) > _LONGEST_LINE
    ):
        return [escape(line) for line in lines]
    found = _by_line(lexer, text)
    if len(found) != len(lines):  # a lexer that changes lines is not to be trusted with them
        return [escape(line) for line in lines]
    return found


def _lexer(path: str) -> Lexer | None:
    name = _LEXERS.get(PurePosixPath(path).suffix.lower())
    if name is None:
        return None
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


def _by_line(lexer: Lexer, text: str) -> list[Markup]:
    lines: list[list[Markup]] = [[]]
    for token, value in lexer.get_tokens(text):
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
