"""A file as the text that the model is shown, and the way back to its bytes.

The model sees `\\n` line ends, no byte-order mark, and characters. An edit must leave every other
byte of the file as it was. So an edit is located in the normalised text, mapped to the raw text and
from there to bytes, and only these bytes are replaced. Bytes that fit no encoding are carried as
surrogate escapes (PEP 383): an edit can neither name nor lose them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from agent.patching.lines import Page, shared_start, steps
from agent.repository import decode, is_binary

_LINE_END = re.compile(r"\r+\n")
_LINE_FEED = re.compile(r"\n")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")  # `splitlines` also cuts at form feeds and the like
_UNDECODED = re.compile(r"[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class Spliced:
    """The new bytes of a file. `line`: the first changed line, 1-based.

    `file`: the new text, where it is known without decoding the bytes again.
    """

    data: bytes
    line: int
    file: FileText | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FileText:
    """A decoded file. `text` has `\\n` ends and no byte-order mark; offsets count its characters.

    `breaks` are the offsets in `text` of line feeds that stand for `\\r\\n` (or `\\r\\r\\n`);
    `removed[k]` is the number of carriage returns left out before the k-th of them. `simple`: plain
    UTF-8 without carriage returns, whose text and bytes can be edited side by side.
    """

    text: str
    raw: str
    data: bytes
    mark: bytes
    encoding: str
    errors: str
    breaks: Sequence[int]
    removed: Sequence[int]
    simple: bool = False

    def line_at(self, offset: int) -> int:
        """Return the 1-based line of an offset."""
        return self.text.count("\n", 0, offset) + 1

    def splice(self, start: int, end: int, replacement: str) -> Spliced | str:
        """Replace `text[start:end]` by `replacement` (`\\n` ends), or return why it is impossible.

        Common lines are not touched and keep their own line ends. A new line ends like the lines
        that it replaces, or else like its neighbours.
        """
        if self.simple and "\r" not in replacement:
            return self._spliced_simply(start, end, replacement)
        runs = [self._narrowed(*run) for run in self._runs(start, end, replacement)]
        old, new, done = [self.mark], [self.mark], 0
        for first, last, text, ending in runs:
            begin, after = self._raw_offset(first), self._raw_offset(last)
            written = text.replace("\n", ending)
            try:
                replaced = written.encode(self.encoding)
            except UnicodeEncodeError as error:
                return self._cannot_hold(written[error.start])
            kept = self._encoded(self.raw[done:begin])
            old += [kept, self._encoded(self.raw[begin:after])]
            new += [kept, replaced]
            done = after
        tail = self._encoded(self.raw[done:])
        if b"".join(old) + tail != self.data:
            return f"the file's encoding ({self.encoding}) cannot be edited here without loss"
        return Spliced(b"".join(new) + tail, self.line_at(runs[0][0] if runs else start))

    def _spliced_simply(self, start: int, end: int, replacement: str) -> Spliced | str:
        try:
            written = replacement.encode()
        except UnicodeEncodeError as error:
            return self._cannot_hold(replacement[error.start])
        old = self.text[start:end]
        first = len(self.mark) + self._size(self.text[:start])
        last = first + self._size(old)
        data = b"".join((self.data[:first], written, self.data[last:]))
        line = self.line_at(start + shared_start(old, replacement))
        # An edit of the first two lines may bring a coding cookie: the file is decoded again.
        if start <= self.text.find("\n", self.text.find("\n") + 1):
            return Spliced(data, line)
        text = "".join((self.text[:start], replacement, self.text[end:]))
        return Spliced(data, line, replace(self, text=text, raw=text, data=data))

    def _size(self, text: str) -> int:
        return len(text) if text.isascii() else len(text.encode())

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
        found = _LINE_FEED.finditer(self.text, start, end)
        counts = Counter(self._end_at(match.start()) for match in found)
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

    def _cannot_hold(self, character: str) -> str:
        return (
            f"the file is encoded as {self.encoding}, which has no U+{ord(character):04X}; "
            "write an escape sequence instead of the character"
        )


def open_text(data: bytes, *, python: bool = False) -> FileText | None:
    """Decode the bytes of a file; None if they are binary or cannot be decoded without loss.

    `python`: the file is Python source, so that a coding cookie counts.
    """
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
    if "\r" not in raw:
        simple = decoded.encoding == "utf-8" and errors == "strict" and b"\0" not in data
        return FileText(raw, raw, data, mark, decoded.encoding, errors, (), (0,), simple)
    breaks, removed = _line_ends(raw)
    text = raw.replace("\r", "\n") if decoded.newline == "cr" else _LINE_END.sub("\n", raw)
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


# -------------------------------------------------------------------------------- tracking of edits


@dataclass(frozen=True, slots=True)
class Narrow:
    """A replacement without the whole lines that it shares with both ends of the old text."""

    start: int
    end: int
    text: str

    @classmethod
    def of(cls, page_text: str, start: int, end: int, replacement: str) -> Narrow:
        """Cut off the lines that `page_text[start:end]` and the replacement have in common."""
        old = page_text[start:end]
        head = old.rfind("\n", 0, shared_start(old, replacement)) + 1
        tail = shared_start(old[head:][::-1], replacement[head:][::-1])
        first = old.find("\n", len(old) - tail) + 1  # of the whole lines in the common end
        tail = len(old) - first if first else 0
        return cls(start + head, end - tail, replacement[head : len(replacement) - tail])


@dataclass(slots=True)
class Track:
    """A file as the model was shown it, and the edits since, in order."""

    file: FileText
    _done: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, length now
    _starts: Sequence[int] = ()

    def record(self, change: Narrow) -> None:
        """Add an edit, in offsets of the text that it was made in."""
        self._done.append((change.start, change.end, len(change.text)))

    @property
    def touched(self) -> bool:
        """Whether the file was edited."""
        return bool(self._done)

    def place(self, start: int, end: int) -> tuple[int, int] | None:
        """Return where a range of the original is now; None if an edit overlaps or touches it."""
        for low, high, size in self._done:
            if start == end or low == high:
                apart = (
                    end < low or high < start
                )  # the order of two insertions at one place is not known
            else:
                apart = end <= low or high <= start
            if not apart:
                return None
            if end <= low:
                continue
            start, end = start + size - (high - low), end + size - (high - low)
        return start, end

    def line(self, line: int, now: str) -> int:
        """Return where an original line is now (both 1-based), or the nearest if it is gone."""
        if not self._starts:
            self._starts = Page(self.file.text).starts
        offset = self._starts[min(line, len(self._starts)) - 1]
        for low, high, size in self._done:
            if offset >= high:
                offset += size - (high - low)
            elif offset > low:
                offset = low
        return now.count("\n", 0, offset) + 1
