"""Foreign text made fit to be shown: nothing hidden, no secrets, no more of it than wanted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup, escape

from agent.secrets.masking import mask_secrets

# What a reader does not see, or what makes one see something else: controls, bidirectional
# controls (CVE-2021-42574), invisible characters, tags, surrogates, noncharacters. Joiners (U+200C,
# U+200D) are left: scripts and emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff]"
)
_PICTURES = 0x2400  # ␀ and those that follow it, in the order of the controls

# Read beyond a limit, so that a secret across the cut is still seen as one.
_MARGIN = 4096


# A value beside the texts that have limits of their own (a path, a reason, a note).
_LONGEST_VALUE = 2000


_MOST_KNOWN = 10_000  # short texts: a few megabytes


class Clean(str):
    """A text that has gone through a `Cleaner`."""

    __slots__ = ()


_NOTHING = Clean()


@dataclass(frozen=True, slots=True)
class Shown:
    """A text as it is shown. `cut`: bytes of it that are not; `where`: of its "start" or "end"."""

    text: Clean = _NOTHING
    cut: int = 0
    where: str = "end"

    def __bool__(self) -> bool:
        return bool(self.text or self.cut)


def visible(text: str) -> str:
    """`text` with every character that hides, or hides others, shown by name; lines are kept."""
    return _HIDDEN.sub(_name, text.replace("\r\n", "\n"))


def _name(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


class Cleaner:
    """Makes foreign text fit to be shown. `redact` takes out the keys of this process."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._known: dict[str, Clean] = {}  # paths, reasons and tiers come again and again

    def value(self, value: object) -> object:
        """What a template prints: a text fit to be shown; markup and numbers as they are."""
        if not isinstance(value, str) or isinstance(value, Clean | Markup):
            return value
        known = self._known.get(value)
        if known is None:
            known = self._short(value)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[value] = known
        return known

    def line(self, text: str, limit: int = 300) -> Clean:
        """The first line that is not empty, at most `limit` characters of it."""
        first = text[: limit + _MARGIN].strip().partition("\n")[0]
        clean = visible(self.masked(first)).replace("\t", " ")
        short = clean if len(clean) <= limit else clean[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"
        return Clean(short)

    def head(self, text: str, limit: int, *, size: int | None = None) -> Shown:
        """The beginning of `text`: at most `limit` bytes of HTML. `size`: of the whole."""
        clean = visible(self.masked(text[: limit + _MARGIN]))
        kept = _fitting(clean, limit, from_end=False)
        there = len(text.encode("utf-8", "replace"))
        whole = max(there, size or 0)
        cut = len(kept) < len(clean) or len(text) > limit + _MARGIN or whole > there
        return Shown(Clean(kept), max(1, whole - len(kept.encode())) if cut else 0)

    def tail(self, text: str, limit: int, *, size: int | None = None) -> Shown:
        """The end of `text`, from the beginning of a line where that can be."""
        clean = visible(self.masked(text[-limit - _MARGIN :]))
        kept = _fitting(clean, limit, from_end=True)
        whole = size or len(text.encode("utf-8", "replace"))
        if len(kept) == len(clean) and len(text) <= limit + _MARGIN:
            left_out = whole - len(text.encode("utf-8", "replace"))
            return Shown(Clean(kept), max(0, left_out), "start")
        kept = kept.partition("\n")[2] or kept
        return Shown(Clean(kept), max(1, whole - len(kept.encode())), "start")

    def _short(self, text: str) -> Clean:
        shown = self.head(text, _LONGEST_VALUE)
        return Clean(f"{shown.text} (cut: {shown.cut:,} bytes more)") if shown.cut else shown.text

    def masked(self, text: str) -> str:
        """`text` without what is, or looks like, a secret."""
        return mask_secrets(self._redact(text)).text


def _fitting(text: str, limit: int, *, from_end: bool) -> str:
    """As much of `text` as takes `limit` bytes of HTML, by halving what does not fit."""

    def part(length: int) -> str:
        return text[len(text) - length :] if from_end else text[:length]

    if len(text) <= limit and len(escape(text).encode()) <= limit:
        return text
    low, high = 0, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        fits = len(escape(part(middle)).encode()) <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    return part(low)
