"""What all readers of replies share: the reply, their outcomes, and the wording of failures."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.patching.json_scanning import Scan, scan
from agent.patching.readers.edit_keys import looks_like_keys
from agent.patching.readers.fences import Fence, find_fences
from agent.patching.schema import ReplyModel
from agent.types import ParseFailure, PatchProposal

# Line breaks of Windows. A lone carriage return is content.
_CRLF = re.compile(r"\r\n")
_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"^[ \t]*+</think(?:ing)?>[ \t]*+$", re.MULTILINE)

EDITS = frozenset({"edits"})
"""The keys of a reply that holds edits only."""

_REPLY_KEYS = frozenset(ReplyModel.model_fields)

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
    return not _REPLY_KEYS.isdisjoint(keys) or looks_like_keys(keys)


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


@dataclass(frozen=True, slots=True)
class Reader:
    """A shape of replies. `read` takes the reply and `name`, see `agent.patching.readers`."""

    name: str
    read: Callable[[Reply, str], Outcome]


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
