"""The reply that all readers share: its text, code fences, file names, and outcomes."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.schema import ReplyModel
from agent.patching.tolerant_json import Scan, scan
from agent.repository import TEXT, language_of
from agent.types import ParseFailure, PatchProposal

# Line breaks of Windows. A lone carriage return is content.
_CRLF = re.compile(r"\r\n")
_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"^[ \t]*+</think(?:ing)?>[ \t]*+$", re.MULTILINE)

EDITS = frozenset({"edits"})
"""The keys of a reply that holds edits only."""

_REPLY_KEYS = frozenset(ReplyModel.model_fields)
_PATH_KEYS = frozenset({"path", "file", "file_path", "filename"})
_TEXT_KEYS = frozenset(
    {"search", "replace", "old_str", "new_str", "old_string", "new_string"}
    | {"code snippet to be modified", "edited code snippet"}
)

# Characters of the reply that are shown around a fault.
SHOWN = 60

# A part of the reply: offsets of its first character and after its last.
Span = tuple[int, int]


class Reply:
    """A reply with `\\n` line ends and without its thinking, which is replaced by line breaks.

    Offsets and lines refer to `text`. `cut_off`: the server said that the output limit was reached.
    `only_thought`: the reply ends inside its thinking. `earlier`: the proposal before a repair.
    """

    def __init__(self, text: str, *, cut_off: bool, earlier: PatchProposal | None = None) -> None:
        self.earlier = earlier
        plain = _CRLF.sub("\n", text) if "\r\n" in text else text
        rest = _after_thinking(plain.removeprefix("\ufeff"))
        self.only_thought = rest is None
        self.text = rest or ""
        self.cut_off = cut_off

    @functools.cached_property
    def json(self) -> Scan:
        """The JSON values of the reply; objects with "edits" are in `found`."""
        return scan(self.text, EDITS, _is_ours)

    @functools.cached_property
    def fences(self) -> Sequence[Fence]:
        """The outermost code fences."""
        there = "```" in self.text or "~~~" in self.text
        return find_fences(self.text) if there else ()

    def line(self, offset: int) -> int:
        """Return the 1-based number of the line at an offset."""
        return self.text.count("\n", 0, offset) + 1

    def place(self, offset: int) -> str:
        """Return an offset in words: "line 3, column 7"."""
        column = offset - self.text.rfind("\n", 0, offset)
        return f"line {self.line(offset)}, column {column}"


def _is_ours(keys: frozenset[str]) -> bool:
    """Whether a broken object with these keys was meant as edits."""
    return not _REPLY_KEYS.isdisjoint(keys) or (
        not keys.isdisjoint(_PATH_KEYS) and not keys.isdisjoint(_TEXT_KEYS)
    )


def _after_thinking(text: str) -> str | None:
    """Replace the leading thinking by as many line breaks; None if the thinking never ends."""
    opened = _THINKING.match(text)
    if opened:
        close = f"</{opened[1]}>"
        end = text.lower().find(close.lower(), opened.end())
        if end < 0:
            return None
        return _after_thinking_of(text, end + len(close))
    closed = _THINKING_ENDS.search(text) if "</think" in text else None
    # Some templates put the opening tag into the prompt. Inside a fence it would be content.
    if closed and "```" not in text[: closed.start()] and "<think" not in text[: closed.start()]:
        return _after_thinking_of(text, closed.end())
    return text


def _after_thinking_of(text: str, end: int) -> str:
    return "\n" * text.count("\n", 0, end) + text[end:]


# --------------------------------------------------------------------------------------- outcomes


@dataclass(frozen=True, slots=True)
class Reading:
    """The edits that a reader found, and the parts of the text that they were read from."""

    proposal: PatchProposal
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A part of the text has the reader's shape but cannot be read."""

    failure: ParseFailure
    span: Span


Outcome = Reading | Trouble | None


def truncated(what: str) -> ParseFailure:
    """Return the failure of a reply that ended too early."""
    return ParseFailure(
        "truncated",
        what,
        advice="answer again, complete and shorter: less thought, shorter search texts",
    )


def malformed(reply: Reply, shape: str, offset: int, what: str) -> ParseFailure:
    """Return the failure of a shape that is broken at an offset."""
    return ParseFailure("malformed", f"{shape}, {reply.place(offset)}: {what}")


def excerpt(text: str, offset: int) -> str:
    """Return a short quotation for a reason."""
    return repr(text[offset : offset + SHOWN])


# ------------------------------------------------------------------------------------------ paths

# A line that names a file is shorter. Patterns must not run on a line of megabytes.
MAX_LINE = 1024

_VERB = r"updat(?:e|ed|ing)|modif(?:y|ied|ying)|edit(?:ed|ing)?|creat(?:e|ed|ing)|chang(?:e|ed|es)"
# Groups are repeated in atomic groups, not with `)*+`: where one repetition fails half-way, Python
# before 3.11.5 goes on behind the characters that it had read (CPython's issue 106052).
_LEADING = re.compile(
    r"(?>(?:\s++|#++|//++|--++|/\*++|[-+*>=]++(?=\s|\*|`|>|=)|\*\*+|<!--|\d{1,3}[.)](?=\s)"
    r"|</?(?:path|file|filename|file_path)>"
    r"|(?:new |modified |updated )?(?:file|file[ _]?name|file[ _]?path|path)(?: ?\d{1,3})?\s*:"
    rf"|(?:{_VERB}|new|in|file|for|to|the|a)\b(?=[\s:`*]):?)+)",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r"(?>(?:\*/|-->|</(?:path|file|filename|file_path)>|[\s:*=,]"
    r"|\((?:a )?(?:new|new file|modified|updated|changed|edited|existing|lines?[ \d,–-]++)\))+)$",
    re.IGNORECASE,
)
# `path:L10-42`, `path:12`: the lines of an excerpt.
_LINES = re.compile(r":L?\d++(?:[-:]L?\d++)?$")
_QUOTED = re.compile(r"`([^`\n]{1,300})`|\"([^\"\n]{1,300})\"|'([^'\n]{1,300})'")
_BARE = re.compile(r"(?<![\w./@~+-])[\w.@~+-]*+(?>(?:/[\w.@~+-]++)*)")

# Endings of files that patches touch and `language_of` calls text.
_TEXT_SUFFIXES = frozenset(
    {
        *("txt", "md", "rst", "cfg", "ini", "toml", "json", "yml", "yaml", "xml", "csv", "tsv"),
        *("lock", "env", "in", "conf", "properties", "gradle"),
    }
)
_PLACEHOLDER = re.compile(
    r"(?:\./)?(?:path/to|your|some/path|full/path|relative/path|exact/path|example/path)\b.*"
    r"|<[^>]*>|\{[^}]*\}|\[[^\]]*\]|.*(?:\.\.\.|…).*"
    r"|(?:file_?name|file_?path|path)(?:\.(?:ext|py))?|(?:pkg/(?:new_)?module|pkg/obsolete)\.py",
    re.IGNORECASE | re.DOTALL,
)
_SHORT = 60  # characters of a text in a description of the format
_NOTHING_SAID = re.compile(
    r"\W*+(?>(?:(?>(?:the |your |exact |whole |some )*)"
    r"(?>(?:old|new|original|existing|updated|modified|replacement|content|search|replace|file)?) ?"
    r"(?>(?:text|code|lines?|content|contents|snippet|here|of a new file|of the file)?))?)\W*+",
    re.IGNORECASE,
)


def path_on_line(line: str) -> str | None:
    """Return the path if a line holds just it and decoration. A quoted path may have spaces."""
    if len(line) > MAX_LINE:
        return None
    lead = _LEADING.match(line)
    bare = _TRAILING.sub("", line[lead.end() if lead else 0 :].strip())
    quoted = _QUOTED.fullmatch(bare)
    path = next(filter(None, quoted.groups()), "") if quoted else bare.strip("`")
    path = _LINES.sub("", path)
    if not path or (not quoted and re.search(r"[\s`]", path)):
        return None
    return path


def looks_like_path(text: str) -> bool:
    """Whether a word is certainly a file, by its ending or its name."""
    if not 0 < len(text) <= 300 or re.search(r"[\s*?<>|\"'`(){}\[\],;]", text):
        return False
    name = text.rsplit("/", 1)[-1]
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    return language_of(text) != TEXT or suffix in _TEXT_SUFFIXES


def paths_in_prose(line: str) -> tuple[str, ...]:
    """Return the different paths that a line of prose mentions, in order."""
    found: dict[str, None] = {}
    if len(line) > MAX_LINE:
        return ()
    for match in _QUOTED.finditer(line):
        path = _LINES.sub("", next(filter(None, match.groups()), ""))
        if looks_like_path(path):
            found[path] = None
    for match in _BARE.finditer(_QUOTED.sub(" ", line)):
        path = match[0].rstrip(".")
        # `x.c` and `self.r` may be attributes and `build` a word, so a slash decides.
        if looks_like_path(path) and ("/" in path or re.search(r"\.\w{2,}$", path)):
            found[path] = None
    return tuple(found)


def is_placeholder_path(path: str) -> bool:
    """Whether a path comes from a description of the format: `path/to/file.py`, `<path>`."""
    return _PLACEHOLDER.fullmatch(path) is not None


def says_nothing(text: str) -> bool:
    """Whether a text stands for code in a description of the format: `...`, `exact old text`."""
    return len(text) <= _SHORT and _NOTHING_SAID.fullmatch(text) is not None


# Number of fences that are read. A reply has a few dozen.
MAX_FENCES = 20_000

_FENCE_LINE = re.compile(r"^([ \t]{0,12})(`{3,}+|~{3,}+)([^\n`]{0,300})$", re.MULTILINE)
_INFO_PATH = re.compile(
    r"(?:^|[\s,{])(?:title|file|filename|file_?path|path)\s*=\s*[\"']?([^\"'\s}]+)"
)
# ```python:src/a.py, ```src/a.py, ```12:40:src/a.py, ```python src/a.py
_INFO_PREFIX = re.compile(r"(?:[\w+#-]{1,20}[:\s]\s*|\d{1,6}:\d{1,6}:)")


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: `text[start:end]` with its fence lines, `text[body:body_end]` without them.

    A fence that is not `closed` ends with the text. `nested`: fences with an info string were
    opened inside it, and each was closed.
    """

    start: int
    body: int
    body_end: int
    end: int
    info: str
    indent: int
    closed: bool
    nested: bool = False

    def content(self, text: str) -> str:
        """Return the body without the indentation of the fence."""
        body = text[self.body : self.body_end]
        if not self.indent:
            return body
        lines = body.split("\n")
        pad = " " * self.indent
        return "\n".join(line.removeprefix(pad) if line.startswith(pad) else line for line in lines)


def find_fences(text: str) -> Sequence[Fence]:
    """Return the outermost fences in order."""
    fences: list[Fence] = []
    opened: re.Match[str] | None = None
    depth = 0
    nested = False
    for count, match in enumerate(_FENCE_LINE.finditer(text)):
        if count >= MAX_FENCES:
            break
        if opened is None:
            opened, depth, nested = match, 0, False
        elif match[2][0] != opened[2][0] or len(match[2]) < len(opened[2]):
            continue
        elif match[3].strip():
            depth += 1
            nested = True
        elif depth:
            depth -= 1
        elif len(match[1]) <= len(opened[1]):  # a deeper one is content, of a docstring for example
            fences.append(_fence(opened, match.start(), match.end(), closed=True, nested=nested))
            opened = None
    if opened is not None:
        fences.append(_fence(opened, len(text), len(text), closed=False, nested=nested))
    return fences


def _fence(opened: re.Match[str], stop: int, end: int, *, closed: bool, nested: bool) -> Fence:
    body = min(opened.end() + 1, stop)
    indent = len(opened[1])
    return Fence(opened.start(), body, stop, end, opened[3].strip(), indent, closed, nested)


def path_of_info(info: str) -> str | None:
    """Return the path in the info string of a fence."""
    given = _INFO_PATH.search(info)
    if given:
        return given[1]
    prefix = _INFO_PREFIX.match(info)
    for candidate in (info[prefix.end() :] if prefix else "", info):
        path = path_on_line(candidate) if candidate else None
        if path and looks_like_path(path):
            return path
    return None


def lines_above(text: str, offset: int, floor: int, count: int) -> list[str]:
    """Return up to `count` lines between `floor` and `offset`, nearest to `offset` first."""
    lines: list[str] = []
    end = offset - 1
    while end >= floor and len(lines) < count:
        start = max(text.rfind("\n", floor, end) + 1, floor)
        lines.append(text[start:end])
        end = start - 1
    return lines


# ------------------------------------------------------------------- paths above a piece of a reply

_FENCE = re.compile(
    r"\s*(?:(?:`{3,}|~{3,})([^`]*)"
    r"|</?(?:source|sourcecode|code|codeblock|pre|diff|content)>[\w+.#-]*)\s*"
)
_NAME_WITHOUT_ENDING = re.compile(r"[\w.@~+/ -]+")
# Lines above a piece of a reply that are searched for its path.
_LOOK_BACK = 5


def path_above(text: str, start: int, floor: int, previous: str, *, infer: bool) -> str | None:
    """Return the path that the lines between `floor`, where the last piece ends, and `start` name.

    With `infer`, the only path that the nearest line mentions counts too, and `previous` if it
    mentions none. Without it, `previous` counts only if there are just fences in between.
    """
    for line in lines_above(text, start, floor, _LOOK_BACK):
        fence = _FENCE.fullmatch(line) if len(line) < 300 else None
        named = path_of_info(fence[1]) if fence and fence[1] else None
        if named:
            return named
        if fence or not line.strip():
            continue
        path = path_on_line(line)
        if path and (path == previous or looks_like_path(path) or _is_alone(line, path)):
            return path
        return _inferred(line, previous) if infer else None
    return previous or None


def _is_alone(line: str, path: str) -> bool:
    """Whether a name without an ending (`Dockerfile`, `bin/run`) is no word of a sentence."""
    return bool(_NAME_WITHOUT_ENDING.fullmatch(path)) and not line.rstrip().endswith((":", "."))


def _inferred(line: str, previous: str) -> str | None:
    mentioned = paths_in_prose(line)
    if len(mentioned) == 1:
        return mentioned[0]
    return previous or None if not mentioned else None
