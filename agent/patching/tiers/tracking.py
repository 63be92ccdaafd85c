"""Where a place of the file as it was shown lies after earlier edits of the same reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.patching.filetext import FileText
from agent.patching.tiers.lines import Page, shared_start


@dataclass(frozen=True, slots=True)
class Narrow:
    """A replacement without the whole lines that it begins and ends with as the old text does."""

    start: int
    end: int
    text: str

    @classmethod
    def of(cls, page_text: str, start: int, end: int, replacement: str) -> Narrow:
        """Cut off the lines that `text[start:end]` and the replacement have in common."""
        old = page_text[start:end]
        head = old.rfind("\n", 0, shared_start(old, replacement)) + 1
        tail = shared_start(old[head:][::-1], replacement[head:][::-1])
        first = old.find("\n", len(old) - tail) + 1  # of the whole lines in the common end
        tail = len(old) - first if first else 0
        return cls(start + head, end - tail, replacement[head : len(replacement) - tail])


@dataclass(slots=True)
class Track:
    """A file as it was shown, and what edits have done to it since, in their order."""

    file: FileText
    _done: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, length now
    _starts: Sequence[int] = ()

    def record(self, change: Narrow) -> None:
        """An edit, in offsets of the text that it was made in."""
        self._done.append((change.start, change.end, len(change.text)))

    @property
    def touched(self) -> bool:
        """Whether any edit was made."""
        return bool(self._done)

    def place(self, start: int, end: int) -> tuple[int, int] | None:
        """Where a range of the original text is now; None if an edit overlaps or touches it."""
        for low, high, size in self._done:
            if start == end or low == high:
                apart = end < low or high < start  # what comes first at one place is not known
            else:
                apart = end <= low or high <= start
            if not apart:
                return None
            if end <= low:
                continue
            start, end = start + size - (high - low), end + size - (high - low)
        return start, end

    def line(self, line: int, now: str) -> int:
        """The present line (1-based) of what was a line of the original; the nearest if gone."""
        offset = self._start(line)
        for low, high, size in self._done:
            if offset >= high:
                offset += size - (high - low)
            elif offset > low:
                offset = low
        return now.count("\n", 0, offset) + 1

    def _start(self, line: int) -> int:
        """The offset of a line of the original."""
        if not self._starts:
            self._starts = Page(self.file.text).starts
        return self._starts[min(line, len(self._starts)) - 1]
