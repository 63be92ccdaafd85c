"""Where the lines that a past change added stand today.

A function's name leads to it as long as it has that name. Of a hunk that names nothing, or nothing
that is still there, the added lines are looked for in the file of today: a line that stands there
just once has moved with its function, whatever that is called now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.retrieval.chunking import Piece
    from agent.retrieval.corpus import Corpus

MIN_LINES = 2
"""Of a hunk in a function: one line may be like another by chance."""

_MIN_LINE = 12  # characters without the indentation: shorter ones (`return None`) are anywhere


@dataclass(slots=True)
class LineFollower:
    """Finds pieces of the corpus by lines; each file of the snapshot is read once."""

    snapshot: Snapshot
    corpus: Corpus
    _places: dict[int, Mapping[str, int]] = field(default_factory=dict)

    def pieces(self, file: int, text: str) -> Sequence[int]:
        """Pieces with a name in which at least MIN_LINES lines of `text` stand, in order."""
        places = self._places_in(file)
        lines = dict.fromkeys(line.strip() for line in text.split("\n"))
        found = [places[line] for line in lines if line in places]
        if len(found) < MIN_LINES:
            return ()
        named = [pair for pair in self.corpus.pieces_of(file) if pair[1].symbol]
        counts = Counter(number for line in found for number in _holding(named, line))
        return tuple(sorted(number for number, count in counts.items() if count >= MIN_LINES))

    def _places_in(self, file: int) -> Mapping[str, int]:
        if file not in self._places:
            text = self.snapshot.text(self.corpus.files[file].path)
            self._places[file] = places_of_lines(text)
        return self._places[file]


def places_of_lines(text: str) -> Mapping[str, int]:
    """Line numbers, 1-based, of the lines that occur once, without what stands around them."""
    stripped = [line.strip() for line in text.split("\n")]
    counts = Counter(stripped)
    return {
        line: number
        for number, line in enumerate(stripped, start=1)
        if len(line) >= _MIN_LINE and counts[line] == 1
    }


def _holding(pieces: Iterable[tuple[int, Piece]], line: int) -> Iterable[int]:
    for number, piece in pieces:
        inside = piece.start <= line <= piece.end
        if inside and not any(start <= line <= end for start, end in piece.holes):
            yield number
