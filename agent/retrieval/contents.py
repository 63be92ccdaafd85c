"""What the words of some files say: terms of their pieces, names that they use, imports.

All files are looked at together, in a few passes over arrays: one by one, most of the time would go
into calls for a hundred elements each. No file's result depends on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.references import bases, imports
from agent.retrieval.vocabulary import DEFINER, IMPORTER, KEYWORD, NUMBER, TYPE_NAME, Vocabulary
from agent.retrieval.words import Words, WordScanner
from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.sources import Source

MAX_USES = 200
"""Names kept of what one piece uses: a longer list is a registry, not a caller."""

_MAX_INDEXED_BYTES = 200_000  # of one piece: what follows in a longer one is data
_COUNT_BITS = 18  # hold the number of words in that many bytes
_OPEN, _DOT, _COLON, _ARROW = b"(.:>"


@dataclass(frozen=True, slots=True)
class PieceTerms:
    """Terms of pieces: what a `PieceEncoder` makes vectors of.

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


def _capped_runs(owners: NDArray[np.int64], hashes: NDArray[np.uint64], size: int) -> Runs:
    """The first `MAX_USES` of each owner; owners ascend."""
    sizes = np.bincount(owners, minlength=size)
    rank = np.arange(owners.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Runs(np.minimum(sizes, MAX_USES), hashes[rank < MAX_USES])


class Contents:
    """The words of some files and where they stand."""

    def __init__(self, source: Source, scanner: WordScanner, vocabulary: Vocabulary) -> None:
        self._source = source
        self._scanner = scanner
        self._vocabulary = vocabulary
        self._row_starts = source.row_starts()
        words = scanner.scan(source.data)
        bounds = np.searchsorted(words.starts, self._row_starts)
        per_row = np.diff(bounds, append=words.starts.size)
        owners = np.repeat(source.owners, per_row)
        kept = self._indexed(words, owners, per_row)
        self._words = Words(words.starts[kept], words.ends[kept], words.hashes[kept])
        self._owners = owners[kept]
        self._numbers = vocabulary.numbers(source.data, self._words)
        self._flags = vocabulary.flags(self._numbers)

    def _indexed(
        self, words: Words, owners: NDArray[np.int64], per_row: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Words of some piece, within the first `_MAX_INDEXED_BYTES` of it."""
        kept = owners >= 0
        if self._source.longest <= _MAX_INDEXED_BYTES:
            return kept
        lengths = np.diff(self._row_starts, append=len(self._source.data))
        order = np.argsort(self._source.owners, kind="stable")
        running = np.cumsum(lengths[order]) - lengths[order]
        own = self._source.owners[order]
        begins = np.flatnonzero(np.diff(own, prepend=-2))
        running -= np.repeat(running[begins], np.diff(begins, append=own.size))
        before = np.empty_like(running)
        before[order] = running
        offset = np.repeat(before - self._row_starts, per_row) + words.starts
        return kept & (offset < _MAX_INDEXED_BYTES)

    def terms(self) -> PieceTerms:
        """Count words of each piece, then the terms of those words."""
        size, width = self._source.size, _bits(int(self._numbers.max(initial=0)) + 1)
        pairs, counts = _counted(self._owners << width | self._numbers)
        words, owners = pairs & ((1 << width) - 1), pairs >> width
        named = owners >= size
        slots = (owners - size * named) << 1 | named
        sizes = self._vocabulary.term_counts(words)
        terms = self._vocabulary.terms(words)
        vocabulary, ranks = _ranked(terms, self._vocabulary.term_hashes)
        # Sorted with their counts in the low bits: several times faster than sorting positions.
        width = _bits(size)
        keys = (ranks << (width + 1) | np.repeat(slots, sizes)) << _COUNT_BITS
        keys = np.sort(keys | np.repeat(counts, sizes))
        found, weights = keys >> _COUNT_BITS, keys & ((1 << _COUNT_BITS) - 1)
        named = (found & 1).astype(np.bool_)
        entries = found >> 1
        begins = np.flatnonzero(np.diff(entries, prepend=-1))
        entries = entries[begins]
        return PieceTerms(
            size,
            vocabulary,
            entries & ((1 << width) - 1),
            entries >> width,
            _run_sums(np.where(named, 0, weights), begins),
            _run_sums(np.where(named, weights, 0), begins),
        )

    def leaves(self) -> NDArray[np.uint64]:
        """(n,): hash of the last word of each symbol, 0 where there is none."""
        leaves = np.zeros(self._source.size, dtype=np.uint64)
        named = self._owners >= self._source.size
        leaves[self._owners[named] - self._source.size] = self._words.hashes[named]
        return leaves

    def names(self) -> Names:
        """Leaf and bases of each piece, and what it calls, reads off objects or types."""
        leaves = self.leaves()
        chosen = self._used()
        owners, numbers = self._owners[chosen], self._numbers[chosen]
        foreign = self._words.hashes[chosen] != leaves[owners]
        names, ranks = _ranked(numbers[foreign], self._vocabulary.hashes)
        width = _bits(names.size)
        keys, _ = _counted(owners[foreign] << width | ranks)
        uses = _capped_runs(keys >> width, names[keys & ((1 << width) - 1)], leaves.size)
        return Names(leaves, uses, self._bases())

    def _used(self) -> NDArray[np.int64]:
        """Where words of code are `name(`, `.name`, `->name`, `::name`, or names of classes; not
        where those are defined.
        """
        data = np.frombuffer(self._source.data, np.uint8)
        starts, ends, flags = self._words.starts, self._words.ends, self._flags
        before = data[starts - 1]  # of the first word the line end at the end of all
        called = data[ends] == _OPEN
        member = (before == _DOT) | (before == _ARROW) | (before == _COLON)
        used: NDArray[np.bool_] = called | member | (flags & TYPE_NAME).astype(np.bool_)
        used &= (flags & (KEYWORD | NUMBER)) == 0
        used[1:] &= ~(((flags[:-1] & DEFINER) != 0) & (starts[1:] == ends[:-1] + 1))
        code = np.concatenate((self._source.code(), np.zeros(self._source.size, dtype=np.bool_)))
        return np.flatnonzero(used & code[self._owners])

    def _bases(self) -> Runs:
        """Hashes of the names of each class's bases."""
        found = [
            bases(piece.signature, piece.symbol.rpartition(".")[2])
            if piece.kind is ChunkKind.CLASS
            else ()
            for piece in self._source.pieces
        ]
        text = "\n".join(name for names in found for name in names)
        hashes = self._scanner.scan(text.encode("utf-8", "replace")).hashes
        return Runs(np.array([len(names) for names in found], dtype=np.int64), hashes)

    def imports(self) -> list[str]:
        """What each file imports, by lines: looked for on lines that begin with a fitting word."""
        at = np.flatnonzero((self._flags & IMPORTER) != 0)
        starts = self._words.starts[at]
        lines = self._row_starts[np.searchsorted(self._row_starts, starts, side="right") - 1]
        before = np.where(at > 0, self._words.ends[at - 1], 0)
        lines = lines[before <= lines]  # first words only
        bounds = self._source.bounds
        cuts = np.searchsorted(lines, bounds)
        spans = zip(pairwise(bounds.tolist()), pairwise(cuts.tolist()), strict=True)
        return [
            _imports(file.language, self._source.data[start:end], lines[a:b] - start)
            for file, ((start, end), (a, b)) in zip(self._source.files, spans, strict=True)
        ]


def _imports(language: str, data: bytes, lines: NDArray[np.int64]) -> str:
    if not lines.size:
        return ""
    text = data.decode("latin-1")  # one character a byte, so that positions agree
    found = "\n".join(imports(text, lines.tolist(), language))
    return found.encode("latin-1").decode("utf-8", "replace")


def _ranked(
    numbers: NDArray[np.int64], hashes_of: Callable[[NDArray[np.int64]], NDArray[np.uint64]]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The distinct hashes of what is numbered, ascending, and each number's place among them."""
    present = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.bool_)
    present[numbers] = True
    distinct = np.flatnonzero(present)
    hashes, places = np.unique(hashes_of(distinct), return_inverse=True)
    ranks = np.zeros(present.size, dtype=np.int64)
    ranks[distinct] = places
    return hashes, ranks[numbers]


def _bits(count: int) -> int:
    """Bits that hold 0 .. count."""
    return count.bit_length()


def _counted(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys, ascending, and how often each occurs."""
    keys = np.sort(keys)
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[begins], np.diff(begins, append=keys.size)


def _run_sums(values: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.add.reduceat(values, begins) if begins.size else np.empty(0, dtype=np.int64)
