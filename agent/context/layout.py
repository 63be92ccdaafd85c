"""How the lines shown of one file are laid out: blocks in line order, each with header and fence.

A fenced body holds nothing but lines of the file (the model copies its search texts from it) and
elision marks, which the preamble of the context explains. Lines that follow each other in the file
follow each other in the body, whatever put them into the context. A new block, and so a header with
its line numbers, begins where code goes on after a gap; imports, class headers and signatures stay
in the block of the code beside them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.context.views import FileView, Run, runs
from agent.types import Chunk, ChunkKind, PieceForm, ScoredChunk

ELISION = "⋮"
PREAMBLE = (
    f"A line `{ELISION}` stands for lines of the file that are left out: never copy it, and never "
    "quote lines from before and after it as one text.\n\n"
)

# A gap up to this size is shown, as is a blank one: a mark and a header would cost as much.
_BRIDGE_LINES = 4
_BRIDGE_CHARACTERS = 60

_BACKTICKS = re.compile(r"`+")
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f`\u2028\u2029]")  # what would break a header line


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
    """What the context shows of one file. `support` are further lines that were asked for."""

    view: FileView
    choices: tuple[Choice, ...] = ()
    support: frozenset[int] = frozenset()

    @property
    def code(self) -> frozenset[int]:
        """The lines of the chosen chunks."""
        return frozenset().union(*(choice.lines for choice in self.choices))

    @property
    def shown(self) -> frozenset[int]:
        """Every line that is rendered, those that close short gaps included."""
        headers = (choice.header for choice in self.choices)
        numbers = self.code.union(self.support, *headers)
        ends = itertools.pairwise(runs(numbers))
        gaps = (range(before[1] + 1, after[0]) for before, after in ends)
        return numbers.union(*(gap for gap in gaps if _is_short(gap, self.view)))

    def with_choice(self, choice: Choice) -> FileShare:
        """The same with one chunk more."""
        return replace(self, choices=(*self.choices, choice))

    def with_support(self, lines: frozenset[int]) -> FileShare:
        """The same with these lines too."""
        return replace(self, support=self.support | lines)

    def blocks(self) -> list[str]:
        """Each with its header, and a line end at its end."""
        code = self.code
        return [_render(self, code, block) for block in _blocks(self, code)]

    def render(self) -> str:
        """The blocks of the file with a blank line between them; "" when nothing is shown."""
        return "\n".join(self.blocks())


def _is_short(gap: range, view: FileView) -> bool:
    if all(map(view.is_blank, gap)):
        return True
    characters = (len(view.lines[number - 1].strip()) for number in gap)
    return len(gap) <= _BRIDGE_LINES and sum(characters) <= _BRIDGE_CHARACTERS


def _blocks(share: FileShare, code: frozenset[int]) -> list[list[Run]]:
    blocks: list[list[Run]] = []
    for run in runs(share.shown):
        if blocks and not _is_apart(share, code, blocks[-1][-1], run):
            blocks[-1].append(run)
        else:
            blocks.append([run])
    return blocks


def _is_apart(share: FileShare, code: frozenset[int], before: Run, after: Run) -> bool:
    """Whether code ends, and other code goes on, at a gap that is not inside of one chunk."""
    ends = {before[1], after[0]}
    return ends <= code and not any(ends <= choice.lines for choice in share.choices)


def _render(share: FileShare, code: frozenset[int], block: Sequence[Run]) -> str:
    view = share.view
    body = f"\n{ELISION}\n".join(view.run(*run) for run in block)
    start, end = block[0][0], block[-1][1]
    cut = [choice.span for choice in share.choices if choice.form == "part"]
    if any(first < start <= last for first, last in cut):
        body = f"{ELISION}\n{body}"
    goes_on = not all(map(view.is_blank, range(end + 1, len(view.lines) + 1)))
    if (goes_on and end not in code) or any(first <= end < last for first, last in cut):
        body = f"{body}\n{ELISION}"
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(body)), default=0))
    header = f"### {_printable(view.path)}:L{start}-{end}{_name(share, start)}{_note(code, block)}"
    return f"{header}\n{fence}{view.language}\n{body}\n{fence}\n"


def _name(share: FileShare, start: int) -> str:
    """The method that a block begins with: its class is not to be seen there."""
    names = (
        choice.chunk.symbol
        for choice in share.choices
        if choice.chunk.kind is ChunkKind.METHOD and start in choice.lines
    )
    return "".join(f" {_printable(name)}" for name in names)


def _note(code: frozenset[int], block: Sequence[Run]) -> str:
    """Says where the code of a block stands, if the header's first and last line do not."""
    lines = (code.intersection(range(first, last + 1)) for first, last in block)
    places = [(min(of_run), max(of_run)) for of_run in lines if of_run]
    if not places:
        return " (signatures)"
    if len(block) == 1:
        return ""
    return f" (code: {', '.join(f'L{first}-{last}' for first, last in places)})"


def _printable(text: str) -> str:
    return _NOT_PRINTED.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
