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

_CRLF = re.compile(r"\r\n")  # a lone carriage return is content
_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"^[ \t]*+</think(?:ing)?>[ \t]*+$", re.MULTILINE)
_REPLY_KEYS = frozenset(ReplyModel.model_fields)

SHOWN = 60
"""Characters of the reply that are shown around a fault."""

# A part of the reply: offsets of its first character and after its last.
Span = tuple[int, int]


class Reply:
    """A reply with `\\n` line ends and without its thinking, which is replaced by line breaks.
    Offsets and lines refer to `text`. `cut_off`: the server said that the output limit was reached.
    `only_thought`: the reply ends inside its thinking. `earlier`: the proposal before a repair.
    """

    def __init__(self, text: str, *, cut_off: bool, earlier: PatchProposal | None = None) -> None:
        self.earlier = earlier
        text = (_CRLF.sub("\n", text) if "\r\n" in text else text).removeprefix("\ufeff")
        thought = _end_of_thinking(text)
        self.only_thought = thought is None
        end = len(text) if thought is None else thought
        self.text = "\n" * text.count("\n", 0, end) + text[end:]
        self.cut_off = cut_off

    @functools.cached_property
    def json(self) -> Scan:
        """The JSON values of the reply; those with "edits" are `objects`."""
        return scan(self.text, {"edits"}, lambda keys: not _REPLY_KEYS.isdisjoint(keys))

    @functools.cached_property
    def fences(self) -> Sequence[Fence]:
        """The outermost code fences."""
        has_fences = "```" in self.text or "~~~" in self.text
        return find_fences(self.text) if has_fences else ()

    def line(self, offset: int) -> int:
        """Return the 1-based number of the line at an offset."""
        return self.text.count("\n", 0, offset) + 1

    def place(self, offset: int) -> str:
        """Return an offset in words: "line 3, column 7"."""
        column = offset - self.text.rfind("\n", 0, offset)
        return f"line {self.line(offset)}, column {column}"


def _end_of_thinking(text: str) -> int | None:
    """Return where the answer begins; None if the thinking never ends."""
    opened = _THINKING.match(text)
    if opened:
        close = f"</{opened[1].lower()}>"
        end = text.lower().find(close, opened.end())
        return None if end < 0 else end + len(close)
    closed = _THINKING_ENDS.search(text) if "</think" in text else None
    # Some templates put the opening tag into the prompt. Inside a fence it would be content.
    if closed and "```" not in text[: closed.start()] and "<think" not in text[: closed.start()]:
        return closed.end()
    return 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The edits that a reader found, and the parts of the text that they were read from."""

    proposal: PatchProposal
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A part of the text has the reader's shape but cannot be read."""

    failure: ParseFailure
    spans: tuple[Span]


Outcome = Reading | Trouble | None


def truncated(what: str) -> ParseFailure:
    """Return the failure of a reply that ended too early."""
    advice = "answer again, complete and shorter: less thought, shorter search texts"
    return ParseFailure("truncated", what, advice=advice)


def malformed(reply: Reply, shape: str, span: Span, what: str) -> Trouble:
    """Return the failure of a shape that is broken at a span."""
    return Trouble(ParseFailure("malformed", f"{shape}, {reply.place(span[0])}: {what}"), (span,))


def read_edits(reply: Reply, proposal: PatchProposal, spans: Sequence[Span]) -> Outcome:
    """Return the edits of a shape without an end of its own; a cut reply may lack some."""
    if reply.cut_off:
        what = "the reply was cut off at the output limit; further edits may be missing"
        return Trouble(truncated(what), ((spans[0][0], spans[-1][1]),))
    return Reading(proposal, tuple(spans))


_MAX_LINE = 1024  # a line that names a file is shorter
_TICKED = re.compile(r"`([^`\n]+)`")
_WORD = re.compile(r"[\w.@~+/\\-]+")
_ENDING = re.compile(r"\.\w{2,}$")
# What may stand beside a path that heads a piece of code.
_DECORATION = re.compile(
    r"(?:[\W\d_]|\b(?:updat|modif|edit|creat|chang)\w*|\b(?:path|file|filename|filepath|existing|new"
    r"|in|for|to|the|a|lines?|L\d+)\b)*+",
    re.IGNORECASE,
)

# Endings of files that patches touch and `language_of` calls text.
_TEXT_SUFFIXES = frozenset(
    {
        *("txt", "md", "rst", "cfg", "ini", "toml", "json", "yml", "yaml", "xml", "csv", "tsv"),
        *("lock", "env", "in", "conf", "properties", "gradle"),
    }
)


def paths_on_line(line: str) -> tuple[str, ...]:
    """Return the different paths that a line names, those in backticks alone if there are any."""
    if len(line) > _MAX_LINE:
        return ()
    words = [word.rstrip(".") for word in _WORD.findall(" ".join(_TICKED.findall(line)) or line)]
    # `x.c` and `self.r` may be attributes and `build` a word, so a slash or the ending decides.
    certain = (w for w in words if len(words) == 1 or "/" in w or _ENDING.search(w))
    return tuple(dict.fromkeys(filter(_looks_like_path, certain)))


def path_alone(line: str) -> str | None:
    """Return the path of a line that holds just it and decoration."""
    paths = paths_on_line(line)
    alone = len(paths) == 1 and _DECORATION.fullmatch(line.replace(paths[0], " ", 1))
    return paths[0] if alone else None


def _looks_like_path(word: str) -> bool:
    name = word.rpartition("/")[2]
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    return bool(name) and (language_of(word) != TEXT or suffix in _TEXT_SUFFIXES)


# Number of fences that are read. A reply has a few dozen.
_MAX_FENCES = 20_000

_FENCE_LINE = re.compile(r"^([ \t]{0,12})(`{3,}+|~{3,}+)([^\n`]{0,300})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: `text[start:end]` with fence lines, `text[body:body_end]` without."""

    start: int
    body: int
    body_end: int
    end: int
    info: str
    indent: int
    closed: bool

    def content(self, text: str) -> str:
        """Return the body without the indentation of the fence."""
        body, pad = text[self.body : self.body_end], " " * self.indent
        return "\n".join(line.removeprefix(pad) for line in body.split("\n")) if pad else body


def find_fences(text: str) -> Sequence[Fence]:
    """Return the outermost fences in order."""
    fences: list[Fence] = []
    opened: re.Match[str] | None = None
    depth = 0
    for count, match in enumerate(_FENCE_LINE.finditer(text)):
        if count >= _MAX_FENCES:
            break
        if opened is None:
            opened, depth = match, 0
        elif match[2][0] != opened[2][0] or len(match[2]) < len(opened[2]):
            continue
        elif match[3].strip():
            depth += 1
        elif depth:
            depth -= 1
        elif len(match[1]) <= len(opened[1]):  # a deeper one is content, of a docstring for example
            fences.append(_fence(opened, match.start(), match.end(), closed=True))
            opened = None
    if opened is not None:
        fences.append(_fence(opened, len(text), len(text), closed=False))
    return fences


def _fence(opened: re.Match[str], stop: int, end: int, *, closed: bool) -> Fence:
    body = min(opened.end() + 1, stop)
    return Fence(opened.start(), body, stop, end, opened[3].strip(), len(opened[1]), closed)


_FENCE = re.compile(
    r"\s*(?:(?:`{3,}|~{3,})([^`]*)"
    r"|</?(?:source|sourcecode|code|codeblock|pre|diff|content)>[\w+.#-]*)\s*"
)
# Lines above a piece of a reply that are searched for its path.
_LOOK_BACK = 5


def path_above(text: str, start: int, floor: int, previous: str) -> str | None:
    """Return the path that the nearest lines above name, or `previous` if they name none."""
    for line in lines_above(text, start, floor, _LOOK_BACK):
        fence = _FENCE.fullmatch(line) if len(line) < 300 else None
        paths = paths_on_line((fence[1] or "") if fence else line)
        if len(paths) == 1:
            return paths[0]
        if line.strip() and not fence:
            return None if paths else previous or None
    return previous or None


def lines_above(text: str, offset: int, floor: int, count: int) -> list[str]:
    """Return up to `count` lines between `floor` and `offset`, nearest to `offset` first."""
    lines: list[str] = []
    end = offset - 1
    while end >= floor and len(lines) < count:
        start = max(text.rfind("\n", floor, end) + 1, floor)
        lines.append(text[start:end])
        end = start - 1
    return lines
