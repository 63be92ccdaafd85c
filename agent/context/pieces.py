"""Pieces of files as the model sees them: exact lines, elision marks, header and fence.

A fenced body holds nothing but lines of the file (the model copies its search texts from it) and
elision marks, which the preamble of the context explains.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.context.secrets import mask_secrets
from agent.protocols import Snapshot
from agent.types import Chunk, PieceForm

ELISION = "⋮"
PREAMBLE = f"A line `{ELISION}` stands for lines of the file that are left out; never copy it.\n\n"

_BLANK_GAP = 2  # lines
_BACKTICKS = re.compile(r"`+")
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f`\u2028\u2029]")  # what would break a header line


@dataclass(frozen=True, slots=True)
class FileView:
    """One file without its secrets. `lines[i]` is line i + 1; `masked` counts the values masked."""

    path: str
    language: str
    lines: tuple[str, ...]
    masked: int

    def text(self, numbers: Iterable[int]) -> str:
        """The lines of these numbers, joined, without elision marks."""
        return "\n".join(self.lines[number - 1] for number in numbers)

    def has_text(self, numbers: Iterable[int]) -> bool:
        """Whether any of these lines is not blank."""
        return any(self.lines[number - 1].strip() for number in numbers)


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


@dataclass(frozen=True, slots=True)
class Block:
    """A rendered piece. `shown` are its runs of lines; `text` ends with one newline."""

    path: str
    symbol: str
    form: PieceForm
    shown: tuple[tuple[int, int], ...]
    body: str
    text: str

    @property
    def start(self) -> int:
        """First line shown."""
        return self.shown[0][0]

    @property
    def end(self) -> int:
        """Last line shown."""
        return self.shown[-1][1]


def chunk_lines(chunk: Chunk, view: FileView) -> frozenset[int]:
    """The line numbers of a chunk, its holes and the blank runs between them left out."""
    end = min(chunk.end, len(view.lines))
    numbers = set(range(max(chunk.start, 1), end + 1))
    for first, last in chunk.holes:
        numbers.difference_update(range(first, last + 1))
    if not chunk.holes:
        return frozenset(numbers)
    kept = (run for run in runs(numbers) if view.has_text(range(run[0], run[1] + 1)))
    return frozenset(number for run in kept for number in range(run[0], run[1] + 1))


def with_blank_gaps(numbers: frozenset[int], view: FileView) -> frozenset[int]:
    """The lines and the short blank gaps between them: a mark there would hide nothing."""
    ranges = runs(numbers)
    gaps = (range(left[1] + 1, right[0]) for left, right in itertools.pairwise(ranges))
    blank = (gap for gap in gaps if len(gap) <= _BLANK_GAP and not view.has_text(gap))
    return numbers.union(*blank)


def runs(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Line numbers as maximal inclusive ranges, ascending."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def render(
    view: FileView,
    numbers: Iterable[int],
    *,
    symbol: str = "",
    form: PieceForm = "whole",
    span: tuple[int, int] | None = None,
) -> Block:
    """Render these lines (at least one) of a file.

    With `span`, the region that the piece stands for, an elision mark also stands where the shown
    lines begin after it or end before it.
    """
    shown = runs(numbers)
    body = f"\n{ELISION}\n".join(view.text(range(first, last + 1)) for first, last in shown)
    if span and shown[0][0] > span[0]:
        body = f"{ELISION}\n{body}"
    if span and shown[-1][1] < span[1]:
        body = f"{body}\n{ELISION}"
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(body)), default=0))
    header = _header(view.path, symbol, form, shown)
    text = f"{header}\n{fence}{view.language}\n{body}\n{fence}\n"
    return Block(view.path, symbol, form, shown, body, text)


def _header(path: str, symbol: str, form: PieceForm, shown: Sequence[tuple[int, int]]) -> str:
    place = f"### {_printable(path)}:L{shown[0][0]}-{shown[-1][1]}"
    name = f" {_printable(symbol)}" if symbol else ""
    if form == "part":
        ranges = ", ".join(f"L{first}-{last}" for first, last in shown)
        return f"{place}{name} (part: {ranges})"
    return f"{place}{name} (signatures)" if form == "signatures" else f"{place}{name}"


def _printable(text: str) -> str:
    return _NOT_PRINTED.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
