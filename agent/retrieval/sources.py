"""The bytes of some files laid out one after another, and what each of their lines belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.blocks import spread
from agent.retrieval.grammars import GRAMMARS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.chunking import Piece


@dataclass(frozen=True, slots=True)
class CutFile:
    """One file: its text and the pieces of it."""

    language: str
    text: str
    pieces: Sequence[Piece]


class Source:
    """The bytes of all files, with what each of their lines belongs to.

    Behind each file stand the symbols of its pieces as further lines, and an empty line. Pieces are
    numbered through; `sizes` int64 (f,) says how many each file has. `bounds` int64 (f + 1,): where
    each file begins. `owners` int64 (rows,): the piece of a line; for the line of a symbol that
    number + `size`; -1 for a line of no piece. `longest`: bytes of the longest text.
    """

    def __init__(self, files: Sequence[CutFile]) -> None:
        self.files = files
        self.pieces = [piece for file in files for piece in file.pieces]
        self.size = len(self.pieces)
        self.sizes = np.array([len(file.pieces) for file in files], dtype=np.int64)
        bodies = [file.text.encode("utf-8", "replace") for file in files]
        texts = zip(bodies, map(_symbols, files), strict=True)
        parts = [b"%b\n%b\n" % both for both in texts]
        self.data = b"".join(parts)
        self.bounds = np.cumsum([0, *map(len, parts)])
        self.longest = max(map(len, bodies), default=0)
        rows = np.array([body.count(b"\n") + 1 for body in bodies], dtype=np.int64)
        self.owners = self._owners(rows)

    def _owners(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """`rows` int64 (f,): lines of each text."""
        ends = np.cumsum(rows + self.sizes + 1)
        owners = np.full(int(ends[-1]) if ends.size else 0, -1, dtype=np.int64)
        owners[spread(ends - self.sizes - 1, self.sizes)] = np.arange(self.size) + self.size
        first_row = np.repeat(ends - self.sizes - 1 - rows, self.sizes)
        holes = np.array([hole for piece in self.pieces for hole in piece.holes], dtype=np.int64)
        runs = np.array([len(piece.holes) + 1 for piece in self.pieces], dtype=np.int64)
        last = np.cumsum(runs)
        starts, ends = np.empty(runs.sum(), np.int64), np.empty(runs.sum(), np.int64)
        starts[last - runs] = [piece.start for piece in self.pieces]
        ends[last - 1] = [piece.end for piece in self.pieces]
        if holes.size:  # each ends a run and begins another
            inner = spread(last - runs, runs - 1)
            ends[inner], starts[inner + 1] = holes[:, 0] - 1, holes[:, 1] + 1
        pieces = np.repeat(np.arange(self.size), runs)
        lengths = ends - starts + 1
        owners[spread(first_row[pieces] + starts - 1, lengths)] = np.repeat(pieces, lengths)
        return owners

    def row_starts(self) -> NDArray[np.int64]:
        """Where each line begins."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        return np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends

    def code(self) -> NDArray[np.bool_]:
        """(n,): whether a piece is of a language that has a grammar."""
        code = [file.language in GRAMMARS for file in self.files]
        return np.repeat(np.array(code, dtype=np.bool_), self.sizes)


def _symbols(file: CutFile) -> bytes:
    return "".join(f"{piece.symbol}\n" for piece in file.pieces).encode("utf-8", "replace")
