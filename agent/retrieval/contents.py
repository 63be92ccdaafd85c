"""What the words of one file say: terms of its pieces, names that they use, imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.blocks import spread
from agent.retrieval.references import imports
from agent.retrieval.vocabulary import DEFINER, IMPORTER, KEYWORD, NUMBER, TYPE_NAME, Vocabulary
from agent.retrieval.words import Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.chunking import Piece

MAX_USES = 200
"""Names kept of what one piece uses: a longer list is a registry, not a caller."""

_MAX_INDEXED_BYTES = 200_000  # of one piece: what follows in a longer one is data
_COUNT_BITS = 18  # hold the number of words in that many bytes
_OPEN, _DOT, _COLON, _ARROW = b"(.:>"


@dataclass(frozen=True, slots=True)
class PieceTerms:
    """Terms of the pieces of one file: what a `PieceEncoder` makes vectors of.

    `vocabulary` uint64 (v,), ascending hashes (`identifiers.term_hash`). One entry is one term of
    one piece: `pieces`, `terms` int64 (m,) index pieces and vocabulary; `counts`, `name_counts`
    int64 (m,) are its occurrences in the text and in the symbol. Entries are ordered by term.
    """

    size: int
    vocabulary: NDArray[np.uint64]
    pieces: NDArray[np.int64]
    terms: NDArray[np.int64]
    counts: NDArray[np.int64]
    name_counts: NDArray[np.int64]

    def texts(self) -> list[dict[int, int]]:
        """Term hash -> occurrences in the text, piece by piece."""
        return self._maps(self.counts)

    def names(self) -> list[dict[int, int]]:
        """Term hash -> occurrences in the symbol, piece by piece."""
        return self._maps(self.name_counts)

    def _maps(self, counts: NDArray[np.int64]) -> list[dict[int, int]]:
        maps: list[dict[int, int]] = [{} for _ in range(self.size)]
        kept = counts > 0
        hashes = self.vocabulary[self.terms[kept]].tolist()
        pieces, values = self.pieces[kept].tolist(), counts[kept].tolist()
        for piece, key, value in zip(pieces, hashes, values, strict=True):
            maps[piece][key] = value
        return maps


@dataclass(frozen=True, slots=True)
class Runs:
    """`sizes` int64 (n,) cut `values` uint64 in runs."""

    sizes: NDArray[np.int64]
    values: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Names:
    """Hashes: `leaves` uint64 (n,), the names that each piece uses, those of each class's bases."""

    leaves: NDArray[np.uint64]
    uses: Runs
    bases: Runs


def no_names(size: int) -> Runs:
    """`size` empty runs."""
    return Runs(np.zeros(size, dtype=np.int64), np.empty(0, dtype=np.uint64))


def _capped_runs(owners: NDArray[np.int64], hashes: NDArray[np.uint64], size: int) -> Runs:
    """The first `MAX_USES` of each owner; owners ascend."""
    sizes = np.bincount(owners, minlength=size)
    rank = np.arange(owners.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Runs(np.minimum(sizes, MAX_USES), hashes[rank < MAX_USES])


class Source:
    """The file's bytes with the symbols of its pieces as further lines, and whose each line is.

    `owners` int64 (rows,): number of the piece, for the line of a symbol that number + `size`;
    -1 for a line of no piece (behind the final line end).
    """

    def __init__(self, text: str, pieces: Sequence[Piece]) -> None:
        self.text = text
        self.pieces = pieces
        self.size = len(pieces)
        body = text.encode("utf-8", "replace")
        symbols = "\n".join(piece.symbol for piece in pieces).encode("utf-8", "replace")
        self.data = body + b"\n" + symbols
        self.body_size = len(body)
        rows = body.count(b"\n") + 1
        self.owners = np.full(rows + self.size, -1, dtype=np.int64)
        self.owners[rows:] = np.arange(self.size) + self.size
        for number, piece in enumerate(pieces):
            first = piece.start - 1
            for hole_start, hole_end in piece.holes:
                self.owners[first : hole_start - 1] = number
                first = hole_end
            self.owners[first : piece.end] = number

    def row_starts(self) -> NDArray[np.int64]:
        """Where each line begins."""
        data = np.frombuffer(self.data, np.uint8)
        return np.concatenate(([0], np.flatnonzero(data == ord("\n")) + 1))


class Contents:
    """The words of one file and where they stand."""

    def __init__(self, source: Source, words: Words, vocabulary: Vocabulary) -> None:
        self._source = source
        self._vocabulary = vocabulary
        self._row_starts = source.row_starts()
        bounds = np.searchsorted(words.starts, self._row_starts[1 : source.owners.size])
        self._per_row = np.diff(bounds, prepend=0, append=words.starts.size)
        owners = np.repeat(source.owners[: self._per_row.size], self._per_row)
        kept = self._indexed(words, owners)
        self._words = Words(words.starts[kept], words.ends[kept], words.hashes[kept])
        self._owners = owners[kept]
        self._distinct, self._first, places = np.unique(
            self._words.hashes, return_index=True, return_inverse=True
        )
        self._places = places.astype(np.int64)
        self._numbers = vocabulary.numbers(source.data, self._words, self._first, self._distinct)

    def _indexed(self, words: Words, owners: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Words of some piece, within the first `_MAX_INDEXED_BYTES` of it."""
        kept = owners >= 0
        if self._source.body_size <= _MAX_INDEXED_BYTES:
            return kept
        lengths = np.diff(self._row_starts, append=len(self._source.data))
        order = np.argsort(self._source.owners, kind="stable")
        running = np.cumsum(lengths[order]) - lengths[order]
        own = self._source.owners[order]
        begins = np.flatnonzero(np.diff(own, prepend=-2))
        running -= np.repeat(running[begins], np.diff(begins, append=own.size))
        before = np.empty_like(running)
        before[order] = running
        offset = np.repeat(before - self._row_starts, self._per_row) + words.starts
        return kept & (offset < _MAX_INDEXED_BYTES)

    def terms(self) -> PieceTerms:
        """Count words of each piece, then the terms of those words."""
        size, width = max(self._source.size, 1), max(self._distinct.size, 1)
        pairs, counts = _counted(self._owners * width + self._places)
        words, owners = pairs % width, pairs // width
        sizes = self._vocabulary.term_counts(self._numbers)
        vocabulary, ranks = np.unique(
            self._vocabulary.term_hashes(self._vocabulary.terms(self._numbers)), return_inverse=True
        )
        chosen = spread((np.cumsum(sizes) - sizes)[words], sizes[words])
        # Sorted with their counts in the low bits: several times faster than sorting positions.
        slots = np.repeat((owners % size) * 2 + owners // size, sizes[words])
        keys = (ranks[chosen] * (2 * size) + slots) << _COUNT_BITS
        keys = np.sort(keys | np.repeat(counts, sizes[words]))
        found, weights = keys >> _COUNT_BITS, keys & ((1 << _COUNT_BITS) - 1)
        named = (found & 1).astype(np.bool_)
        entries = found >> 1
        begins = np.flatnonzero(np.diff(entries, prepend=-1))
        return PieceTerms(
            self._source.size,
            vocabulary,
            entries[begins] % size,
            entries[begins] // size,
            _run_sums(np.where(named, 0, weights), begins),
            _run_sums(np.where(named, weights, 0), begins),
        )

    def leaves(self) -> NDArray[np.uint64]:
        """(n,): hash of the last word of each symbol, 0 where there is none."""
        leaves = np.zeros(self._source.size, dtype=np.uint64)
        named = self._owners >= self._source.size
        leaves[self._owners[named] - self._source.size] = self._words.hashes[named]
        return leaves

    def names(self, code: bool, base_names: Runs) -> Names:
        """Leaf of each piece, its `base_names`, and what it calls, reads off objects or types."""
        leaves = self.leaves()
        if not code:
            return Names(leaves, no_names(leaves.size), base_names)
        used = self._used() & (self._owners < leaves.size)
        owners, places = self._owners[used], self._places[used]
        foreign = self._distinct[places] != leaves[owners]
        width = max(self._distinct.size, 1)
        keys, _ = _counted(owners[foreign] * width + places[foreign])
        uses = _capped_runs(keys // width, self._distinct[keys % width], leaves.size)
        return Names(leaves, uses, base_names)

    def _used(self) -> NDArray[np.bool_]:
        """`name(`, `.name`, `->name`, `::name`, and names of classes; not where it is defined."""
        data = np.frombuffer(self._source.data + b"\n", np.uint8)
        starts, ends = self._words.starts, self._words.ends
        flags = self._vocabulary.flags(self._numbers)[self._places]
        before = data[starts - 1]  # of the first word the line end that was just added
        called = data[ends] == _OPEN
        member = (before == _DOT) | (before == _ARROW) | (before == _COLON)
        used: NDArray[np.bool_] = called | member | (flags & TYPE_NAME).astype(np.bool_)
        used &= (flags & (KEYWORD | NUMBER)) == 0
        defined = np.zeros_like(used)
        defined[1:] = ((flags[:-1] & DEFINER) != 0) & (starts[1:] == ends[:-1] + 1)
        return used & ~defined

    def imports(self, language: str) -> tuple[str, ...]:
        """What the file imports: looked for on lines that begin with a fitting word."""
        flags = self._vocabulary.flags(self._numbers)[self._places]
        at = np.flatnonzero((flags & IMPORTER) != 0)
        if not at.size:
            return ()
        starts = self._words.starts[at]
        lines = self._row_starts[np.searchsorted(self._row_starts, starts, side="right") - 1]
        before = np.where(at > 0, self._words.ends[at - 1], 0)
        lines = lines[before <= lines]  # first words only
        # One character a byte, so that positions agree.
        text = self._source.data.decode("latin-1")
        found = imports(text, lines.tolist(), language)
        return tuple(line.encode("latin-1").decode("utf-8", "replace") for line in found)


def _counted(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys, ascending, and how often each occurs."""
    keys = np.sort(keys)
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[begins], np.diff(begins, append=keys.size)


def _run_sums(values: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.add.reduceat(values, begins) if begins.size else np.empty(0, dtype=np.int64)
