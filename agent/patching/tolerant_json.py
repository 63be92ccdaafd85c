"""A JSON parser that forgives what models get wrong, and nothing that would be a guess.

Beyond RFC 8259 it takes trailing commas, `//` and `/* */` comments, raw line breaks and tabs in
strings, single-quoted strings, `\\'`, and Python's `True`, `False` and `None`. Every such slip is
named in the result, so that a strict reader can decline it. What could be read in two ways is a
fault instead: an unknown escape (`\\d`: was `\\n` beside it meant as a line break?), a key given
twice with different values, an unescaped quote inside a string.

Linear time, no recursion deeper than `MAX_DEPTH`, no `eval`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

# A reply is four levels deep; whatever goes far beyond is an attack or an accident.
MAX_DEPTH = 64

# Values that one text may hold in total. A reply of 500 edits has about 3,000.
MAX_VALUES = 100_000

# Digits of a number; far beyond any line number, far below what makes `int` slow.
_MAX_NUMBER = 40

_STANDARD = json.JSONDecoder(strict=False)  # not strict: control characters in strings
_SPACE = re.compile(r"[ \t\r\n\ufeff]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
_WORD = re.compile(r"[A-Za-z]++")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_STRINGS = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value that ends before `end`. `slips` names the liberties taken, sorted."""

    value: Any
    end: int
    slips: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no value could be read.

    `truncated`: the text ended inside an open object, array or string. `reached`: how far the text
    was looked at, for callers that budget their work. `keys`: keys of the outermost object so far.
    """

    offset: int
    message: str
    truncated: bool
    reached: int
    keys: tuple[str, ...]


def parse_at(text: str, start: int, work: Work | None = None) -> Parsed | Fault:
    """Parse the value that begins at `start`, whatever follows it. Never raises."""
    parser = _Parser(text, start, work or Work())
    try:
        value = parser.value(0)
    except _Stop as stop:
        reached = len(text) if stop.truncated else stop.offset
        return Fault(stop.offset, stop.message, stop.truncated, reached, tuple(parser.keys))
    return Parsed(value, parser.pos, tuple(sorted(parser.slips)))


@dataclass(slots=True)
class Work:
    """What is left to spend on one text; shared by all attempts at it."""

    values: int = MAX_VALUES


class _Stop(Exception):
    """Control flow inside this module, never seen outside."""

    def __init__(self, offset: int, message: str, *, truncated: bool = False) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.truncated = truncated


@dataclass(slots=True)
class _Parser:
    text: str
    pos: int
    work: Work
    slips: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)

    def value(self, depth: int) -> Any:
        self.work.values -= 1
        if self.work.values < 0:
            raise _Stop(self.pos, f"more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise _Stop(self.pos, f"nested deeper than {MAX_DEPTH} levels")
        match self.text[self.pos : self.pos + 1]:
            case "{":
                return self.object(depth)
            case "[":
                return self.array(depth)
            case '"' | "'":
                return self.string()
            case _:
                return self.scalar()

    def object(self, depth: int) -> dict[str, Any]:
        self.pos += 1
        result: dict[str, Any] = {}
        self.space()
        while not self.closed("}", bool(result)):
            at = self.pos
            key = self.key()
            if depth == 0:
                self.keys.append(key)
            self.space()
            self.expect(":", "after a key")
            self.space()
            value = self.value(depth + 1)
            if result.setdefault(key, value) != value:
                raise _Stop(at, f"the key {key[:40]!r} is given twice in one object")
            if not self.separated("}"):
                break
        return result

    def array(self, depth: int) -> list[Any]:
        self.pos += 1
        result: list[Any] = []
        self.space()
        while not self.closed("]", bool(result)):
            result.append(self.value(depth + 1))
            if not self.separated("]"):
                break
        return result

    def closed(self, bracket: str, after_comma: bool) -> bool:
        if not self.text.startswith(bracket, self.pos):
            return False
        if after_comma:
            self.slips.add("trailing comma")
        self.pos += 1
        return True

    def separated(self, bracket: str) -> bool:
        """Take a comma (True) or the closing bracket (False)."""
        self.space()
        if self.text.startswith(",", self.pos):
            self.pos += 1
            self.space()
            return True
        self.expect(
            bracket, 'after a value (a " inside a string must be written \\")', or_comma=True
        )
        return False

    def expect(self, sign: str, where: str, *, or_comma: bool = False) -> None:
        if self.text.startswith(sign, self.pos):
            self.pos += 1
            return
        wanted = f'"," or "{sign}"' if or_comma else f'"{sign}"'
        self.unexpected(f"{wanted} {where}")

    def unexpected(self, wanted: str) -> None:
        if self.pos >= len(self.text):
            raise _Stop(self.pos, "the text ends inside an open object", truncated=True)
        found = self.text[self.pos : self.pos + 12].split("\n")[0]
        raise _Stop(self.pos, f"expected {wanted}, found {found!r}")

    def key(self) -> str:
        if self.text[self.pos : self.pos + 1] not in ('"', "'"):
            self.unexpected("a quoted key")
        return self.string()

    def string(self) -> str:
        quote = self.text[self.pos]
        match = _STRINGS[quote].match(self.text, self.pos)
        if match is None:
            raise _Stop(self.pos, "the text ends inside an open string", truncated=True)
        if quote == "'":
            self.slips.add("single quotes")
        self.pos = match.end()
        return self.unescaped(match[1], match.start(1))

    def unescaped(self, body: str, offset: int) -> str:
        if _CONTROL.search(body):
            self.slips.add("raw line break or control character in a string")
        result = self.escapes_read(body, offset) if "\\" in body else body
        half = _SURROGATE.search(result)
        if half:
            raise _Stop(offset, f"{half[0]!r} is half of a surrogate pair, which is no character")
        return result

    def escapes_read(self, body: str, offset: int) -> str:
        if self.text[offset - 1] == '"':
            try:  # in C where possible: replies are mostly strings full of escapes
                value: str = _STANDARD.raw_decode(self.text, offset - 1)[0]
            except json.JSONDecodeError:
                pass  # the slow way says what is wrong, or forgives it
            else:
                return value
        return self.escapes_forgiven(body, offset)

    def escapes_forgiven(self, body: str, offset: int) -> str:

        def one(match: re.Match[str]) -> str:
            if match[1]:
                return chr(int(match[1], 16))
            if match[2] == "'":
                self.slips.add("\\'")
                return "'"
            if match[2] not in _ESCAPES:
                raise _Stop(
                    offset + match.start(),
                    f"{match[0]!r} is no JSON escape (a backslash itself is written \\\\)",
                )
            return _ESCAPES[match[2]]

        result = _ESCAPE.sub(one, body)
        if _SURROGATE.search(result):  # join the halves that \ud83d\ude00 spells
            result = result.encode("utf-16-le", "surrogatepass").decode(
                "utf-16-le", "surrogatepass"
            )
        return result

    def scalar(self) -> Any:
        number = _NUMBER.match(self.text, self.pos)
        if number and len(number[0]) <= _MAX_NUMBER:
            self.pos = number.end()
            return float(number[0]) if number[1] or number[2] else int(number[0])
        word = _WORD.match(self.text, self.pos)
        name = word[0] if word else ""
        if name in _PYTHON_WORDS:
            self.slips.add("Python literal")
        elif name not in _WORDS:
            self.cut_word(name)
            self.unexpected("a value")
        self.pos += len(name)
        return _WORDS[name] if name in _WORDS else _PYTHON_WORDS[name]

    def cut_word(self, name: str) -> None:
        """`tru` at the end of the text is a value that was cut off."""
        at_end = self.pos + len(name) == len(self.text)
        if name and at_end and any(w.startswith(name) for w in (*_WORDS, *_PYTHON_WORDS)):
            raise _Stop(self.pos, "the text ends inside an open object", truncated=True)

    def space(self) -> None:
        """Skip white space and comments."""
        while True:
            self.pos = _SPACE.match(self.text, self.pos).end()  # type: ignore[union-attr]
            if self.text.startswith("//", self.pos):
                end = self.text.find("\n", self.pos)
                end = len(self.text) if end < 0 else end
            elif self.text.startswith("/*", self.pos):
                end = self.text.find("*/", self.pos + 2) + 2
                if end < self.pos + 4:
                    raise _Stop(self.pos, "the text ends inside a comment", truncated=True)
            else:
                return
            self.slips.add("comment")
            self.pos = end
