"""A JSON parser that accepts common slips of models but never guesses, and a scan for objects.
Beyond RFC 8259 it takes trailing commas, comments, raw line breaks, single quotes, Python's words,
and backslashes that escape nothing. What has two meanings is a fault, such as a key given twice.
The library `json_repair` changes such texts without saying so. Linear time, bounded recursion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any

# A reply is four levels deep. Much deeper nesting is an attack or an accident.
MAX_DEPTH = 64

# Values that one text may hold in total. A reply of 500 edits has about 3,000.
MAX_VALUES = 100_000

# Digits of a number: far more than a line number has, far fewer than make `int` slow.
_MAX_NUMBER = 40

_STANDARD = json.JSONDecoder(strict=False)  # not strict: control characters in strings
_SPACE = re.compile(
    r"(?:[ \t\r\n\ufeff]++|(?://|#)[^\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/|(\Z)))*+"
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
_WORD = re.compile(r"[A-Za-z]++")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_STRINGS = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
# Escapes of Python and C mean one thing there and would be another text if taken literally.
_MEANT = frozenset("bfnrtu" + "xUN0123456789av\n")
_ESCAPES = dict(zip("\"\\/'bfnrt", "\"\\/'\b\f\n\r\t", strict=True))
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Found:
    """A JSON value in a text. `lenient`: it is no strict JSON."""

    value: Any
    start: int
    end: int
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no value could be read from `start`. `truncated`: the text ended inside the value.
    `reached`: how far the text was read. `keys`: keys of the outermost object so far.
    """

    start: int
    offset: int
    message: str
    truncated: bool
    reached: int
    keys: tuple[str, ...]


def parse_at(text: str, start: int, work: Work | None = None) -> Found | Fault:
    """Parse the value that begins at `start` and ignore what follows it. Never raises."""
    parser = _Parser(text, start, work or Work())
    try:
        value = parser.value(0)
    except _Stop as stop:
        reached = len(text) if stop.truncated else stop.offset
        return Fault(start, stop.offset, str(stop), stop.truncated, reached, tuple(parser.keys))
    return Found(value, start, parser.pos, parser.lenient)


@dataclass(slots=True)
class Work:
    """The values that may still be read from one text, shared by all attempts."""

    values: int = MAX_VALUES


class _Stop(Exception):
    """Control flow inside this module, never seen outside."""

    def __init__(self, offset: int, message: str, *, truncated: bool = False) -> None:
        super().__init__(message)
        self.offset = offset
        self.truncated = truncated


@dataclass(slots=True)
class _Parser:
    text: str
    pos: int
    work: Work
    lenient: bool = False
    keys: list[str] = field(default_factory=list)  # of the outermost object
    objects: int = 0  # that are open

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
                return [self.value(depth + 1) for _ in self.items("]")]
            case '"' | "'":
                return self.string()
            case _:
                return self.scalar()

    def object(self, depth: int) -> dict[str, Any]:
        self.objects += 1
        result: dict[str, Any] = {}
        for _ in self.items("}"):
            at = self.pos
            if self.text[at : at + 1] not in _STRINGS:
                raise self.unexpected("a quoted key")
            key = self.string()
            if self.objects == 1:
                self.keys.append(key)
            self.space()
            if not self.text.startswith(":", self.pos):
                raise self.unexpected('":" after a key')
            self.pos += 1
            self.space()
            value = self.value(depth + 1)
            if result.setdefault(key, value) != value:
                raise _Stop(at, f"the key {key[:40]!r} is given twice in one object")
        self.objects -= 1
        return result

    def items(self, bracket: str) -> Iterator[None]:
        """Stop at each item of an object or array, up to its closing bracket."""
        self.pos += 1
        self.space()
        comma = False
        while not self.text.startswith(bracket, self.pos):
            yield
            self.space()
            comma = self.text.startswith(",", self.pos)
            if comma:
                self.pos += 1
                self.space()
            elif not self.text.startswith(bracket, self.pos):
                inside = 'a " inside a string must be written \\"'
                raise self.unexpected(f'"," or "{bracket}" after a value ({inside})')
        self.lenient |= comma
        self.pos += 1

    def unexpected(self, expected: str) -> _Stop:
        if self.pos >= len(self.text):
            return _Stop(self.pos, "the text ends inside an open object", truncated=True)
        there = self.text[self.pos : self.pos + 12].split("\n")[0]
        return _Stop(self.pos, f"expected {expected}, found {there!r}")

    def string(self) -> str:
        quote = self.text[self.pos]
        match = _STRINGS[quote].match(self.text, self.pos)
        if match is None:
            raise _Stop(self.pos, "the text ends inside an open string", truncated=True)
        body, offset = match[1], match.start(1)
        self.pos = match.end()
        self.lenient |= quote == "'" or _CONTROL.search(body) is not None
        result = self.unescaped(body, offset) if "\\" in body else body
        half = _SURROGATE.search(result)
        if half:
            raise _Stop(offset, f"{half[0]!r} is half of a surrogate pair, which is no character")
        return result

    def unescaped(self, body: str, offset: int) -> str:
        if self.text[offset - 1] == '"':
            try:  # in C where possible: replies are mostly strings full of escapes
                value: str = _STANDARD.raw_decode(self.text, offset - 1)[0]
            except json.JSONDecodeError:
                pass  # the slow way says what is wrong, or forgives it
            else:
                return value
        self.lenient = True
        # Where no escape has a meaning of its own, a backslash can only be meant as one.
        literal = _MEANT.isdisjoint({match[2] or "u" for match in _ESCAPE.finditer(body)})

        def one(match: re.Match[str]) -> str:
            if match[1]:
                return chr(int(match[1], 16))
            if match[2] not in _ESCAPES and not literal:
                what = f"{match[0]!r} is no JSON escape (a backslash itself is written \\\\)"
                raise _Stop(offset + match.start(), what)
            return _ESCAPES.get(match[2], match[0])

        result = _ESCAPE.sub(one, body)  # and join the halves that \ud83d\ude00 spells
        return result.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def scalar(self) -> Any:
        number = _NUMBER.match(self.text, self.pos)
        if number and len(number[0]) <= _MAX_NUMBER:
            self.pos = number.end()
            return float(number[0]) if number[1] or number[2] else int(number[0])
        word = _WORD.match(self.text, self.pos)
        name = word[0] if word else ""
        if name not in _WORDS:
            if word and word.end() == len(self.text) and any(w.startswith(name) for w in _WORDS):
                self.pos = word.end()  # the value was cut off: `tru`
            raise self.unexpected("a value")
        self.lenient |= name[0].isupper()  # Python's
        self.pos += len(name)
        return _WORDS[name]

    def space(self) -> None:
        """Skip white space and comments."""
        space = _SPACE.match(self.text, self.pos)
        assert space is not None, "the pattern matches an empty text"
        if space[1] is not None:
            raise _Stop(self.pos, "the text ends inside a comment", truncated=True)
        self.lenient |= "/" in space[0] or "#" in space[0]
        self.pos = space.end()


# Failed attempts may read the text this many times in total. More means that it is hostile.
_MAX_REREADING = 8

# Braces that are tried as the start of an object. Prose about code has dozens.
_MAX_ATTEMPTS = 5_000

# An object begins with a quoted key, a comment, or ends at once; `{x}` in prose does not.
_START = re.compile(r"\{(?=\s*+(?:[\"'}]|//|/\*|#|\Z))|\[(?=\s*+\{)")
_FENCE_OPENS = re.compile(r"^[ \t]*+(?:`{3,}+|~{3,}+)[^\n`]*+\n\s*+(?=[\[{])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Scan:
    """All values of a text: objects with a wanted key, others, and those that cannot be read.
    `ours`: the object that was meant as a reply and cannot be read.
    """

    objects: tuple[Found, ...]
    others: tuple[Found, ...]
    faults: tuple[Fault, ...]
    ours: Fault | None = None


def scan(text: str, wanted: Set[str], is_ours: Callable[[frozenset[str]], bool]) -> Scan:
    """Find the objects that have a `wanted` key, in linear time. A broken object is a fault if it
    begins the text or a fence. One that is ours ends the search.
    """
    starts = {match.end() for match in _FENCE_OPENS.finditer(text)}
    starts.add(len(text) - len(text.lstrip("\ufeff \t\r\n")))
    objects: list[Found] = []
    others: list[Found] = []
    faults: list[Fault] = []
    work, reread, position = Work(), 0, 0
    for _ in range(_MAX_ATTEMPTS):
        match = _START.search(text, position)
        if match is None or reread > _MAX_REREADING * len(text):
            break
        start = match.start()
        outcome = parse_at(text, start, work)
        if isinstance(outcome, Found):
            position = outcome.end
            is_wanted = isinstance(outcome.value, dict) and not wanted.isdisjoint(outcome.value)
            (objects if is_wanted else others).append(outcome)
            continue
        # `{"edits": [...]}` in prose describes the format.
        if is_ours(frozenset(outcome.keys)) and not text.startswith(("...", "…"), outcome.offset):
            return Scan(tuple(objects), tuple(others), (outcome, *faults), outcome)
        if start in starts:
            faults.append(outcome)
        position = start + 1
        reread += outcome.reached - start
    faults.sort(key=lambda fault: fault.offset)
    return Scan(tuple(objects), tuple(others), tuple(faults))
