"""Prepare foreign text and numbers for the page: mask, cut, and show hidden characters."""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup

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


class Clean(str):
    """A text that a `Cleaner` has made safe to show."""

    __slots__ = ()


def visible(text: str) -> str:
    """Return `text` with each hidden character replaced by a visible name."""
    return _HIDDEN.sub(_name, text.replace("\r\n", "\n"))


def _name(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


class Cleaner:
    """Makes foreign text safe to show. `redact` removes the keys of this process."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact

    def value(self, value: object) -> object:
        """Clean a value that a template prints. Markup and numbers are returned unchanged."""
        if not isinstance(value, str) or isinstance(value, Clean | Markup):
            return value
        return self.head(value, _LONGEST_VALUE)

    def line(self, text: str, limit: int = 300) -> Clean:
        """Return the first line that is not empty, at most `limit` characters of it."""
        first = text[: limit + _MARGIN].strip().partition("\n")[0]
        clean = visible(self.masked(first)).replace("\t", " ")
        return Clean(clean if len(clean) <= limit else f"{clean[: limit - 1]}…")

    def head(self, text: str, limit: int) -> Clean:
        """Return the beginning of `text`, at most `limit` characters, and how much is cut."""
        clean = visible(self.masked(text[: limit + _MARGIN]))
        if len(clean) <= limit and len(text) <= limit + _MARGIN:
            return Clean(clean)
        return Clean(f"{clean[:limit]} (cut: {max(1, len(text) - limit):,} characters more)")

    def tail(self, text: str, limit: int) -> Clean:
        """Return the end of `text`, at most `limit` characters."""
        return Clean(visible(self.masked(text[-limit - _MARGIN :]))[-limit:])

    def masked(self, text: str) -> str:
        """Return `text` with secrets and likely secrets masked."""
        return mask_secrets(self._redact(text)).text


NOT_KNOWN = "\N{EN DASH}"


def dollars(value: float | None) -> str:
    """Format dollars with two significant digits or more."""
    if value is None:
        return NOT_KNOWN
    if value == 0:
        return "$0"
    if value >= 100:
        return f"${value:,.0f}"
    return f"${value:,.2f}" if value >= 1 else f"${value:.2g}"


def seconds(value: float | None) -> str:
    """Format a duration in seconds, minutes or hours."""
    if value is None:
        return NOT_KNOWN
    if value < 120:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def count(value: float | None) -> str:
    """Format a count with separators."""
    return NOT_KNOWN if value is None else f"{value:,.0f}"


def percent(part: int, whole: int) -> str:
    """Format a share in percent, "–" if `whole` is 0."""
    return f"{100 * part / whole:.0f}%" if whole else NOT_KNOWN
