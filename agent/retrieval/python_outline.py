"""The outline of Python files without a syntax tree, which takes five times as long to make.

Where a file is laid out as nearly all are, its functions and classes can be read off its lines:
a header begins a logical line, and a block ends before the first line that is indented less. What
keeps physical lines from being logical ones are strings, brackets, comments and continued lines;
regular expressions pass over these as a whole, without a step of Python for each.

Tree-sitter stays the reference and the fallback. Of a file that it parses without an error the
definitions found here are the very same as those of `outline.Outliner`. Of a file where that is
not certain (tabs in an indentation, a quote or bracket left open, a header of an unusual form,
characters that mean nothing in Python) none are given, and a tree has to be made.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache

from agent.retrieval.outline import MAX_DEPTH, Definition, qualified, signature_of
from agent.types import ChunkKind

_USUAL_BRACKETS = 1  # in brackets: patterns pass over so many, deeper ones are counted singly
_HEADER_BRACKETS = 4  # in the brackets of a header
_MAX_INDENT = 60  # columns: bounds the patterns that are compiled and kept

_POSSESSIVE = sys.version_info >= (3, 11, 5)
"""Whether possessive repetition matches what it should (before: CPython's issue 106052)."""

# ------------------------------------------------------------------------------------- the patterns
# All repetition is possessive (`*+`): what has been passed over is never looked at again, so that
# the time is linear in the length of any text.


def _strings(quote: str) -> str:
    """Strings in these quotes, formatted ones (`f"..."`) as well."""
    return f"{_plain(quote)}|{quote}(?:{_formatted(quote)})"


def _plain(quote: str) -> str:
    """Not formatted ones. A backslash keeps the next character in, in raw strings too."""
    lone = f"{quote}(?!{quote * 2})"
    short = rf"(?!{quote * 2})[^{quote}\\\n]*+(?:\\[\s\S][^{quote}\\\n]*+)*+{quote}"
    long = rf"{quote * 2}[^{quote}\\]*+(?:(?:\\[\s\S]|{lone})[^{quote}\\]*+)*+{quote * 3}"
    return rf"{quote}(?<![fFtT]{quote})(?<![fFtT][rR]{quote})(?:{short}|{long})"


def _formatted(quote: str) -> str:
    """What follows the first quote of a formatted one, unless a field of it holds the same quotes
    (Python 3.12).
    """
    lone = f"{quote}(?!{quote * 2})"
    escaped = r"\\(?:[^{]|(?=\{))|\{\{"
    field, fields = _field(rf"[^{quote}{{}}\n]"), _field(rf"(?:[^{quote}{{}}]|{lone})")
    short = rf"(?:[^{quote}\\\n{{]++|{escaped}|{field})*+"
    long = rf"(?:[^{quote}\\{{]++|{lone}|{escaped}|{fields})*+"
    return rf"(?!{quote * 2}){short}{quote}|{quote * 2}{long}{quote * 3}"


def _field(part: str) -> str:
    """A replacement field, which may hold others in its format."""
    return rf"\{{(?:{part}|\{{{part}*+\}})*+\}}"


_SPACES = r"\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff"  # that Python does not know
_FOREIGN = rf"\x00-\x08\x0b-\x1f\x7f-\xa0$?!`{_SPACES}"  # in no program outside strings, but for !=
_MARKS = r"\"'#\\()\[\]{}\n" + _FOREIGN
_CODE = rf"[^{_MARKS}]++|!="
_PLAIN_STRING = f"{_plain(chr(34))}|{_plain(chr(39))}"
_STRING = f"{_strings(chr(34))}|{_strings(chr(39))}"
_COMMENT = r"\#[^\n\r]*+"


def _brackets(depth: int, string: str) -> str:
    """A pair of brackets with all in it, which may be `depth` more of them inside one another."""
    inner = f"|{_brackets(depth - 1, string)}" if depth else ""
    return rf"[(\[{{](?:{_CODE}|\\?\n|{string}|{_COMMENT}{inner})*+[)\]}}]"


_WORDS = f"{_CODE}|{_STRING}|{_brackets(_USUAL_BRACKETS, _STRING)}"
_PARAMETERS = _brackets(_HEADER_BRACKETS, _PLAIN_STRING)  # formatted ones: hardly ever
_REST = rf"\ *+(?:{_COMMENT})?+\n"  # of a line that says nothing more
_SILENT = r"[ \t]*+(?:\n|\Z)|\ *+\#"  # lines whose indentation means nothing
_DEFINES = r"(?:def|class|async)\b"
_JOINT = rf"\\\n[ \t]*+(?![\#@\\]|{_DEFINES})"


def _lines(like: str, group: str = "") -> str:
    """From anywhere between two words to the first line that neither begins `like` this nor says
    nothing. The group is empty: where the last line ends that is no comment. Ends, too, where lines
    are joined of which one says nothing or looks like a comment or definition: parsers read the
    indentation there in ways of their own.
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
"""Decorators, a header, and of a function its lines, too, up to the first indented less than its
`body`. `header` and `said` are empty: where the header ends, and the last of its lines that is no
comment. Without a `body` all there is stands on the header's own line.
"""

_OTHER_LINE = re.compile(rf"\n(\ *+)(?!@|{_DEFINES})(?=[^\s\\])")

# Compiled when they are needed: a process that cuts one file needs few of them.


@cache
def _suite() -> re.Pattern[str]:
    """To the next line that says anything."""
    return re.compile(_lines("(?!)"))


@cache
def _block(body: int) -> re.Pattern[str]:
    """To the first line that is indented less than `body`."""
    return re.compile(_lines(rf"\ {{{body}}}"))


@cache
def _between(body: int) -> re.Pattern[str]:
    """To the first line that is indented less or begins a definition."""
    return re.compile(_lines(rf"\ {{{body}}}(?!\ *+(?:[@\t]|{_DEFINES}))"))


@cache
def _tail(body: int) -> re.Pattern[str]:
    """From the last word of a block to its end: comments belong to it up to one indented less."""
    blank = r"(?:\n[ \t]*+(?=\n))*+"
    return re.compile(rf"[^\n]*+(?:{blank}\n\ {{{body}}}[ \t]*+#[^\n]*+)*+")


@cache
def _mark() -> re.Pattern[str]:
    """A bracket, or what brackets in it do not count; the group is None where nobody can tell."""
    return re.compile(
        rf"(?P<opening>[(\[{{])|(?P<closing>[)\]}}])|(?P<passed>{_STRING}|{_COMMENT}|!=|\\\n)"
        rf"|[\"'\\{_FOREIGN}]"
    )


# --------------------------------------------------------------------------------------- the reader


def python_outline(text: str) -> list[Definition] | None:
    """What `outline.Outliner` finds in a Python file; None where that takes a tree to say."""
    if not _POSSESSIVE or text.startswith("\ufeff") or not _is_unicode(text):
        return None
    reader = _Reader(text)
    return reader.definitions() if reader.read() else None


def _is_unicode(text: str) -> bool:
    """Whether it has no lone surrogates, which a parser is not shown."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class _Scope:
    """The module, or a class whose end has not been seen: its number among the definitions, its
    name, the indentation of its body.
    """

    number: int | None
    symbol: str
    body: int


class _Reader:
    """Goes through a text from one line of interest to the next.

    Of each definition so far `_begun` holds start, symbol, kind, signature and parent, `_ends` the
    last row. `_open` are the scopes that a line is in, outermost first. `_said` is where the last
    line ended that is no comment of the module or of a class.
    """

    def __init__(self, text: str) -> None:
        self._text = "\n" + text  # so that every line follows a line end
        self._begun: list[tuple[int, str, ChunkKind, str, int | None]] = []
        self._ends: list[int] = []
        self._open = [_Scope(None, "", 0)]
        self._said = 0
        self._counted, self._row = 1, 0  # rows above a position

    def definitions(self) -> list[Definition]:
        """What was found, in order."""
        return [
            Definition(start, end, symbol, kind, signature, parent)
            for (start, symbol, kind, signature, parent), end in zip(
                self._begun, self._ends, strict=True
            )
        ]

    def read(self) -> bool:
        """Whether all of the text was understood."""
        at: int | None = self._pass_over(_between(0), 0)
        while at is not None and at < len(self._text):
            at = self._line(at)
        self._close(0, len(self._text))
        return at is not None

    def _line(self, at: int) -> int | None:
        """Past the lines from here to the next of interest; None when they are not understood."""
        if header := _HEADER.match(self._text, at):
            return self._define(header)
        if line := _OTHER_LINE.match(self._text, at):
            self._close(len(line[1]), at)
            return self._pass_over(_between(self._open[-1].body), line.end())
        return None

    def _define(self, header: re.Match[str]) -> int | None:
        """Add what a header defines, and go on to the next line of interest."""
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
        """Add what is known of a definition before its end; its number."""
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
        """Past a definition of one logical line; None when nothing follows its header."""
        self._said = start
        at = self._pass_over(_suite(), start)
        self._ends[number] = self._row_of(self._said)
        return at if self._text[start : self._said].strip() else None

    def _enter_class(self, number: int, at: int, body: int) -> int:
        """From the end of its header to the first line of interest in it."""
        self._said = at
        self._open.append(_Scope(number, self._begun[number][1], body))
        return self._pass_over(_between(body), at)

    def _skip_function(self, number: int, header: re.Match[str], body: int) -> int:
        """Past a function's block."""
        at, self._said = header.end(), max(header.end("header"), header.end("said"))
        if not self._text.startswith("\n", at):  # brackets in brackets in brackets
            at = self._pass_over(_block(body), at)
        self._said = self._end_of_block(body, at)
        self._ends[number] = self._row_of(self._said)
        return at

    def _pass_over(self, lines: re.Pattern[str], at: int) -> int:
        """To the line that a pattern of `_block` or `_between` ends before."""
        while True:
            passed = lines.match(self._text, at)
            assert passed is not None, "matches nothing, too"
            self._said = max(self._said, passed.end(1))
            at = self._over_brackets(passed.end())
            if at == passed.end():
                return at
            self._said = at

    def _over_brackets(self, at: int) -> int:
        """To the end of what brackets hold that begin here, if any do and they end."""
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
        """How many lines of comment stand directly above a position."""
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
        """Where a block ends, at the last word or with comments before the line at a position."""
        if self._text.find("#", self._said, at) < 0:
            return self._said
        tail = _tail(body).match(self._text, self._said)
        assert tail is not None, "matches nothing, too"
        return tail.end()

    def _row_of(self, at: int) -> int:
        """The row of a position, which is none before the last one asked for."""
        self._row += self._text.count("\n", self._counted, at)
        self._counted = at
        return self._row
