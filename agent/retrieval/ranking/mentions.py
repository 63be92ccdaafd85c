"""Paths, dotted names, identifiers and stack frames that a problem text names, and its scope. All
patterns run in linear time (no nested repetition), because the text is untrusted.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

from agent.repository import is_below, is_vendored_path, narrowed

if TYPE_CHECKING:
    from agent.types import Problem
    from agent.types.protocols import Snapshot

MAX_CHARS = 100_000
MAX_LINE = 2_000
MAX_MENTIONS = 500
"""Most mentions of each kind. A pasted log can hold thousands; the reporter's own come first."""


class MentionPlace(enum.Enum):
    """The part of the text that a name is in, from the most deliberate to the least."""

    TITLE = "title"
    QUOTED = "backticks"
    PROSE = "text"
    CODE = "code block"


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame. `rank` 1 is where the error was raised; `function` "" is unknown."""

    path: str
    line: int
    function: str
    rank: int


@dataclass(frozen=True, slots=True)
class PathMention:
    """A path as written, without surrounding quotes and punctuation."""

    path: str
    line: int  # 0 if unknown
    place: MentionPlace


@dataclass(frozen=True, slots=True)
class NameMention:
    """An identifier or dotted name, without call parentheses; `::`, `#` and `->` are dots."""

    name: str
    place: MentionPlace


@dataclass(frozen=True, slots=True)
class Mentions:
    """Everything that a problem names, in order of appearance."""

    frames: tuple[Frame, ...]
    paths: tuple[PathMention, ...]
    names: tuple[NameMention, ...]


def read_mentions(problem: Problem) -> Mentions:
    """Return all mentions in order of appearance, each name and path once, at its best place."""
    body = _shortened(problem.body)
    parts = [(MentionPlace.TITLE, problem.title[:MAX_LINE]), *_parts(body)]
    paths: dict[tuple[str, int], PathMention] = {}
    names: dict[str, NameMention] = {}
    for place, text in sorted(parts, key=lambda part: _ORDER[part[0]]):
        for path_mention in _paths(text, place):
            paths.setdefault((path_mention.path, path_mention.line), path_mention)
        for name in _names(text, place):
            names.setdefault(name, NameMention(name, place))
    return Mentions(
        tuple(_frames(body))[:MAX_MENTIONS],
        tuple(paths.values())[:MAX_MENTIONS],
        tuple(names.values())[:MAX_MENTIONS],
    )


_ORDER = {place: number for number, place in enumerate(MentionPlace)}


def _shortened(text: str) -> str:
    return "\n".join(line[:MAX_LINE] for line in text[:MAX_CHARS].split("\n"))


_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_INLINE = re.compile(r"``?([^`\n]{1,200})``?")


def _parts(body: str) -> Iterator[tuple[MentionPlace, str]]:
    for number, part in enumerate(_FENCE.split(body)):
        if number % 2:
            yield MentionPlace.CODE, part
            continue
        yield from ((MentionPlace.QUOTED, match.group(1)) for match in _INLINE.finditer(part))
        lines = _INLINE.sub(" ", part).split("\n")
        code = [line.startswith(("    ", "\t", ">>>")) for line in lines]
        prose = [not is_code for is_code in code]
        yield MentionPlace.PROSE, "\n".join(compress(lines, prose))
        yield MentionPlace.CODE, "\n".join(compress(lines, code))


def text_parts(body: str) -> tuple[str, str]:
    """Split a problem's body into prose (with text in backticks) and code."""
    parts = list(_parts(_shortened(body)))
    prose = (text for place, text in parts if place is not MentionPlace.CODE)
    code = (text for place, text in parts if place is MentionPlace.CODE)
    return "\n".join(prose), "\n".join(code)


_PATH = re.compile(
    r"(?<![\w./\\-])((?:[A-Za-z]:)?[\w.@+~/\\-]{0,300}[\w-]\.[A-Za-z][A-Za-z0-9_]{0,9})"
    r"(?:(?:#L|:|, line )(\d{1,7}))?(?![\w/\\-])"
)
_SUFFIXES = frozenset(
    """
    c cc cfg conf cpp cs css cxx go h hh hpp html ini ipynb java jinja jinja2 js json jsx kt md mjs
    php po proto py pyi pyx rb rs rst scala scss sh sql svelte swift toml ts tsx txt vue xml
    yaml yml
    """.split()  # noqa: SIM905
)


def _paths(text: str, place: MentionPlace) -> Iterator[PathMention]:
    for match in _PATH.finditer(text):
        path = clean_path(match.group(1))
        if path.rpartition(".")[2].lower() in _SUFFIXES:
            yield PathMention(path, int(match.group(2) or 0), place)


def clean_path(path: str) -> str:
    """Use forward slashes; remove drive, `./`, `~/` and the host-like leading slashes of a URL."""
    path = path.replace("\\", "/")
    if path[1:2] == ":":
        path = path[2:]
    while path.startswith(("./", "../", "/", "~/")):
        path = path.partition("/")[2]
    return path


_NAME = re.compile(r"[A-Za-z_]\w{0,99}(?:(?:\.|::|#|->)[A-Za-z_]\w{0,99}){0,9}")
_CALL = re.compile(r"\s?\(")
_SNAKE = re.compile(r"\w_\w|^_\w")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_SEPARATOR = re.compile(r"::|#|->")


def _names(text: str, place: MentionPlace) -> Iterator[str]:
    """Yield names that look like code. In prose, only names that no sentence would contain."""
    any_name = place in (MentionPlace.QUOTED, MentionPlace.CODE)
    for match in _NAME.finditer(text):
        name = _SEPARATOR.sub(".", match.group())
        called = _CALL.match(text, match.end()) is not None
        if any_name or _looks_like_code(name, called=called):
            yield name


def _looks_like_code(name: str, *, called: bool) -> bool:
    if "." in name:
        head, _, tail = name.rpartition(".")
        return len(head) > 1 and len(tail) > 1  # "e.g", "i.e"
    return called or bool(_SNAKE.search(name)) or bool(_CAMEL.search(name))


# Formats of stack frames with the innermost frame last. Groups: `path`, `line`, `function`.
_INNERMOST_LAST = (
    # File "/x/pkg/mod.py", line 12, in parse
    r'File "(?P<path>[^"\n]{1,400})", line (?P<line>\d{1,7})(?:, in (?P<function>[\w<>.]+))?',
    # pkg/mod.py:12: in parse        (pytest);  pkg/mod.py:12: ValueError
    r"^(?P<path>[\w./\\-]{1,300}\.py):(?P<line>\d{1,7}): (?:in (?P<function>[\w<>]+)|\w)",
)
_INNERMOST_FIRST = (
    # at parse (/x/lib/mod.js:12:5)     at async Parser.parse (file:///x/mod.ts:1:2)
    r"^[ \t]*at (?:async )?(?:new )?(?:(?P<function>[\w$.<>]+)(?: \[as \w+\])? \()?"
    r"(?:file://)?(?P<path>[^\s():]{1,300}\.[cm]?[jt]sx?):(?P<line>\d{1,7}):\d+\)?",
    # at org.pkg.Parser.parse(Parser.java:12)
    r"^[ \t]*at (?P<function>[\w$.<>]+)\((?P<path>\w+\.(?:java|kt|scala)):(?P<line>\d{1,7})\)",
    # \t/x/pkg/mod.go:12 +0x1d   below   pkg.(*Parser).parse(...)
    r"^(?:(?P<function>[\w./*()\-]{1,200})\([^\n]{0,300}\)\n)?"
    r"[ \t]+(?P<path>[^\s:]{1,300}\.go):(?P<line>\d{1,7})(?: \+0x[0-9a-f]+)?",
    # panicked at src/mod.rs:12:5     at ./src/mod.rs:12:5
    r"\bat (?:'[^'\n]{0,300}', )?(?P<path>[^\s:']{1,300}\.rs):(?P<line>\d{1,7}):\d+",
    # from /x/lib/mod.rb:12:in `parse'
    r"(?<!\S)(?P<path>[^\s:]{1,300}\.rb):(?P<line>\d{1,7}):in [`'](?P<function>[^'\n]{1,100})'",
    # #0 /x/src/Mod.php(12): App\Mod->parse()
    r"^#\d+ (?P<path>[^\s(]{1,300}\.php)\((?P<line>\d{1,7})\): (?P<function>[\w\\>:-]+)?",
)
_TRACES = tuple(re.compile(one, re.MULTILINE) for one in (*_INNERMOST_LAST, *_INNERMOST_FIRST))


def _frames(body: str) -> Iterator[Frame]:
    for number, pattern in enumerate(_TRACES):
        matches = list(pattern.finditer(body))
        if number < len(_INNERMOST_LAST):
            matches.reverse()
        for rank, match in enumerate(matches, start=1):
            function = _leaf(match.groupdict().get("function") or "")
            yield Frame(clean_path(match["path"]), int(match["line"]), function, rank)


def _leaf(function: str) -> str:
    """Return the plain name at the end: `pkg.(*Parser).parse` -> `parse`; "" for `<module>`."""
    name = re.split(r"[.:>\\#/ ]+", function.strip("."))[-1]
    return name if name.isidentifier() else ""


_SCRIPTS = frozenset({"javascript", "typescript", "tsx", "vue", "svelte"})


def in_scope(problem: Problem, snapshot: Snapshot) -> Snapshot:
    """Return the files of the scope, those that they import, and those that the problem names."""
    if not snapshot.scope:
        return snapshot
    mine = {path for path in snapshot.files if is_below(snapshot.scope, path)}
    more = {*_imported(snapshot, mine), *_named(problem, snapshot, mine)}
    return narrowed(snapshot, mine | more)


def _named(problem: Problem, snapshot: Snapshot, mine: set[str]) -> Iterator[str]:
    """Yield the files outside that the problem names by path; a bare file name names none."""
    mentions = read_mentions(problem)
    frames = [clean_path(frame.path) for frame in mentions.frames]
    for name in dict.fromkeys((*(one.path for one in mentions.paths), *frames)):
        if name in snapshot.files:
            yield name
        elif "/" in name and not any(path.endswith(f"/{name}") for path in mine):
            yield from (path for path in snapshot.files if _is_end(path, name))


def _is_end(path: str, name: str) -> bool:
    """Whether one is the end of the other: traces name files by their place on some machine."""
    return path.endswith(f"/{name}") or ("/" in path and name.endswith(f"/{path}"))


def _imported(snapshot: Snapshot, mine: set[str]) -> Iterator[str]:
    from agent.retrieval.index import ModuleTable, imports

    paths = [path for path in snapshot.files if path in mine or not is_vendored_path(path)]
    modules = ModuleTable(paths)
    for number, path in enumerate(paths):
        if path not in mine:
            continue
        language = snapshot.files[path].language
        for line in imports(snapshot.text(path), language):
            for target in (paths[module] for module in modules.find(line, number)):
                other = snapshot.files[target].language
                if other == language or {other, language} <= _SCRIPTS:
                    yield target
