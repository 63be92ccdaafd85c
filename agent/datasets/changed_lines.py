"""Which lines of existing files a unified diff removes, and where it inserts lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from agent.repository.unified_diff import DiffHunk, DiffLine, read_diff

_TAB = 8


@dataclass(frozen=True, slots=True)
class Insertion:
    """Lines put in after old line `after` (0: at the top), in place of nothing but blank lines.

    `indent` is the column of the first inserted line that is not blank, None where all are blank.
    """

    after: int
    indent: int | None


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """An existing file: `removed` old lines (a changed line is one), and pure insertions."""

    path: str
    removed: tuple[int, ...]
    inserted: tuple[Insertion, ...]


def parse_patch(text: str) -> tuple[PatchedFile, ...]:
    """Return the existing files that a diff changes, in its order, without created ones.

    Raises ValueError for a hunk that belongs to no file or does not hold what its header says.
    """
    files = []
    for file in read_diff(text.encode("utf-8", "surrogatepass")):
        removed: list[int] = []
        inserted: list[Insertion] = []
        for before, run in (run for hunk in file.hunks for run in _runs(hunk)):
            old = {line.old: _text(line) for line in run if line.old is not None}
            added = [_text(line) for line in run if line.mark == "+"]
            removed += old
            if added and not any(text.strip() for text in old.values()):
                inserted.append(Insertion(max(old, default=before), _indent(added)))
        if file.old is not None and (removed or inserted):
            files.append(PatchedFile(file.old, tuple(removed), tuple(inserted)))
    return tuple(files)


def _runs(hunk: DiffHunk) -> Iterator[tuple[int, list[DiffLine]]]:
    """Yield the changed lines without a line of context between them, and the last old line
    before them.
    """
    first = next((line.old for line in hunk.lines if line.old is not None), hunk.old + 1)
    before = first - 1
    for is_context, group in groupby(hunk.lines, key=lambda line: line.mark == " "):
        lines = list(group)
        if not is_context:
            yield before, lines
        before = max((line.old for line in lines if line.old is not None), default=before)


def _text(line: DiffLine) -> str:
    return line.text.removesuffix(b"\n").decode("utf-8", "replace")


def _indent(lines: Sequence[str]) -> int | None:
    first = next((line.expandtabs(_TAB) for line in lines if line.strip()), None)
    return None if first is None else len(first) - len(first.lstrip())
