"""Renders the shown lines of a file as blocks in line order, each with a header and a fence. A new
block begins where code continues after a gap; imports and signatures stay in the block beside them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.shared.secrets import mask_secrets
from agent.shared.terminal import fence_around
from agent.types import Chunk, ChunkKind, PieceForm, ScoredChunk
from agent.types.protocols import Snapshot

Run = tuple[int, int]  # first and last line, inclusive


@dataclass(frozen=True, slots=True)
class FileView:
    """A file without its secrets. `lines[i]` is line i + 1; `masked` counts masked values."""

    path: str
    language: str
    lines: tuple[str, ...]
    masked: int

    def text(self, numbers: Iterable[int]) -> str:
        """Return the lines of these numbers, joined."""
        return "\n".join(self.lines[number - 1] for number in numbers)

    def run(self, first: int, last: int) -> str:
        """Return the lines `first` to `last`, joined."""
        return "\n".join(self.lines[first - 1 : last])

    def is_blank(self, number: int) -> bool:
        """Whether this line has only white space."""
        return not self.lines[number - 1].strip()


class FileViews(dict[str, FileView]):
    """The views of the files of a snapshot, each made when first needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __missing__(self, path: str) -> FileView:
        file, masked = self._snapshot.files[path], mask_secrets(self._snapshot.text(path))
        lines = tuple(masked.text.removesuffix("\n").split("\n"))
        self[path] = FileView(path, file.language, lines, masked.count)
        return self[path]


def chunk_lines(chunk: Chunk, view: FileView) -> frozenset[int]:
    """Return the line numbers of a chunk without its holes and the blank lines beside them."""
    return without_blank_ends((n for n in chunk.numbers() if 1 <= n <= len(view.lines)), view)


_CLOSERS = frozenset(")]};,\t\n ")


def without_blank_ends(numbers: Iterable[int], view: FileView) -> frozenset[int]:
    """Return the numbers without blank lines at both ends of every run, and without runs of closing
    brackets alone, which end what is not shown.
    """
    filled = (run for run in runs(numbers) if not _CLOSERS.issuperset(view.run(*run)))
    return frozenset(n for first, last in filled for n in _trimmed(first, last, view))


def runs(numbers: Iterable[int]) -> tuple[Run, ...]:
    """Return line numbers as maximal inclusive ranges, ascending."""
    ranges: list[Run] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def _trimmed(first: int, last: int, view: FileView) -> range:
    while first <= last and view.is_blank(first):
        first += 1
    while last > first and view.is_blank(last):
        last -= 1
    return range(first, last + 1)


ELISION = "⋮"
PREAMBLE = (
    f"A line `{ELISION}` stands for lines of the file that are left out: never copy it, and never "
    "quote lines from before and after it as one text.\n\n"
)

# A blank gap and a gap up to this size are shown, since a mark and a header would cost as much.
_BRIDGE_LINES = 4
_BRIDGE_CHARACTERS = 120

_NOT_PRINTED = re.compile(
    r"[\x00-\x1f\x7f`\u2028\u2029]"
)  # characters that would break a header line


@dataclass(frozen=True, slots=True)
class Choice:
    """A ranked chunk in the context. `tokens` is what it added when it was chosen."""

    rank: int
    scored: ScoredChunk
    lines: frozenset[int]  # all of the chunk's, or a part of them
    span: Run  # of the whole chunk
    form: PieceForm = "whole"
    header: frozenset[int] = frozenset()  # lines of its class header, which come with it
    tokens: int = 0

    @property
    def chunk(self) -> Chunk:
        """The chunk that was ranked."""
        return self.scored.chunk


@dataclass(frozen=True, slots=True)
class FileShare:
    """What the context shows of one file. `support` are lines beside the chosen chunks."""

    view: FileView
    choices: tuple[Choice, ...] = ()
    support: frozenset[int] = frozenset()

    @property
    def code(self) -> frozenset[int]:
        """The lines of the chosen chunks."""
        return frozenset().union(*(choice.lines for choice in self.choices))

    @property
    def shown(self) -> frozenset[int]:
        """All rendered lines, including those that close short gaps."""
        headers = (choice.header for choice in self.choices)
        numbers = self.code.union(self.support, *headers)
        ends = itertools.pairwise(runs(numbers))
        gaps = (range(before[1] + 1, after[0]) for before, after in ends)
        return numbers.union(*(gap for gap in gaps if _is_short(gap, self.view)))

    def with_choice(self, choice: Choice) -> FileShare:
        """Return a copy with one more chunk."""
        return replace(self, choices=(*self.choices, choice))

    def with_support(self, lines: frozenset[int]) -> FileShare:
        """Return a copy with these lines as support."""
        return replace(self, support=self.support | lines)

    def blocks(self) -> list[str]:
        """Return the rendered blocks, each with its header and a final line feed."""
        owners = {line: number for number, c in enumerate(self.choices) for line in c.lines}
        cut = [choice.span for choice in self.choices if choice.form == "part"]
        names = _method_names(self.choices)
        blocks = _blocks(self, owners)
        return [_render(self.view, owners, cut, names, one, one is blocks[0]) for one in blocks]

    def render(self) -> str:
        """Return the blocks with a blank line between them; "" if nothing is shown."""
        return "\n".join(self.blocks())


def _is_short(gap: range, view: FileView) -> bool:
    if all(map(view.is_blank, gap)):
        return True
    characters = (len(view.lines[number - 1].strip()) for number in gap)
    return len(gap) <= _BRIDGE_LINES and sum(characters) <= _BRIDGE_CHARACTERS


def _blocks(share: FileShare, owners: Mapping[int, int]) -> list[list[Run]]:
    blocks: list[list[Run]] = []
    for run in runs(share.shown):
        before = owners.get(blocks[-1][-1][1]) if blocks else None
        after = owners.get(run[0])
        if blocks and (before is None or after is None or before == after):
            blocks[-1].append(run)
        else:
            blocks.append([run])
    return blocks


def _render(
    view: FileView,
    code: Mapping[int, int],
    cut: Sequence[Run],
    names: Mapping[int, str],
    block: Sequence[Run],
    is_first: bool,
) -> str:
    body = f"\n{ELISION}\n".join(view.run(*run) for run in block)
    start, end = block[0][0], block[-1][1]
    if any(first < start <= last for first, last in cut):
        body = f"{ELISION}\n{body}"
    goes_on = not all(map(view.is_blank, range(end + 1, len(view.lines) + 1)))
    if (goes_on and end not in code) or any(first <= end < last for first, last in cut):
        body = f"{body}\n{ELISION}"
    fence = fence_around(body)
    name = names.get(start, "")
    size = f" of {len(view.lines)}" if is_first else ""
    header = f"### {printable(view.path)}:L{start}-{end}{size}{name}{_note(code, block)}"
    return f"{header}\n{fence}{view.language}\n{body}\n{fence}\n"


def _method_names(choices: Iterable[Choice]) -> Mapping[int, str]:
    """Return the name of the method on each line that a block with it may begin with."""
    methods = [choice for choice in choices if choice.chunk.kind is ChunkKind.METHOD]
    return {line: f" {printable(c.chunk.symbol)}" for c in methods for line in c.lines}


def _note(code: Mapping[int, int], block: Sequence[Run]) -> str:
    lines = ([n for n in range(first, last + 1) if n in code] for first, last in block)
    places = [(of_run[0], of_run[-1]) for of_run in lines if of_run]
    if not places:
        return " (signatures)"
    if len(block) == 1:
        return ""
    return f" (code: {', '.join(f'L{first}-{last}' for first, last in places)})"


def printable(text: str) -> str:
    """Return a path or symbol without characters that would break its line."""
    return _NOT_PRINTED.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
