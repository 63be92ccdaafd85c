"""A JSON parser that accepts common slips of models but never guesses, and a scan for objects.

Beyond RFC 8259 it takes trailing commas, `//`, `#` and `/* */` comments, raw line breaks and tabs
in strings, single quotes, unquoted keys, `\\'`, and Python's `True`, `False` and `None`. Every such
slip is named in the result. A text with two possible meanings is a fault instead: an unknown escape
beside a known one (`\\d`: was `\\n` next to it meant as a line break?), a key given twice with
different values, an unescaped quote inside a string.

The library `json_repair` was tried and not used: it accepts a reply that was cut off, keeps the
last of two values of a key and changes strings with unknown escapes, all without saying so.

Runs in linear time, without recursion deeper than `MAX_DEPTH` and without `eval`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

# A reply is four levels deep. Much deeper nesting is an attack or an accident.
MAX_DEPTH = 64

# Values that one text may hold in total. A reply of 500 edits has about 3,000.
MAX_VALUES = 100_000

# Digits of a number: far more than a line number has, far fewer than make `int` slow.
_MAX_NUMBER = 40

_STANDARD = json.JSONDecoder(strict=False)  # not strict: control characters in strings
_SPACE = re.compile(r"[ \t\r\n\ufeff]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
_WORD = re.compile(r"[A-Za-z]++")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_BARE_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,60}+)(?=\s*+:)")
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_STRINGS = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}

# Escapes of Python and C that mean one thing there and would be another text if taken literally.
_FOREIGN_ESCAPES = frozenset("xuUN0123456789av\n")
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
    """A value that ends before `end`. `slips` names the accepted deviations from JSON, sorted."""

    value: Any
    end: int
    slips: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no value could be read.

    `truncated`: the text ended inside an open object, array or string. `reached`: how far the text
    was read, for callers that limit their work. `keys`: keys of the outermost object so far.
    """

    offset: int
    message: str
    truncated: bool
    reached: int
    keys: tuple[str, ...]


def parse_at(text: str, start: int, work: Work | None = None) -> Parsed | Fault:
    """Parse the value that begins at `start` and ignore what follows it. Never raises."""
    parser = _Parser(text, start, work or Work())
    try:
        value = parser.value(0)
    except _Stop as stop:
        reached = len(text) if stop.truncated else stop.offset
        return Fault(stop.offset, stop.message, stop.truncated, reached, tuple(parser.keys))
    return Parsed(value, parser.pos, tuple(sorted(parser.slips)))


@dataclass(slots=True)
class Work:
    """The values that may still be read from one text, shared by all attempts."""

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
    keys: list[str] = field(default_factory=list)  # of the outermost object
    nested: bool = False

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

    # ------------------------------------------------------------------------ objects and arrays

    def object(self, depth: int) -> dict[str, Any]:
        self.pos += 1
        outermost, self.nested = not self.nested, True
        result: dict[str, Any] = {}
        self.space()
        while not self.closed("}", bool(result)):
            at = self.pos
            key = self.key()
            if outermost:
                self.keys.append(key)
            self.space()
            self.expect(":", "after a key")
            self.space()
            value = self.value(depth + 1)
            if result.setdefault(key, value) != value:
                raise _Stop(at, f"the key {key[:40]!r} is given twice in one object")
            if not self.separated("}"):
                break
        self.nested = not outermost
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
        sign = self.text[self.pos : self.pos + 1]
        if sign not in (",", bracket):
            wanted = f'"," or "{bracket}" after a value (a " inside a string must be written \\")'
            raise self.unexpected(wanted)
        self.pos += 1
        if sign == ",":
            self.space()
        return sign == ","

    def expect(self, sign: str, where: str) -> None:
        if not self.text.startswith(sign, self.pos):
            raise self.unexpected(f'"{sign}" {where}')
        self.pos += 1

    def unexpected(self, wanted: str) -> _Stop:
        if self.pos >= len(self.text):
            return _Stop(self.pos, "the text ends inside an open object", truncated=True)
        found = self.text[self.pos : self.pos + 12].split("\n")[0]
        return _Stop(self.pos, f"expected {wanted}, found {found!r}")

    def key(self) -> str:
        if self.text[self.pos : self.pos + 1] in _STRINGS:
            return self.string()
        bare = _BARE_KEY.match(self.text, self.pos)
        if bare is None:
            raise self.unexpected("a quoted key")
        self.slips.add("unquoted key")
        self.pos = bare.end()
        return bare[1]

    # ----------------------------------------------------------------------------------- strings

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
        letters = {match[2] or "u" for match in _ESCAPE.finditer(body)}
        # Where no escape has a meaning of its own, a backslash can only be meant as one.
        literal = letters.isdisjoint("bfnrtu") and letters.isdisjoint(_FOREIGN_ESCAPES)

        def one(match: re.Match[str]) -> str:
            if match[1]:
                return chr(int(match[1], 16))
            if match[2] == "'":
                self.slips.add("\\'")
                return "'"
            if match[2] in _ESCAPES:
                return _ESCAPES[match[2]]
            if not literal:
                raise _Stop(
                    offset + match.start(),
                    f"{match[0]!r} is no JSON escape (a backslash itself is written \\\\)",
                )
            self.slips.add("backslash that escapes nothing")
            return match[0]

        result = _ESCAPE.sub(one, body)
        if _SURROGATE.search(result):  # join the halves that \ud83d\ude00 spells
            result = result.encode("utf-16-le", "surrogatepass").decode(
                "utf-16-le", "surrogatepass"
            )
        return result

    # ----------------------------------------------------------------------------------- the rest

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
            raise self.unexpected("a value")
        self.pos += len(name)
        return _WORDS[name] if name in _WORDS else _PYTHON_WORDS[name]

    def cut_word(self, name: str) -> None:
        """Raise if the text ends inside a word (`tru`), so that the value was cut off."""
        at_end = self.pos + len(name) == len(self.text)
        if name and at_end and any(w.startswith(name) for w in (*_WORDS, *_PYTHON_WORDS)):
            raise _Stop(self.pos, "the text ends inside an open object", truncated=True)

    def space(self) -> None:
        """Skip white space and comments."""
        while True:
            self.pos = _SPACE.match(self.text, self.pos).end()  # type: ignore[union-attr]
            if self.text.startswith(("//", "#"), self.pos):
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


# -------------------------------------------------------------------------------- objects in a text

# Failed attempts may read the text this many times in total. More means that it is hostile.
_MAX_REREADING = 8

# Braces that are tried as the start of an object. Prose about code has dozens.
_MAX_ATTEMPTS = 5_000

# An object begins with a quoted key, a comment, or ends at once; `{x}` in prose does not, unless x
# is a key that replies have. A list is of objects.
_START = re.compile(
    r"\{(?=\s*+(?:[\"'}]|//|/\*|#|\Z|(?:edits|thought|path|file|command|action)\s*:))"
    r"|\[(?=\s*+\{)"
)
_FENCE_OPENS = re.compile(r"^[ \t]*+(?:`{3,}+|~{3,}+)[^\n`]*+\n\s*+(?=[\[{])", re.MULTILINE)

# Levels of wrapping objects ({"arguments": {"edits": ...}}) that are searched.
_MAX_WRAPPING = 2


@dataclass(frozen=True, slots=True)
class Found:
    """A JSON value in a text.

    `whole`: only white space stands around it. `fenced`: it begins a code fence. `slips` names the
    deviations from JSON that were accepted.
    """

    value: Any
    start: int
    end: int
    whole: bool
    fenced: bool
    slips: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokenObject:
    """An object that cannot be read. `ours`: it has a key that only a reply has."""

    fault: Fault
    ours: bool
    start: int


@dataclass(frozen=True, slots=True)
class Scan:
    """All values of a text. `found` are objects with a wanted key, `others` the rest.

    `cut`: where the first object or list begins inside which the text ends.
    """

    text: str
    found: tuple[Found, ...]
    faults: tuple[BrokenObject, ...]
    others: tuple[Found, ...]
    cut: int | None = None


def scan(text: str, wanted: Set[str], is_ours: Callable[[frozenset[str]], bool]) -> Scan:
    """Find the objects that have a `wanted` key, in linear time.

    A broken object is kept as a fault if it begins the text or a fence, or if `is_ours` accepts its
    keys. In the last case the search ends, since the rest lies inside a broken reply.
    """
    fences = frozenset(match.end() for match in _FENCE_OPENS.finditer(text))
    first = len(text) - len(text.lstrip("\ufeff \t\r\n"))
    found: list[Found] = []
    faults: list[BrokenObject] = []
    others: list[Found] = []
    cut: int | None = None
    work, reread, position = Work(), 0, 0
    for _ in range(_MAX_ATTEMPTS):
        match = _START.search(text, position)
        if match is None or reread > _MAX_REREADING * len(text):
            break
        start = match.start()
        outcome = parse_at(text, start, work)
        if isinstance(outcome, Parsed):
            position = outcome.end
            inner = _unwrapped(outcome.value, wanted)
            value = outcome.value if inner is None else inner
            kind = others if inner is None else found
            kind.append(_found(text, start, outcome, value, fenced=start in fences))
            continue
        ours = is_ours(frozenset(outcome.keys)) and not _is_ellipsis(text, outcome)
        if ours or start == first or start in fences:
            faults.append(BrokenObject(outcome, ours, start))
        if ours:
            break
        if outcome.truncated and cut is None:
            cut = start
        position = start + 1
        reread += outcome.reached - start
    ranked = sorted(faults, key=lambda broken: (not broken.ours, broken.fault.offset))
    return Scan(text, tuple(found), tuple(ranked), tuple(others), cut)


def _found(text: str, start: int, parsed: Parsed, inner: Any, *, fenced: bool) -> Found:
    whole = not text[:start].strip("\ufeff \t\r\n") and not text[parsed.end :].strip()
    slips = parsed.slips if inner is parsed.value else (*parsed.slips, "wrapped")
    return Found(inner, start, parsed.end, whole, fenced, slips)


def _unwrapped(value: Any, wanted: Set[str], depth: int = 0) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    if not wanted.isdisjoint(value):
        return value
    if depth < _MAX_WRAPPING:
        for inner in value.values():
            found = _unwrapped(inner, wanted, depth + 1)
            if found is not None:
                return found
    return None


def _is_ellipsis(text: str, fault: Fault) -> bool:
    """Whether the object is `{"edits": [...]}` in prose, which describes the format."""
    return text.startswith(("...", "…"), fault.offset)
