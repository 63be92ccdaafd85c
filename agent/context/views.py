"""Files as they may be shown: numbered lines without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.protocols import Snapshot
from agent.secrets.masking import mask_secrets
from agent.types import Chunk

Run = tuple[int, int]  # first and last line, inclusive


@dataclass(frozen=True, slots=True)
class FileView:
    """One file without its secrets. `lines[i]` is line i + 1; `masked` counts the values masked."""

    path: str
    language: str
    lines: tuple[str, ...]
    masked: int

    def text(self, numbers: Iterable[int]) -> str:
        """The lines of these numbers, joined."""
        return "\n".join(self.lines[number - 1] for number in numbers)

    def run(self, first: int, last: int) -> str:
        """The lines `first` to `last`, joined."""
        return "\n".join(self.lines[first - 1 : last])

    def is_blank(self, number: int) -> bool:
        """Whether this line holds nothing but white space."""
        return not self.lines[number - 1].strip()


class FileViews:
    """Views of a snapshot's files, made when first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._views: dict[str, FileView] = {}

    def __getitem__(self, path: str) -> FileView:
        """Raises KeyError for a path that is not in the snapshot."""
        view = self._views.get(path)
        if view is None:
            file = self._snapshot.files[path]
            masked = mask_secrets(self._snapshot.text(path))
            lines = tuple(masked.text.removesuffix("\n").split("\n"))
            view = self._views[path] = FileView(path, file.language, lines, masked.count)
        return view


def chunk_lines(chunk: Chunk, view: FileView) -> frozenset[int]:
    """The line numbers of a chunk without its holes and without blank lines beside these.

    Empty for a chunk of nothing but blank lines.
    """
    numbers = set(range(max(chunk.start, 1), min(chunk.end, len(view.lines)) + 1))
    for first, last in chunk.holes:
        numbers.difference_update(range(first, last + 1))
    return without_blank_ends(numbers, view)


def without_blank_ends(numbers: Iterable[int], view: FileView) -> frozenset[int]:
    """The numbers without the blank lines at both ends of every run of them."""
    return frozenset(n for first, last in runs(numbers) for n in _trimmed(first, last, view))


def runs(numbers: Iterable[int]) -> tuple[Run, ...]:
    """Line numbers as maximal inclusive ranges, ascending."""
    found: list[Run] = []
    first = last = -1
    for number in sorted(numbers):
        if number != last + 1 or first < 0:
            if first >= 0:
                found.append((first, last))
            first = number
        last = number
    if first >= 0:
        found.append((first, last))
    return tuple(found)


def _trimmed(first: int, last: int, view: FileView) -> range:
    while first <= last and view.is_blank(first):
        first += 1
    while last > first and view.is_blank(last):
        last -= 1
    return range(first, last + 1)
