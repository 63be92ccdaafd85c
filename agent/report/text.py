"""Prepare foreign text, issues and numbers for the page: mask, cut, and show hidden characters.

Issues are rendered with the headings, fenced code and inline code of Markdown, but without links,
images and HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

from agent.shared.secrets import mask_secrets

# Characters that are invisible or change how text is displayed: controls, bidirectional controls
# (CVE-2021-42574), invisible characters, tags, surrogates, noncharacters. Joiners (U+200C, U+200D)
# stay, because scripts and emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff]"
)
_PICTURES = 0x2400  # ␀; symbols for the other control characters follow in the same order

# Number of characters read beyond a limit, so that a secret at the limit is recognised.
_MARGIN = 4096

# Default limit of a value (a path, a reason, a note).
_LONGEST_VALUE = 2000

_MOST_KNOWN = 10_000  # limit of cached short texts: a few megabytes


class Clean(str):
    """A text that a `Cleaner` has made safe to show."""

    __slots__ = ()


_NOTHING = Clean()


@dataclass(frozen=True, slots=True)
class Shown:
    """A text as shown. `cut` is the number of bytes removed at `where` ("start", "end")."""

    text: Clean = _NOTHING
    cut: int = 0
    where: str = "end"

    def __bool__(self) -> bool:
        return bool(self.text or self.cut)


def visible(text: str) -> str:
    """Return `text` with each hidden character replaced by a visible name."""
    return _HIDDEN.sub(_name, text.replace("\r\n", "\n"))


def _name(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


class Cleaner:
    """Makes foreign text safe to show. `redact` removes the keys of this process."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._known: dict[str, Clean] = {}  # paths, reasons and tiers repeat

    def value(self, value: object) -> object:
        """Clean a value that a template prints. Markup and numbers are returned unchanged."""
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
        """Return the first line that is not empty, at most `limit` characters of it."""
        first = text[: limit + _MARGIN].strip().partition("\n")[0]
        clean = visible(self.masked(first)).replace("\t", " ")
        short = clean if len(clean) <= limit else clean[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"
        return Clean(short)

    def head(self, text: str, limit: int, *, size: int | None = None) -> Shown:
        """Return the beginning of `text`, at most `limit` bytes of HTML.

        `size` is that of the whole text in bytes, if `text` is only a part.
        """
        clean = visible(self.masked(text[: limit + _MARGIN]))
        kept = _fitting(clean, limit, from_end=False)
        there = len(text.encode("utf-8", "replace"))
        whole = max(there, size or 0)
        cut = len(kept) < len(clean) or len(text) > limit + _MARGIN or whole > there
        return Shown(Clean(kept), max(1, whole - len(kept.encode())) if cut else 0)

    def tail(self, text: str, limit: int, *, size: int | None = None) -> Shown:
        """Return the end of `text`, starting at a line if possible."""
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
        """Return `text` with secrets and likely secrets masked."""
        return mask_secrets(self._redact(text)).text


def _fitting(text: str, limit: int, *, from_end: bool) -> str:
    """Return as much of `text` as fits in `limit` bytes of HTML, found by bisection."""

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


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text, `code` or not."""

    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph with its line breaks, a heading, or a block of code."""

    kind: Literal["text", "heading", "code"]
    spans: tuple[Span, ...]


def blocks_of(text: str) -> tuple[TextBlock, ...]:
    """Return the blocks of a text. A fence that is not closed runs to the end."""
    return tuple(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[TextBlock]:
    held: list[str] = []
    fence = ""
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip(" `~"):
                yield _code(held)
                held, fence = [], ""
            else:
                held.append(line)
        elif found:
            yield from _prose(held)
            held, fence = [], found[1]
        else:
            held.append(line)
    yield from [_code(held)] if fence else _prose(held)


def _code(lines: list[str]) -> TextBlock:
    return TextBlock("code", (Span("\n".join(lines)),))


def _prose(lines: list[str]) -> Iterator[TextBlock]:
    held: list[str] = []
    for line in [*lines, ""]:
        heading = _HEADING.fullmatch(line)
        if (heading or not line.strip()) and held:
            yield TextBlock("text", tuple(_spans("\n".join(held))))
            held = []
        if heading:
            yield TextBlock("heading", tuple(_spans(heading[1])))
        elif line.strip():
            held.append(line)


def _spans(text: str) -> Iterator[Span]:
    for number, part in enumerate(_INLINE.split(text)):
        if part:
            yield Span(part, code=number % 2 == 1)


NOT_KNOWN = "\N{EN DASH}"


def dollars(value: float | None) -> str:
    """Format dollars with two significant digits or more."""
    if value is None:
        return NOT_KNOWN
    if value == 0:
        return "$0"
    if value >= 100:
        return f"${value:,.0f}"
    if value >= 1:
        return f"${value:,.2f}"
    digits = f"{value:.2g}" if value >= 0.0001 else f"{value:.1e}"
    return f"${digits}"


def seconds(value: float | None) -> str:
    """Format a duration in seconds, minutes or hours."""
    if value is None:
        return NOT_KNOWN
    if value < 0.1:
        return f"{value * 1000:.0f} ms" if value else "0 s"
    if value < 10:
        return f"{value:.2g} s"
    if value < 120:
        return f"{value:.0f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600:,} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")


def seconds_of_axis(value: float) -> str:
    """Format a duration with one unit, for an axis."""
    for size, unit in ((7200, 3600), (600, 60)):
        if value >= size:
            return f"{value / unit:,.3g} {'h' if unit == 3600 else 'min'}"
    return f"{value:.3g} s"


def count(value: float | None) -> str:
    """Format a count with separators."""
    return NOT_KNOWN if value is None else f"{value:,.0f}"


def tokens(value: float | None) -> str:
    """Format a number of tokens, large ones in thousands or millions."""
    if value is None:
        return NOT_KNOWN
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def percent(part: int, whole: int) -> str:
    """Format a share in percent, "–" if `whole` is 0."""
    return f"{100 * part / whole:.0f}%" if whole else NOT_KNOWN
