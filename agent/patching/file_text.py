"""A file as the text that the model is shown, and the way back to its bytes. The model sees `\\n`
line ends, no byte-order mark, and characters. An edit must leave every other byte of the file as it
was. So an edit is located in the normalised text, mapped to the raw text and from there to bytes,
and only these bytes are replaced. Bytes that fit no encoding are carried as surrogate escapes (PEP
383): an edit can neither name nor lose them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from agent.patching.diff import shared_start, steps
from agent.repository import decode, is_binary

_LINE_END = re.compile(r"\r+\n")
_LINE_FEED = re.compile(r"\n")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")  # `splitlines` also cuts at form feeds and the like
_UNDECODED = re.compile(r"[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class Spliced:
    """The new bytes of a file. `line`: the first changed line, 1-based."""

    data: bytes
    line: int


@dataclass(frozen=True, slots=True)
class FileText:
    """A decoded file. `text` has `\\n` ends and no byte-order mark; offsets count its characters.
    `breaks` are the offsets in `text` of line feeds that stand for `\\r\\n` (or `\\r\\r\\n`);
    `removed[k]` is the number of carriage returns left out before the k-th of them.
    """

    text: str
    raw: str
    data: bytes
    mark: bytes
    encoding: str
    errors: str
    breaks: Sequence[int]
    removed: Sequence[int]

    def line_at(self, offset: int) -> int:
        """Return the 1-based line of an offset."""
        return self.text.count("\n", 0, offset) + 1

    def splice(self, start: int, end: int, replacement: str) -> Spliced | str:
        """Replace `text[start:end]` by `replacement` (`\\n` ends), or return why it is impossible.
        A new line ends like the lines that it replaces, or else like its neighbours.
        """
        runs = [self._narrowed(*run) for run in self._runs(start, end, replacement)]
        old, new, done = [self.mark], [self.mark], 0
        for first, last, text, ending in runs:
            begin, after = self._raw_offset(first), self._raw_offset(last)
            written = text.replace("\n", ending)
            try:
                replaced = written.encode(self.encoding)
            except UnicodeEncodeError as error:
                return (
                    f"the file is encoded as {self.encoding}, which has no "
                    f"U+{ord(written[error.start]):04X}; write an escape sequence"
                )
            between = self._encoded(self.raw[done:begin])
            old += [between, self._encoded(self.raw[begin:after])]
            new += [between, replaced]
            done = after
        tail = self._encoded(self.raw[done:])
        if b"".join(old) + tail != self.data:
            return f"the file's encoding ({self.encoding}) cannot be edited here without loss"
        return Spliced(b"".join(new) + tail, self.line_at(runs[0][0] if runs else start))

    def _runs(self, start: int, end: int, replacement: str) -> list[tuple[int, int, str]]:
        """Split the replacement into changed runs of lines; one run where all lines end alike."""
        if not self.breaks or len(self.breaks) == self.text.count("\n"):
            return [(start, end, replacement)]
        old = _LINES.findall(self.text[start:end])
        new = _LINES.findall(replacement)
        offsets = list(accumulate(map(len, old), initial=start))
        return [
            (offsets[step.a_start], offsets[step.a_end], "".join(new[step.b_start : step.b_end]))
            for step in steps(old, new)
            if not step.equal
        ]

    def _narrowed(self, start: int, end: int, replacement: str) -> tuple[int, int, str, str]:
        old = self.text[start:end]
        ending = self._ending(start, end)
        head = shared_start(old, replacement)
        old, replacement = old[head:], replacement[head:]
        tail = shared_start(old[::-1], replacement[::-1])
        start, end = start + head, end - tail
        if start < end:
            ending = self._ending(start, end, default=ending)
        return start, end, replacement[: len(replacement) - tail], ending

    def _ending(self, start: int, end: int, *, default: str | None = None) -> str:
        """Return the most frequent line end of a region, or else that of the nearest line."""
        feeds = _LINE_FEED.finditer(self.text, start, end)
        counts = Counter(self._end_at(match.start()) for match in feeds)
        if counts:
            return max(counts, key=lambda ending: counts[ending])
        if default is not None:
            return default
        before = self.text.rfind("\n", 0, start)
        near = before if before >= 0 else self.text.find("\n", end)
        return self._end_at(near) if near >= 0 else "\n"

    def _end_at(self, offset: int) -> str:
        first = self._raw_offset(offset)
        last = self._raw_offset(offset + 1)
        return self.raw[first:last]

    def _raw_offset(self, offset: int) -> int:
        return offset + self.removed[bisect_left(self.breaks, offset)]

    def _encoded(self, raw: str) -> bytes:
        return raw.encode(self.encoding, self.errors)


def open_text(data: bytes, *, python: bool = False) -> FileText | None:
    """Decode a file; None if it is binary or loses bytes. `python`: a coding cookie counts."""
    if is_binary(data):
        return None
    decoded = decode(data, cookie=python)
    errors = "surrogateescape" if decoded.replaced and decoded.encoding == "utf-8" else "strict"
    mark = data[: len("\ufeff".encode(decoded.encoding))] if decoded.bom else b""
    try:
        raw = data[len(mark) :].decode(decoded.encoding, errors)
        if mark + raw.encode(decoded.encoding, errors) != data:
            return None
    except UnicodeError:
        return None
    breaks, removed = _line_ends(raw)
    text = raw.replace("\r", "\n") if "\n" not in raw else _LINE_END.sub("\n", raw)
    return FileText(text, raw, data, mark, decoded.encoding, errors, breaks, removed)


def plain(text: str) -> str:
    """Return a text of the model with `\\n` line ends, the form in which it was shown the file."""
    return _LINE_END.sub("\n", text) if "\r" in text else text


def shown(text: str) -> str:
    """Return a printable text: bytes that fit no encoding become U+FFFD."""
    return _UNDECODED.sub("\ufffd", text)


def _line_ends(raw: str) -> tuple[Sequence[int], Sequence[int]]:
    breaks: list[int] = []
    removed = [0]
    for match in _LINE_END.finditer(raw) if "\r" in raw else ():
        breaks.append(match.start() - removed[-1])
        removed.append(removed[-1] + len(match[0]) - 1)
    return breaks, removed
