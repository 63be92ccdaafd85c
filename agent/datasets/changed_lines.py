"""Which lines of existing files a unified diff removes, and where it inserts lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    found = []
    for file in read_diff(text.encode("utf-8", "surrogatepass")):
        runs = [run for hunk in file.hunks for run in _runs(hunk)]
        removed = tuple(number for run in runs for number in run.removed)
        inserted = tuple(Insertion(r.after, _indent(r.added)) for r in runs if r.is_insertion)
        if file.old is not None and (removed or inserted):
            found.append(PatchedFile(file.old, removed, inserted))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Run:
    """Changed lines without a line of context between them. `after`: the last old line of it."""

    removed: Sequence[int]
    added: Sequence[str]
    is_insertion: bool
    after: int


def _runs(hunk: DiffHunk) -> Iterator[_Run]:
    first = next((line.old for line in hunk.lines if line.old is not None), hunk.old + 1)
    before, run = first - 1, list[DiffLine]()
    for line in hunk.lines:
        if line.mark == " ":
            yield _run(run, before)
            run = []
        else:
            run.append(line)
        before = line.old or before
    yield _run(run, before)


def _run(lines: Sequence[DiffLine], after: int) -> _Run:
    added = [_text(line) for line in lines if line.mark == "+"]
    only_blank = not any(_text(line).strip() for line in lines if line.mark == "-")
    removed = [line.old for line in lines if line.old is not None]
    return _Run(removed, added, bool(added) and only_blank, after)


def _text(line: DiffLine) -> str:
    return line.text.removesuffix(b"\n").decode("utf-8", "replace")


def _indent(lines: Sequence[str]) -> int | None:
    first = next((line.expandtabs(_TAB) for line in lines if line.strip()), None)
    return None if first is None else len(first) - len(first.lstrip())
