"""From a real change (old text, new text) to what a model would have written for it.

A draft is a reply before it has a shape: pieces of marked lines, each piece unique in the file, and
the truth. Perturbations change drafts, `rendering` gives them a shape.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.patching.cases import Likeness, Wanted

Marked = tuple[str, str]  # sign (" ", "-", "+") and text

# Context lines that models give around a change, and the most that a piece grows to be unique.
_CONTEXT = 3
_MOST_CONTEXT = 24


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of one place, as a diff marks them. `line`: where they begin in the old file."""

    marked: tuple[Marked, ...]
    line: int

    @property
    def old(self) -> list[str]:
        """The lines to be replaced."""
        return [text for sign, text in self.marked if sign != "+"]

    @property
    def new(self) -> list[str]:
        """The lines to put there."""
        return [text for sign, text in self.marked if sign != "-"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A reply without a shape. `given` is the path as the reply spells it.

    `search`: search lines per piece where they differ from the pieces' own (line numbers).
    `numbers`: of a diff's hunk headers: right, wrong, counts (those are wrong), none.
    `hints`: the reply gives the right line of each piece, in shapes that can.
    `slip`: how the rendered reply is damaged or wrapped, see `rendering`.
    """

    path: str
    given: str
    pieces: tuple[Piece, ...]
    files: Mapping[str, bytes]
    after: Mapping[str, bytes]
    wanted: Wanted = Wanted.APPLY
    search: tuple[tuple[str, ...], ...] = ()
    numbers: str = "right"
    hints: bool = False
    slip: str = ""
    finish_reason: str = "stop"
    likeness: Likeness = Likeness.BYTES
    whole: str = ""  # the content that a whole-file reply gives

    def with_file(self, before: bytes, after: bytes) -> Draft:
        """The same with other contents of the edited file."""
        return replace(self, files={**self.files, self.path: before}, after={self.path: after})


@dataclass(frozen=True, slots=True)
class Change:
    """One modified file of a real commit, and unchanged files beside it."""

    id: str
    path: str
    old: str
    new: str
    beside: Mapping[str, bytes] = field(default_factory=dict)


def draft(change: Change, *, context: int = _CONTEXT) -> Draft | None:
    """The change as pieces that are unique when applied in order, or None."""
    pieces = tuple(_pieces(change.old, change.new, context))
    if not pieces or not _rebuilds(change, pieces):
        return None
    files = {**change.beside, change.path: change.old.encode()}
    after = {change.path: change.new.encode()}
    return Draft(change.path, change.path, pieces, files, after, whole=change.new)


def _pieces(old: str, new: str, context: int) -> Iterator[Piece]:
    a, b = old.split("\n")[:-1], new.split("\n")[:-1]
    codes = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    done = 0
    for group in _groups([code for code in codes if code[0] != "equal"], 2 * context):
        start, end = group[0][1], group[-1][2]
        for extent in range(context, _MOST_CONTEXT):
            low, high = max(done, start - extent), min(len(a), end + extent)
            if _unique(old, a[low:high]):
                break
        yield Piece(tuple(_marked(a, b, group, low, high)), low + 1)
        done = end


def _groups(
    codes: Sequence[tuple[str, int, int, int, int]], apart: int
) -> list[list[tuple[str, int, int, int, int]]]:
    groups: list[list[tuple[str, int, int, int, int]]] = []
    for code in codes:
        if groups and code[1] - groups[-1][-1][2] <= apart:
            groups[-1].append(code)
        else:
            groups.append([code])
    return groups


def _marked(
    a: Sequence[str],
    b: Sequence[str],
    group: Sequence[tuple[str, int, int, int, int]],
    low: int,
    high: int,
) -> Iterator[Marked]:
    position = low
    for _, i, j, k, m in group:
        yield from ((" ", line) for line in a[position:i])
        yield from (("-", line) for line in a[i:j])
        yield from (("+", line) for line in b[k:m])
        position = j
    yield from ((" ", line) for line in a[position:high])


def text_of(lines: Sequence[str]) -> str:
    """Lines as the text that a search or replace field holds."""
    return "".join(f"{line}\n" for line in lines)


def times(text: str, part: str) -> int:
    """How often a part occurs as whole lines, overlapping places too."""
    padded, wanted = "\n" + text, "\n" + part
    count, at = 0, padded.find(wanted)
    while at >= 0:
        count, at = count + 1, padded.find(wanted, at + 1)
    return count


def _unique(text: str, lines: Sequence[str]) -> bool:
    return any(line.strip() for line in lines) and text.count(text_of(lines)) == 1


def _rebuilds(change: Change, pieces: Sequence[Piece]) -> bool:
    """Whether plain replacement, one piece after the other, gives the new text."""
    text = change.old
    for piece in pieces:
        search = text_of(piece.old)
        if not search.strip() or text.count(search) != 1:
            return False
        text = text.replace(search, text_of(piece.new))
    return text == change.new
