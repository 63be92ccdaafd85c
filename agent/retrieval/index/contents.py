"""Cuts files and counts their contents: a `Block` of pieces with their terms and references.

All files are processed together in a few passes over arrays; with one file at a time, numpy's
overhead per call would dominate. A file's part of a block depends only on the file's content and
language, never on its path or other files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.index.corpus import KINDS, Block, Postings, by_name, by_term, merge, spread
from agent.retrieval.index.outline import GRAMMARS
from agent.retrieval.index.references import bases, imports
from agent.retrieval.index.words import (
    DEFINER,
    IMPORTER,
    KEYWORD,
    NUMBER,
    TYPE_NAME,
    Vocabulary,
    Words,
    WordScanner,
)
from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index.chunking import Piece

FORMAT = 4
"""Increase when chunking, terms or the layout change; older records are then ignored."""


@dataclass(frozen=True, slots=True)
class CutFile:
    """The text of one file and the pieces that it was cut into."""

    language: str
    text: str
    pieces: Sequence[Piece]


class Source:
    """The bytes of all files, and the piece that each line belongs to.

    After each file follow the symbols of its pieces as additional lines, and an empty line. Pieces
    are numbered across files; `sizes` int64 (f,) is the number of pieces of each file. `bounds`
    int64 (f + 1,): the start of each file. `owners` int64 (rows,): the piece of a line; for the
    line of a symbol that number + `size`; -1 for a line of no piece. `longest`: bytes of the
    longest text.
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
        """Return the owners of all lines. `rows` int64 (f,): number of lines of each text."""
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
        if holes.size:  # each hole ends a run and begins another
            inner = spread(last - runs, runs - 1)
            ends[inner], starts[inner + 1] = holes[:, 0] - 1, holes[:, 1] + 1
        pieces = np.repeat(np.arange(self.size), runs)
        lengths = ends - starts + 1
        owners[spread(first_row[pieces] + starts - 1, lengths)] = np.repeat(pieces, lengths)
        return owners

    def row_starts(self) -> NDArray[np.int64]:
        """Offset of the first byte of each line."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        return np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends

    def code(self) -> NDArray[np.bool_]:
        """Whether each piece is in a language that has a grammar, bool (n,)."""
        code = [file.language in GRAMMARS for file in self.files]
        return np.repeat(np.array(code, dtype=np.bool_), self.sizes)


def _symbols(file: CutFile) -> bytes:
    return "".join(f"{piece.symbol}\n" for piece in file.pieces).encode("utf-8", "replace")


MAX_USES = 200
"""Most names that one piece uses: a longer list is a registry, not a caller."""

_MAX_INDEXED_BYTES = 200_000  # for one piece; the rest of a longer one is data
_COUNT_BITS = 18  # enough for the number of words in that many bytes
_OPEN, _DOT, _COLON, _ARROW = b"(.:>"


@dataclass(frozen=True, slots=True)
class PieceTerms:
    """Terms of pieces, from which a `PieceEncoder` computes vectors.

    `vocabulary` uint64 (v,), ascending hashes (`words.term_hash`). One entry is one term of
    one piece: `pieces`, `terms` int64 (m,) are indices of pieces and vocabulary; `counts`,
    `name_counts` int64 (m,) are its occurrences in the text and in the symbol. Entries are ordered
    by term.
    """

    size: int
    vocabulary: NDArray[np.uint64]
    pieces: NDArray[np.int64]
    terms: NDArray[np.int64]
    counts: NDArray[np.int64]
    name_counts: NDArray[np.int64]


Runs = tuple["NDArray[np.int64]", "NDArray[np.uint64]"]
"""Sizes (n,) of runs, and the hashes of all runs."""


def _capped_runs(owners: NDArray[np.int64], hashes: NDArray[np.uint64], size: int) -> Runs:
    """Return the first `MAX_USES` hashes of each owner; owners ascend."""
    sizes = np.bincount(owners, minlength=size)
    rank = np.arange(owners.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.minimum(sizes, MAX_USES), hashes[rank < MAX_USES]


class Contents:
    """The words of several files and their positions."""

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
        """Return the words inside pieces, up to the first `_MAX_INDEXED_BYTES` of each piece."""
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
        """Count the words of each piece, then the terms of those words."""
        size, width = self._source.size, _bits(int(self._numbers.max(initial=0)) + 1)
        pairs, counts = _counted(self._owners << width | self._numbers)
        words, owners = pairs & ((1 << width) - 1), pairs >> width
        named = owners >= size
        slots = (owners - size * named) << 1 | named
        sizes = self._vocabulary.term_counts(words)
        terms = self._vocabulary.terms(words)
        vocabulary, ranks = _ranked(terms, self._vocabulary.term_hashes)
        # Sorting keys with the counts in their low bits is several times faster than sorting
        # positions.
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
        """Return the hash of the last word of each symbol, (n,), 0 for a piece without one."""
        leaves = np.zeros(self._source.size, dtype=np.uint64)
        named = self._owners >= self._source.size
        leaves[self._owners[named] - self._source.size] = self._words.hashes[named]
        return leaves

    def uses(self, leaves: NDArray[np.uint64]) -> Runs:
        """Return the names other than its leaf that each piece calls, reads or types."""
        chosen = self._used()
        owners, numbers = self._owners[chosen], self._numbers[chosen]
        foreign = self._words.hashes[chosen] != leaves[owners]
        names, ranks = _ranked(numbers[foreign], self._vocabulary.hashes)
        width = _bits(names.size)
        keys, _ = _counted(owners[foreign] << width | ranks)
        return _capped_runs(keys >> width, names[keys & ((1 << width) - 1)], leaves.size)

    def _used(self) -> NDArray[np.int64]:
        """Find the words of code that are `name(`, `.name`, `->name`, `::name`, or names of
        classes.

        Words where such a name is defined are left out.
        """
        data = np.frombuffer(self._source.data, np.uint8)
        starts, ends, flags = self._words.starts, self._words.ends, self._flags
        before = data[starts - 1]  # for the first word, this wraps to the final line end
        called = data[ends] == _OPEN
        member = (before == _DOT) | (before == _ARROW) | (before == _COLON)
        used: NDArray[np.bool_] = called | member | (flags & TYPE_NAME).astype(np.bool_)
        used &= (flags & (KEYWORD | NUMBER)) == 0
        used[1:] &= ~(((flags[:-1] & DEFINER) != 0) & (starts[1:] == ends[:-1] + 1))
        code = np.concatenate((self._source.code(), np.zeros(self._source.size, dtype=np.bool_)))
        return np.flatnonzero(used & code[self._owners])

    def bases(self) -> Runs:
        """Return the hashes of the names of each class's bases."""
        found = [
            bases(piece.signature, piece.symbol.rpartition(".")[2])
            if piece.kind is ChunkKind.CLASS
            else ()
            for piece in self._source.pieces
        ]
        text = "\n".join(name for names in found for name in names)
        hashes = self._scanner.scan(text.encode("utf-8", "replace")).hashes
        return np.array([len(names) for names in found], dtype=np.int64), hashes

    def imports(self) -> list[str]:
        """Return the imports of each file, read from lines that begin with an importing word."""
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
    text = data.decode("latin-1")  # one character per byte, so that positions agree
    found = "\n".join(imports(text, lines.tolist(), language))
    return found.encode("latin-1").decode("utf-8", "replace")


def _ranked(
    numbers: NDArray[np.int64], hashes_of: Callable[[NDArray[np.int64]], NDArray[np.uint64]]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the distinct hashes of the numbers, ascending, and each number's index among them."""
    present = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.bool_)
    present[numbers] = True
    distinct = np.flatnonzero(present)
    hashes, places = np.unique(hashes_of(distinct), return_inverse=True)
    ranks = np.zeros(present.size, dtype=np.int64)
    ranks[distinct] = places
    return hashes, ranks[numbers]


def _bits(count: int) -> int:
    """Return the number of bits that hold 0 .. count."""
    return count.bit_length()


def _counted(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct keys, ascending, and the count of each."""
    keys = np.sort(keys)
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[begins], np.diff(begins, append=keys.size)


def _run_sums(values: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.add.reduceat(values, begins) if begins.size else np.empty(0, dtype=np.int64)


# ------------------------------------------------------------------------------------------ blocks


class PieceEncoder(Protocol):
    """Computes a vector for every piece from its terms alone. Pure; `dimension` is above 0.

    `fingerprint` is part of the records' keys. A worker process loads its own encoder from `path`.
    """

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes with anything that changes a vector."""
        ...

    @property
    def path(self) -> Path:
        """The file that a worker process loads the encoder from."""
        ...

    def encode(self, terms: PieceTerms, /) -> bytes:
        """Return the vectors as bytes: int8 of shape (terms.size, dimension), C order."""
        ...


_AT_ONCE = 400_000  # characters: arrays for so many fit in the processor's cache
_KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


class BlockBuilder:
    """Cuts files and counts their contents. Holds parsers and cached words; use one per thread."""

    def __init__(self, encoder: PieceEncoder | None = None) -> None:
        self._chunker = TreeSitterChunker()
        self._scanner = WordScanner()
        self._vocabulary = Vocabulary()
        self._encoder = encoder

    def build(self, files: Sequence[tuple[str, str]]) -> Block:
        """Return the block of files, each a language and a decoded text."""
        blocks = [self._build(some) for some in batches(files, _AT_ONCE)]
        return blocks[0] if len(blocks) == 1 else merge(blocks)

    def _build(self, files: Sequence[tuple[str, str]]) -> Block:
        source = Source([CutFile(lang, t, self._chunker.pieces(t, lang)) for lang, t in files])
        contents = Contents(source, self._scanner, self._vocabulary)
        return _block(source, contents, self._encoder)


def batches(files: Iterable[tuple[str, str]], limit: int) -> Iterator[list[tuple[str, str]]]:
    """Yield runs of files with about `limit` characters of text each."""
    batch: list[tuple[str, str]] = []
    size = 0
    for file in files:
        batch.append(file)
        size += len(file[1])
        if size >= limit:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _block(source: Source, contents: Contents, encoder: PieceEncoder | None) -> Block:
    terms, leaves = contents.terms(), contents.leaves()
    use_sizes, uses = contents.uses(leaves)
    base_sizes, base_names = contents.bases()
    postings = Postings(terms.terms, terms.pieces, terms.counts, terms.name_counts)
    pieces = source.pieces
    size = source.size
    text_lengths = np.bincount(terms.pieces, terms.counts, size)
    name_lengths = np.bincount(terms.pieces, terms.name_counts, size)
    symbols = [piece.symbol.encode("utf-8", "replace") for piece in pieces]
    signatures = [piece.signature.encode("utf-8", "replace") for piece in pieces]
    holes = [[line for hole in piece.holes for line in hole] for piece in pieces]
    imported = [text.encode("utf-8", "replace") for text in contents.imports()]
    return Block(
        **by_term(terms.vocabulary, postings),
        **by_name(leaves, uses, base_names),
        file_sizes=_unsigned(source.sizes),
        starts=_unsigned([piece.start for piece in pieces]),
        ends=_unsigned([piece.end for piece in pieces]),
        kinds=_unsigned([_KIND_NUMBERS[piece.kind] for piece in pieces]),
        text_lengths=_unsigned(text_lengths),
        name_lengths=_unsigned(name_lengths),
        symbol_sizes=_unsigned([len(symbol) for symbol in symbols]),
        symbols=np.frombuffer(b"".join(symbols), np.uint8),
        signature_sizes=_unsigned([len(signature) for signature in signatures]),
        signatures=np.frombuffer(b"".join(signatures), np.uint8),
        hole_sizes=_unsigned([len(lines) for lines in holes]),
        holes=_unsigned([line for lines in holes for line in lines]),
        use_sizes=_unsigned(use_sizes),
        base_sizes=_unsigned(base_sizes),
        import_sizes=_unsigned([len(text) for text in imported]),
        imports=np.frombuffer(b"".join(imported), np.uint8),
        vectors=np.frombuffer(encoder.encode(terms) if encoder else b"", np.uint8),
        dimension=encoder.dimension if encoder else 0,
    )


def _unsigned(values: Sequence[int] | NDArray[np.generic]) -> NDArray[np.uint32]:
    return np.asarray(values).astype(np.uint32)
