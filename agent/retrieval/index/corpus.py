"""Blocks, in which the index stores consecutive files, and the corpus of one query. A block may
come from a damaged or forged cache: `decode` returns None for anything but a valid one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from agent.retrieval.index.chunking import Piece
from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types import SourceFile

_Scalar = TypeVar("_Scalar", bound=np.generic)

KINDS = tuple(ChunkKind)
"""Kinds in the order of their numbers in a block."""

Block = dict[str, "NDArray[Any]"]
"""Columns of `f` files, `n` pieces, `v` distinct terms, `m` postings and `k` distinct names;
unsigned integers. Every `*_sizes` column splits another one into runs. `vocabulary`: ascending
hashes of terms; `postings` (v,): runs of `posting_pieces`, `counts`, `name_counts` (m,). `names`:
ascending hashes of identifiers; `leaves` (of symbols) and `uses` index it. Texts are
UTF-8, `vectors` int8 (n, dimension) as bytes.
"""

_LENGTHS = {
    "vocabulary": "postings", "names": "names", "postings": "postings",
    "posting_pieces": "+postings", "counts": "+postings", "name_counts": "+postings",
    "file_sizes": "file_sizes", "starts": "+file_sizes", "ends": "starts", "kinds": "starts",
    "text_lengths": "starts", "name_lengths": "starts",
    "symbol_sizes": "starts", "symbols": "+symbol_sizes",
    "signature_sizes": "starts", "signatures": "+signature_sizes",
    "hole_sizes": "starts", "holes": "+hole_sizes", "leaves": "starts",
    "use_sizes": "starts", "uses": "+use_sizes",
    "import_sizes": "file_sizes", "imports": "+import_sizes", "vectors": "vectors",
}  # fmt: skip
"""Columns in stored order, and the column that has as many elements; "+": their sum."""

_LIMITS = {"posting_pieces": "starts", "leaves": "names", "uses": "names"}
"""Columns of indices, and the column that they refer to."""

_HASHES = {"vocabulary", "names"}
_OF_TERMS = {"vocabulary", "postings", "posting_pieces", "counts", "name_counts"}


def spread(first: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return first[0], first[0] + 1, ... (sizes[0] numbers), then those of first[1], and so on."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    return np.repeat(first - ends + sizes, sizes) + np.arange(total)


def encode(block: Block) -> bytes:
    """Return the block as bytes: CRC-32, number and width of each column's elements, columns."""
    columns = [_narrow(block[name], name) for name in _LENGTHS]
    head = np.array([(column.size, column.itemsize) for column in columns], dtype="<u4")
    body = b"".join((head.tobytes(), *(column.tobytes() for column in columns)))
    return zlib.crc32(body).to_bytes(4, "little") + body


def _narrow(column: NDArray[Any], name: str) -> NDArray[Any]:
    top = int(column.max(initial=0))
    width = 8 if name in _HASHES else next(n for n in (1, 2, 4) if top < 1 << (8 * n))
    return column.astype(f"<u{width}", copy=False)


def decode(data: bytes, dimension: int = 0) -> Block | None:
    """Return the block, whose vectors have this dimension; None if `data` is not a valid one."""
    at = 4 + 8 * len(_LENGTHS)
    if len(data) < at or zlib.crc32(memoryview(data)[4:]).to_bytes(4, "little") != data[:4]:
        return None
    head = np.frombuffer(data, "<u4", 2 * len(_LENGTHS), 4).reshape(-1, 2).tolist()
    block: Block = {}
    for name, (count, width) in zip(_LENGTHS, head, strict=True):
        fits = width == 8 if name in _HASHES else width in (1, 2, 4)
        if not fits or at + count * width > len(data):
            return None
        block[name] = np.frombuffer(data, f"<u{width}", count, at)
        at += count * width
    return block if at == len(data) and _is_sound(block, dimension) else None


def _is_sound(block: Block, dimension: int) -> bool:
    """Whether columns fit together and every index is in range: a block may be forged."""
    for name, other in _LENGTHS.items():
        column = block[other.removeprefix("+")]
        size = int(column.sum(dtype=np.int64)) if other.startswith("+") else column.size
        if block[name].size != size:
            return False
    pieces = block["starts"].size
    limits = {"kinds": len(KINDS), **{name: block[of].size for name, of in _LIMITS.items()}}
    return (
        all((block[name] < limit).all() for name, limit in limits.items())
        and all(bool((block[name][1:] > block[name][:-1]).all()) for name in _HASHES)
        and bool((block["starts"] >= 1).all() and (block["starts"] <= block["ends"]).all())
        and not bool((block["hole_sizes"] % 2).any())
        and block["vectors"].size == pieces * dimension
    )


@dataclass(frozen=True, slots=True)
class CorpusRuns:
    """Values in runs: run i is `values[offsets[i]:offsets[i + 1]]`. `offsets` int64."""

    offsets: NDArray[np.int64]
    values: NDArray[np.uint64]

    def of(self, number: int) -> NDArray[np.uint64]:
        """Return the values of one run."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]


@dataclass(frozen=True, slots=True)
class Corpus:
    """`n` pieces of `f` files by path and start; `m` postings of the query's terms. `vectors` int8
    (rows, dimension) each, together n rows, or none without an encoder.
    """

    files: tuple[SourceFile, ...]
    pieces: PieceTable
    first_piece: tuple[int, ...]  # (f + 1,): file i has pieces first_piece[i] .. first_piece[i+1]-1
    piece_file: NDArray[np.int64]
    text_lengths: NDArray[np.float64]
    name_lengths: NDArray[np.float64]
    piece: NDArray[np.int64]
    term: NDArray[np.int64]
    counts: NDArray[np.float64]
    name_counts: NDArray[np.float64]
    symbols: Sequence[str]
    leaves: NDArray[np.uint64]  # (n,): `name_hash` of the last part of each symbol
    uses: CorpusRuns  # of the names that each piece uses
    imports: Sequence[str]  # (f,): lines of `references.imports`
    vectors: tuple[NDArray[np.int8], ...]

    def pieces_of(self, file: int) -> Iterator[tuple[int, Piece]]:
        """Yield number and piece of each piece of a file."""
        for number in range(self.first_piece[file], self.first_piece[file + 1]):
            yield number, self.pieces[number]

    def path_of(self, piece: int) -> str:
        """Return the path of the file that a piece belongs to."""
        return self.files[int(self.piece_file[piece])].path


class PieceTable:
    """Pieces by number, built on access: a query reads a few hundred of a hundred thousand."""

    def __init__(self, parts: Sequence[Block], symbols: Sequence[str]) -> None:
        self._symbols = symbols
        self._signatures = _texts(parts, "signatures", "signature_sizes")
        self._starts, self._ends, self._kinds = (
            _joined(parts, name, np.int64) for name in ("starts", "ends", "kinds")
        )
        self._holes = _runs(parts, "hole_sizes", "holes")

    def __len__(self) -> int:
        return len(self._symbols)

    def __getitem__(self, number: int) -> Piece:
        lines = self._holes.of(number).tolist()
        return Piece(
            int(self._starts[number]),
            int(self._ends[number]),
            self._symbols[number],
            KINDS[int(self._kinds[number])],
            self._signatures[number],
            tuple(zip(lines[::2], lines[1::2], strict=True)),
        )

    def __iter__(self) -> Iterator[Piece]:
        return (self[number] for number in range(len(self)))


class CorpusBuilder:
    """Builds the corpus in the order of `files`. `query`: uint64 (q,), sorted, distinct."""

    def __init__(self, files: Sequence[SourceFile], query: NDArray[np.uint64]) -> None:
        self._files = tuple(files)
        self._query = query
        self._parts: dict[int, Block] = {}

    def add(self, first: int, block: Block) -> None:
        """Add the block of the files from number `first` on. Columns are copied to free it."""
        chosen, terms = _chosen(block, self._query)
        part = {name: column.copy() for name, column in block.items() if name not in _OF_TERMS}
        names = part.pop("names")
        part |= {name: names[part[name]] for name in ("leaves", "uses")}
        part["term"] = terms
        part["piece"] = block["posting_pieces"][chosen].astype(np.int64)
        part |= {name: block[name][chosen] for name in ("counts", "name_counts")}
        self._parts[first] = part

    def finish(self) -> Corpus:
        """Return the corpus. Every file must be in some block. To be called once."""
        parts = [self._parts.pop(first) for first in sorted(self._parts)]
        sizes = _joined(parts, "file_sizes", np.int64)
        counts = [part["starts"].size for part in parts]
        for part, first in zip(parts, accumulate(counts, initial=0), strict=False):
            part["piece"] += first
        vectors = [part.pop("vectors").view(np.int8) for part in parts]
        symbols = _texts(parts, "symbols", "symbol_sizes")
        return Corpus(
            files=self._files,
            pieces=PieceTable(parts, symbols),
            first_piece=(0, *np.cumsum(sizes).tolist()),
            piece_file=np.repeat(np.arange(len(sizes)), sizes),
            text_lengths=_joined(parts, "text_lengths", np.float64),
            name_lengths=_joined(parts, "name_lengths", np.float64),
            piece=_joined(parts, "piece", np.int64),
            term=_joined(parts, "term", np.int64),
            counts=_joined(parts, "counts", np.float64),
            name_counts=_joined(parts, "name_counts", np.float64),
            symbols=symbols,
            leaves=_joined(parts, "leaves", np.uint64),
            uses=_runs(parts, "use_sizes", "uses"),
            imports=_texts(parts, "imports", "import_sizes"),
            vectors=tuple(
                rows.reshape(count, -1)
                for rows, count in zip(vectors, counts, strict=True)
                if rows.size
            ),
        )


def _chosen(block: Block, query: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the query's postings in the block, and the query's term of each."""
    vocabulary = block["vocabulary"]
    if not (query.size and vocabulary.size):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(vocabulary, query), vocabulary.size - 1)
    hits = np.flatnonzero(vocabulary[at] == query)
    sizes = block["postings"].astype(np.int64)
    firsts = np.cumsum(sizes) - sizes
    at = at[hits]
    return spread(firsts[at], sizes[at]), np.repeat(hits, sizes[at])


def _texts(parts: Sequence[Block], data: str, sizes: str) -> tuple[str, ...]:
    ends = np.cumsum(_joined(parts, sizes, np.int64)).tolist()
    encoded = _joined(parts, data, np.uint8).tobytes()
    spans = zip([0, *ends], ends, strict=False)
    if encoded.isascii():  # several times faster
        text = encoded.decode("ascii")
        return tuple([text[start:end] for start, end in spans])
    return tuple([encoded[start:end].decode("utf-8", "replace") for start, end in spans])


def _runs(parts: Sequence[Block], sizes: str, values: str) -> CorpusRuns:
    offsets = np.cumsum(_joined(parts, sizes, np.int64))
    return CorpusRuns(np.concatenate(([0], offsets)), _joined(parts, values, np.uint64))


def _joined(parts: Sequence[Block], column: str, dtype: type[_Scalar]) -> NDArray[_Scalar]:
    arrays = [part.pop(column) for part in parts]
    return np.concatenate([np.empty(0, dtype=dtype), *arrays], dtype=dtype, casting="unsafe")
