"""What all readers share: the reply as they see it, what they answer, how failures are worded."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.patching.readers.edit_keys import looks_like_keys
from agent.patching.readers.fences import Fence, find_fences
from agent.patching.scanning import Scan, scan
from agent.patching.schema import ReplyModel
from agent.types import ParseFailure, PatchProposal

# Line breaks of other systems; a lone carriage return is content.
_CRLF = re.compile(r"\r\n")
_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"^[ \t]*+</think(?:ing)?>[ \t]*+$", re.MULTILINE)

_EDITS = frozenset({"edits"})
_REPLY_KEYS = frozenset(ReplyModel.model_fields)

# Characters of the reply shown around the place of a fault.
SHOWN = 60

# A part of the reply: offsets of its first character and after its last.
Span = tuple[int, int]


class Reply:
    """A reply with `\\n` line ends, its thinking blanked out. Offsets and lines are of this text.

    `cut_off`: the server said that the output limit was reached. `only_thought`: the reply ends
    inside its thinking.
    """

    def __init__(self, text: str, *, cut_off: bool) -> None:
        plain = _CRLF.sub("\n", text) if "\r\n" in text else text
        rest = _after_thinking(plain.removeprefix("\ufeff"))
        self.only_thought = rest is None
        self.text = rest or ""
        self.cut_off = cut_off

    @functools.cached_property
    def json(self) -> Scan:
        """The JSON objects of the reply; those with "edits" are `found`."""
        return scan(self.text, _EDITS, _is_ours)

    @functools.cached_property
    def fences(self) -> Sequence[Fence]:
        """The outermost code fences."""
        there = "```" in self.text or "~~~" in self.text
        return find_fences(self.text) if there else ()

    def line(self, offset: int) -> int:
        """The number of the line at an offset, 1-based."""
        return self.text.count("\n", 0, offset) + 1

    def place(self, offset: int) -> str:
        """`line 3, column 7`."""
        column = offset - self.text.rfind("\n", 0, offset)
        return f"line {self.line(offset)}, column {column}"


def _is_ours(keys: frozenset[str]) -> bool:
    """Whether an object that went wrong was an attempt at edits."""
    return not _REPLY_KEYS.isdisjoint(keys) or looks_like_keys(keys)


def _after_thinking(text: str) -> str | None:
    """The text with its leading thinking replaced by as many line breaks; None if it never ends."""
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
    """What a reader made of a reply, and the parts of the text that it was made of."""

    proposal: PatchProposal
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A shape was recognised in a part of the text, but cannot be read."""

    failure: ParseFailure
    span: Span


Outcome = Reading | Trouble | None


@dataclass(frozen=True, slots=True)
class Reader:
    """A shape of reply. `read` gives None for a reply that is not of this shape."""

    name: str
    read: Callable[[Reply, str], Outcome]


def truncated(what: str) -> ParseFailure:
    """The reply ended too early."""
    return ParseFailure(
        "truncated",
        what,
        advice="answer again, complete and shorter: less thought, shorter search texts",
    )


def malformed(reply: Reply, shape: str, offset: int, what: str) -> ParseFailure:
    """A shape that was recognised and is broken at a place."""
    return ParseFailure("malformed", f"{shape}, {reply.place(offset)}: {what}")


def excerpt(text: str, offset: int) -> str:
    """A short quotation for a reason."""
    return repr(text[offset : offset + SHOWN])
