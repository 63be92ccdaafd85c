"""Cuts files and counts their contents: a `Block` of pieces with their terms and references. All
files are processed together over arrays. A file's part depends only on its content and language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.index.corpus import KINDS, Block, spread
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

FORMAT = 5
"""Increase when chunking, terms or the layout change; older records are then ignored."""


@dataclass(frozen=True, slots=True)
class CutFile:
    """The text of one file and the pieces that it was cut into."""

    language: str
    text: str
    pieces: Sequence[Piece]


class Source:
    """The bytes of all files. After each file follow the symbols of its pieces as lines, and an
    empty line. `sizes` int64 (f,): pieces of each file. `bounds` int64 (f + 1,): their starts.
    `owners` int64 (rows,): the piece of a line; + `size` for the line of a symbol; -1 for none.
    """

    def __init__(self, files: Sequence[CutFile]) -> None:
        self.files = files
        self.pieces = [piece for file in files for piece in file.pieces]
        self.size = len(self.pieces)
        self.sizes = np.array([len(file.pieces) for file in files], dtype=np.int64)
        bodies = [_LONG_LINE.sub(rb"\1", file.text.encode("utf-8", "replace")) for file in files]
        names = ["".join(f"{piece.symbol}\n" for piece in file.pieces) for file in files]
        parts = [
            b"%b\n%b\n" % (body, symbols.encode("utf-8", "replace"))
            for body, symbols in zip(bodies, names, strict=True)
        ]
        self.data = b"".join(parts)
        self.bounds = np.cumsum([0, *map(len, parts)])
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        self.row_starts = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends
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

    def code(self) -> NDArray[np.bool_]:
        """Whether each piece is in a language that has a grammar, bool (n,)."""
        code = [file.language in GRAMMARS for file in self.files]
        return np.repeat(np.array(code, dtype=np.bool_), self.sizes)


MAX_USES = 200
"""Most names that one piece uses: a longer list is a registry, not a caller."""

_LONG_LINE = re.compile(rb"^([^\n]{200000}[\w\x80-\xff]*)[^\n]+", re.MULTILINE)
"""What follows 200,000 bytes and the end of a word in a line is data."""
_COUNT_BITS = 18  # greater counts are cut
_OPEN, _DOT, _COLON, _ARROW = b"(.:>"


@dataclass(frozen=True, slots=True)
class PieceTerms:
    """Terms of pieces. `vocabulary` uint64 (v,), ascending `term_hash`es. `pieces`, `terms` int64
    (m,), ordered by term, are indices; `counts`, `name_counts` int64 (m,) occurrences in text and
    symbol.
    """

    size: int
    vocabulary: NDArray[np.uint64]
    pieces: NDArray[np.int64]
    terms: NDArray[np.int64]
    counts: NDArray[np.int64]
    name_counts: NDArray[np.int64]


Runs = tuple["NDArray[np.int64]", "NDArray[np.uint64]"]
"""Sizes (n,) of runs, and the hashes of all runs."""


class Contents:
    """The words of several files and their positions."""

    def __init__(self, source: Source, scanner: WordScanner, vocabulary: Vocabulary) -> None:
        self._source = source
        self._scanner = scanner
        self._vocabulary = vocabulary
        words = scanner.scan(source.data)
        bounds = np.searchsorted(words.starts, source.row_starts)
        owners = np.repeat(source.owners, np.diff(bounds, append=words.starts.size))
        inside = owners >= 0
        self._words = Words(words.starts[inside], words.ends[inside], words.hashes[inside])
        self._owners = owners[inside]
        self._numbers = vocabulary.numbers(source.data, self._words)
        self._flags = vocabulary.flags[self._numbers]

    def terms(self) -> PieceTerms:
        """Count the words of each piece, then the terms of those words."""
        size, width = self._source.size, int(self._numbers.max(initial=0)).bit_length()
        pairs, counts = _counted(self._owners << width | self._numbers)
        words, owners = pairs & ((1 << width) - 1), pairs >> width
        named = owners >= size
        slots = (owners - size * named) << 1 | named
        terms = self._vocabulary.terms(words)
        vocabulary, ranks = _ranked(terms, self._vocabulary.term_hashes)
        # Sorting keys with the counts in their low bits is several times faster than sorting
        # positions.
        width = size.bit_length()
        most = (1 << _COUNT_BITS) - 1
        sizes = self._vocabulary.sizes[words]
        keys = (ranks << (width + 1) | np.repeat(slots, sizes)) << _COUNT_BITS
        keys = np.sort(keys | np.repeat(np.minimum(counts, most), sizes))
        entries, weights = keys >> _COUNT_BITS, keys & most
        named = (entries & 1).astype(np.bool_)
        entries >>= 1
        begins = np.flatnonzero(np.diff(entries, prepend=-1))
        entries = entries[begins]
        return PieceTerms(
            size,
            vocabulary,
            entries & ((1 << width) - 1),
            entries >> width,
            *(
                np.add.reduceat(np.where(chosen, weights, 0), begins) if begins.size else begins
                for chosen in (~named, named)
            ),
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
        names, ranks = _ranked(numbers[foreign], self._vocabulary.words)
        width = names.size.bit_length()
        keys, _ = _counted(owners[foreign] << width | ranks)
        sizes = np.bincount(keys >> width, minlength=leaves.size)
        rank = np.arange(keys.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        hashes = names[keys & ((1 << width) - 1)]
        return np.minimum(sizes, MAX_USES), hashes[rank < MAX_USES]

    def _used(self) -> NDArray[np.int64]:
        """Find the words of code that are `name(`, `.name`, `->name`, `::name`, or names of
        classes. Words where such a name is defined are left out.
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
        names = [
            bases(piece.signature, piece.symbol.rpartition(".")[2])
            if piece.kind is ChunkKind.CLASS
            else ()
            for piece in self._source.pieces
        ]
        text = "\n".join(chain.from_iterable(names))
        hashes = self._scanner.scan(text.encode("utf-8", "replace")).hashes
        return np.array([len(some) for some in names], dtype=np.int64), hashes

    def imports(self) -> list[bytes]:
        """Return the imports of each file, read from lines that begin with an importing word."""
        at = np.flatnonzero((self._flags & IMPORTER) != 0)
        starts, rows = self._words.starts[at], self._source.row_starts
        lines = rows[np.searchsorted(rows, starts, side="right") - 1]
        before = np.where(at > 0, self._words.ends[at - 1], 0)
        lines = lines[before <= lines]  # first words only
        bounds = self._source.bounds
        cuts = np.searchsorted(lines, bounds)
        spans = zip(pairwise(bounds.tolist()), pairwise(cuts.tolist()), strict=True)
        return [
            _imports(file.language, self._source.data[start:end], lines[a:b] - start)
            for file, ((start, end), (a, b)) in zip(self._source.files, spans, strict=True)
        ]


def _imports(language: str, data: bytes, lines: NDArray[np.int64]) -> bytes:
    if not lines.size:
        return b""
    text = data.decode("latin-1")  # one character per byte, so that positions agree
    return "\n".join(imports(text, lines.tolist(), language)).encode("latin-1")


def _ranked(
    numbers: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    present = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.bool_)
    present[numbers] = True
    distinct = np.flatnonzero(present)
    values, places = np.unique(hashes[distinct], return_inverse=True)
    ranks = np.zeros(present.size, dtype=np.int64)
    ranks[distinct] = places
    return values, ranks[numbers]


def _counted(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keys = np.sort(keys)
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[begins], np.diff(begins, append=keys.size)


# ------------------------------------------------------------------------------------------ blocks


class PieceEncoder(Protocol):
    """Computes a vector for every piece from its terms alone. Pure; `dimension` is above 0.
    `fingerprint` changes with anything that changes a vector. Workers load their own from `path`.
    """

    @property
    def dimension(self) -> int: ...  # noqa: D102

    @property
    def fingerprint(self) -> str: ...  # noqa: D102

    @property
    def path(self) -> Path: ...  # noqa: D102

    def encode(self, terms: PieceTerms, /) -> bytes:
        """Return the vectors as bytes: int8 of shape (terms.size, dimension), C order."""
        ...


class BlockBuilder:
    """Cuts files and counts their contents. Holds parsers and cached words; use one per thread."""

    def __init__(self, encoder: PieceEncoder | None = None) -> None:
        self._chunker = TreeSitterChunker()
        self._scanner = WordScanner()
        self._vocabulary = Vocabulary()
        self._encoder = encoder

    def build(self, files: Sequence[tuple[str, str]]) -> Block:
        """Return the block of files, each a language and a decoded text."""
        source = Source([CutFile(lang, t, self._chunker.pieces(t, lang)) for lang, t in files])
        return _block(source, Contents(source, self._scanner, self._vocabulary), self._encoder)


def _block(source: Source, contents: Contents, encoder: PieceEncoder | None) -> Block:
    terms, leaves = contents.terms(), contents.leaves()
    use_sizes, uses = contents.uses(leaves)
    base_sizes, base_names = contents.bases()
    pieces, size = source.pieces, source.size
    names, places = np.unique(np.concatenate((leaves, uses, base_names)), return_inverse=True)
    leaf_places, use_places, base_places = np.split(places, np.cumsum((leaves.size, uses.size)))
    holes = [[line for hole in piece.holes for line in hole] for piece in pieces]
    return {
        "vocabulary": terms.vocabulary,
        "names": names,
        "postings": np.bincount(terms.terms, minlength=terms.vocabulary.size),
        "posting_pieces": terms.pieces,
        "counts": terms.counts,
        "name_counts": terms.name_counts,
        "file_sizes": source.sizes,
        "starts": _column([piece.start for piece in pieces]),
        "ends": _column([piece.end for piece in pieces]),
        "kinds": _column([KINDS.index(piece.kind) for piece in pieces]),
        "text_lengths": np.bincount(terms.pieces, terms.counts, size),
        "name_lengths": np.bincount(terms.pieces, terms.name_counts, size),
        **_texts("symbol", [piece.symbol.encode("utf-8", "replace") for piece in pieces]),
        **_texts("signature", [piece.signature.encode("utf-8", "replace") for piece in pieces]),
        "hole_sizes": _column([len(lines) for lines in holes]),
        "holes": _column([line for lines in holes for line in lines]),
        "leaves": leaf_places,
        "use_sizes": use_sizes,
        "uses": use_places,
        "base_sizes": base_sizes,
        "bases": base_places,
        **_texts("import", contents.imports()),
        "vectors": np.frombuffer(encoder.encode(terms) if encoder else b"", np.uint8),
    }


def _column(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _texts(name: str, texts: list[bytes]) -> Block:
    data = np.frombuffer(b"".join(texts), np.uint8)
    return {f"{name}_sizes": _column([len(text) for text in texts]), f"{name}s": data}
