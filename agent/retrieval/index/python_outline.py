"""The outline of Python files without a syntax tree, five times as fast as with one.

In almost all files, functions and classes can be found from the layout of lines: a header begins a
logical line, and a block ends before the first line that is indented less. Physical lines differ
from logical lines because of strings, brackets, comments and continued lines. Regular expressions
skip each of these in one step.

Tree-sitter is the reference and the fallback. For a file that it parses without an error, the
definitions found here equal those of `outline.Outliner`. If that is not certain (tabs in an
indentation, an open quote or bracket, a header of an unusual form, characters that are not Python),
the result is None and the caller builds a tree.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache

from agent.retrieval.index.outline import MAX_DEPTH, Definition, qualified, signature_of
from agent.types import ChunkKind

_USUAL_BRACKETS = 1  # nested brackets that patterns skip; deeper ones are counted one by one
_HEADER_BRACKETS = 4  # nested brackets in a header
_MAX_INDENT = 60  # columns: limits the number of compiled patterns

_POSSESSIVE = sys.version_info >= (3, 11, 5)
"""Whether possessive repetition works correctly (older versions have CPython's issue 106052)."""

# ------------------------------------------------------------------------------------- the patterns
# All repetition is possessive (`*+`): skipped text is never read again, so the time is linear in
# the length of any text.


def _strings(quote: str) -> str:
    """Return a pattern of strings in these quotes, including formatted ones (`f"..."`)."""
    return f"{_plain(quote)}|{quote}(?:{_formatted(quote)})"


def _plain(quote: str) -> str:
    """Return a pattern of strings that are not formatted.

    A backslash escapes the next character, in raw strings too.
    """
    lone = f"{quote}(?!{quote * 2})"
    short = rf"(?!{quote * 2})[^{quote}\\\n]*+(?:\\[\s\S][^{quote}\\\n]*+)*+{quote}"
    long = rf"{quote * 2}[^{quote}\\]*+(?:(?:\\[\s\S]|{lone})[^{quote}\\]*+)*+{quote * 3}"
    return rf"{quote}(?<![fFtT]{quote})(?<![fFtT][rR]{quote})(?:{short}|{long})"


def _formatted(quote: str) -> str:
    """Return a pattern of the rest of a formatted string after its first quote.

    It does not match if a field holds the same quotes (Python 3.12).
    """
    lone = f"{quote}(?!{quote * 2})"
    escaped = r"\\(?:[^{]|(?=\{))|\{\{"
    field, fields = _field(rf"[^{quote}{{}}\n]"), _field(rf"(?:[^{quote}{{}}]|{lone})")
    short = rf"(?:[^{quote}\\\n{{]++|{escaped}|{field})*+"
    long = rf"(?:[^{quote}\\{{]++|{lone}|{escaped}|{fields})*+"
    return rf"(?!{quote * 2}){short}{quote}|{quote * 2}{long}{quote * 3}"


def _field(part: str) -> str:
    """Return a pattern of a replacement field, whose format may hold other fields."""
    return rf"\{{(?:{part}|\{{{part}*+\}})*+\}}"


_SPACES = r"\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff"  # not spaces in Python
_FOREIGN = rf"\x00-\x08\x0b-\x1f\x7f-\xa0$?!`{_SPACES}"  # outside strings in no program, except !=
_MARKS = r"\"'#\\()\[\]{}\n" + _FOREIGN
_CODE = rf"[^{_MARKS}]++|!="
_PLAIN_STRING = f"{_plain(chr(34))}|{_plain(chr(39))}"
_STRING = f"{_strings(chr(34))}|{_strings(chr(39))}"
_COMMENT = r"\#[^\n\r]*+"


def _brackets(depth: int, string: str) -> str:
    """Return a pattern of a bracket pair with at most `depth` more levels inside."""
    inner = f"|{_brackets(depth - 1, string)}" if depth else ""
    return rf"[(\[{{](?:{_CODE}|\\?\n|{string}|{_COMMENT}{inner})*+[)\]}}]"


_WORDS = f"{_CODE}|{_STRING}|{_brackets(_USUAL_BRACKETS, _STRING)}"
_PARAMETERS = _brackets(_HEADER_BRACKETS, _PLAIN_STRING)  # formatted strings are very rare here
_REST = rf"\ *+(?:{_COMMENT})?+\n"  # the rest of a line without code
_SILENT = r"[ \t]*+(?:\n|\Z)|\ *+\#"  # lines whose indentation has no meaning
_DEFINES = r"(?:def|class|async)\b"
_JOINT = rf"\\\n[ \t]*+(?![\#@\\]|{_DEFINES})"


def _lines(like: str, group: str = "") -> str:
    """Return a pattern that skips to the first line that is neither blank nor begins with `like`.

    It starts anywhere between two words. The empty group marks the end of the last line that is not
    a comment. The pattern also stops at joined lines of which one is blank or looks like a comment
    or definition, because parsers read the indentation there in their own ways.
    """
    words = rf"(?:{_WORDS})({group})"
    return rf"(?:\n(?={like}|{_SILENT})[ \t]*+(?!\\)|{words}|{_COMMENT}|{_JOINT})*+"


_HEADER = re.compile(
    rf"""
    \n(?P<indent>\ *+)
    (?:@(?:{_CODE}|{_STRING}|{_COMMENT}|[()\[\]{{}}]|\\?\n(?!\ *+{_DEFINES}))*+\n\ *+)?+
    (?:class|(?P<function>(?:async\ ++)?def))\ ++(?P<name>\w++)(?=[\ (\[:])
    (?:[^\w:\->{_MARKS}]++|(?!lambda\b)\w++|->|{_PLAIN_STRING}|{_PARAMETERS})*+
    :(?P<header>)(?![ \t]*+\\)
    (?:(?=(?:{_REST})++(?P<body>\ *+)[^\s\#\\])(?(function){_lines("(?P=body)", "?P<said>")}))?+
    """,
    re.VERBOSE,
)
"""Decorators and a header; for a function also its lines up to the first indented less than `body`.

The groups `header` and `said` are empty: they mark the end of the header, and the end of the last
line that is not a comment. Without a `body`, everything is on the header's own line.
"""

_OTHER_LINE = re.compile(rf"\n(\ *+)(?!@|{_DEFINES})(?=[^\s\\])")

# Compiled on first use: a process that cuts one file needs few of them.


@cache
def _suite() -> re.Pattern[str]:
    """Match up to the next line that is neither blank nor a comment."""
    return re.compile(_lines("(?!)"))


@cache
def _block(body: int) -> re.Pattern[str]:
    """Match up to the first line that is indented less than `body`."""
    return re.compile(_lines(rf"\ {{{body}}}"))


@cache
def _between(body: int) -> re.Pattern[str]:
    """Match up to the first line that is indented less or begins a definition."""
    return re.compile(_lines(rf"\ {{{body}}}(?!\ *+(?:[@\t]|{_DEFINES}))"))


@cache
def _tail(body: int) -> re.Pattern[str]:
    """Match from the last word of a block to its end.

    Comments belong to the block up to the first one that is indented less.
    """
    blank = r"(?>(?:\n[ \t]*+(?=\n))*)"
    return re.compile(rf"[^\n]*+(?:{blank}\n\ {{{body}}}[ \t]*+#[^\n]*+)*+")


@cache
def _mark() -> re.Pattern[str]:
    """Match a bracket, or text inside which brackets do not count.

    The group is None if the text is ambiguous.
    """
    return re.compile(
        rf"(?P<opening>[(\[{{])|(?P<closing>[)\]}}])|(?P<passed>{_STRING}|{_COMMENT}|!=|\\\n)"
        rf"|[\"'\\{_FOREIGN}]"
    )


# --------------------------------------------------------------------------------------- the reader


def python_outline(text: str) -> list[Definition] | None:
    """Return the definitions that `outline.Outliner` would find; None if a tree is needed."""
    if not _POSSESSIVE or text.startswith("\ufeff") or not _is_unicode(text):
        return None
    reader = _Reader(text)
    return reader.definitions() if reader.read() else None


def _is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogates, which cannot be passed to a parser."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class _Scope:
    """The module, or a class that is still open.

    It holds its number among the definitions, its name, and the indentation of its body.
    """

    number: int | None
    symbol: str
    body: int


class _Reader:
    """Reads a text from one relevant line to the next.

    For each definition so far, `_begun` holds start, symbol, kind, signature and parent, and
    `_ends` the last row. `_open` are the scopes around the current line, outermost first. `_said`
    is the end of the last line of the module or a class that is not a comment.
    """

    def __init__(self, text: str) -> None:
        self._text = "\n" + text  # so that every line follows a line end
        self._begun: list[tuple[int, str, ChunkKind, str, int | None]] = []
        self._ends: list[int] = []
        self._open = [_Scope(None, "", 0)]
        self._said = 0
        self._counted, self._row = 1, 0  # number of rows above a position

    def definitions(self) -> list[Definition]:
        """Return the definitions found, in order."""
        return [
            Definition(start, end, symbol, kind, signature, parent)
            for (start, symbol, kind, signature, parent), end in zip(
                self._begun, self._ends, strict=True
            )
        ]

    def read(self) -> bool:
        """Read the text. Returns whether all of it was understood."""
        at: int | None = self._pass_over(_between(0), 0)
        while at is not None and at < len(self._text):
            at = self._line(at)
        self._close(0, len(self._text))
        return at is not None

    def _line(self, at: int) -> int | None:
        """Skip from here to the next relevant line; None if the lines are not understood."""
        if header := _HEADER.match(self._text, at):
            return self._define(header)
        if line := _OTHER_LINE.match(self._text, at):
            self._close(len(line[1]), at)
            return self._pass_over(_between(self._open[-1].body), line.end())
        return None

    def _define(self, header: re.Match[str]) -> int | None:
        """Add the definition of a header and go on to the next relevant line."""
        indent, body, name = header.group("indent", "body", "name")
        sound = body is None or len(indent) < len(body) <= _MAX_INDENT
        if not sound or not name.isidentifier() or len(self._open) > MAX_DEPTH:
            return None
        self._close(len(indent), header.start())
        number = self._begin(header)
        if body is None:
            return self._skip_suite(number, header.end())
        if header["function"] is None:
            return self._enter_class(number, header.end(), len(body))
        return self._skip_function(number, header, len(body))

    def _begin(self, header: re.Match[str]) -> int:
        """Add a definition whose end is not known yet; return its number."""
        scope = self._open[-1]
        start = self._row_of(header.start() + 1) - self._comments_above(header.start())
        signature = signature_of(self._text[header.start() + 1 : header.end("header")])
        if header["function"] is None:
            kind = ChunkKind.CLASS
        else:
            kind = ChunkKind.FUNCTION if scope.number is None else ChunkKind.METHOD
        symbol = qualified(scope.symbol, header["name"])
        self._begun.append((start, symbol, kind, signature, scope.number))
        self._ends.append(start)
        return len(self._ends) - 1

    def _skip_suite(self, number: int, start: int) -> int | None:
        """Skip a definition of one logical line; None if nothing follows its header."""
        self._said = start
        at = self._pass_over(_suite(), start)
        self._ends[number] = self._row_of(self._said)
        return at if self._text[start : self._said].strip() else None

    def _enter_class(self, number: int, at: int, body: int) -> int:
        """Go from the end of a class's header to the first relevant line in it."""
        self._said = at
        self._open.append(_Scope(number, self._begun[number][1], body))
        return self._pass_over(_between(body), at)

    def _skip_function(self, number: int, header: re.Match[str], body: int) -> int:
        """Skip a function's block."""
        at, self._said = header.end(), max(header.end("header"), header.end("said"))
        if not self._text.startswith("\n", at):  # brackets nested too deeply for the pattern
            at = self._pass_over(_block(body), at)
        self._said = self._end_of_block(body, at)
        self._ends[number] = self._row_of(self._said)
        return at

    def _pass_over(self, lines: re.Pattern[str], at: int) -> int:
        """Return the start of the line that ends a match of `_block` or `_between`."""
        while True:
            passed = lines.match(self._text, at)
            assert passed is not None, "matches nothing, too"
            self._said = max(self._said, passed.end(1))
            at = self._over_brackets(passed.end())
            if at == passed.end():
                return at
            self._said = at

    def _over_brackets(self, at: int) -> int:
        """Return the end of the brackets that begin here, if any do and they are closed."""
        if not self._text.startswith(("(", "[", "{"), at):
            return at
        depth = 0
        for mark in _mark().finditer(self._text, at):
            kind = mark.lastgroup
            depth += (kind == "opening") - (kind == "closing")
            if kind is None or not depth:
                return at if kind is None else mark.end()
        return at

    def _comments_above(self, at: int) -> int:
        """Return the number of comment lines directly above a position."""
        gap = self._text[self._said : at]
        if "#" not in gap:
            return 0
        lines = gap.split("\n")[:0:-1]
        return next((n for n, line in enumerate(lines) if not line.strip()), len(lines))

    def _close(self, indent: int, at: int) -> None:
        """End the classes whose body is indented more than the line at a position."""
        while self._open[-1].body > indent:
            ended = self._open.pop()
            assert ended.number is not None, "the module's body is indented least"
            self._ends[ended.number] = self._row_of(self._end_of_block(ended.body, at))

    def _end_of_block(self, body: int, at: int) -> int:
        """Return the end of a block: its last word, or the comments before a position."""
        if self._text.find("#", self._said, at) < 0:
            return self._said
        tail = _tail(body).match(self._text, self._said)
        assert tail is not None, "matches nothing, too"
        return tail.end()

    def _row_of(self, at: int) -> int:
        """Return the row of a position. Positions must not decrease between calls."""
        self._row += self._text.count("\n", self._counted, at)
        self._counted = at
        return self._row
