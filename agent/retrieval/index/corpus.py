"""The candidates of one query: pieces of all files, and the postings of the query's terms.

Columns of pieces: the format in which the index stores consecutive files in path order.

The data of a file in a `Block` depends only on the file's content and language. The bytes may come
from a damaged or forged cache: `decode` returns None for anything but a valid block.

Layout (little-endian): magic, CRC-32 of all following bytes, vector dimension, for each column its
number of elements and their width, then the columns. Integers are as narrow as their largest value
allows.
"""

from __future__ import annotations

import struct
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from agent.retrieval.index.chunking import Piece
from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types import SourceFile


KINDS = tuple(ChunkKind)
"""Kinds in the order of their numbers in `Block.kinds`."""

_MAGIC = b"psb3"
_HEADER = struct.Struct("<4sIH")  # magic, checksum, dimension
_ENTRY = struct.Struct("<IB")  # number of elements, bytes per element
_WIDTHS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Block:
    """`f` files, `n` pieces, `v` distinct terms, `m` postings, `k` distinct names.

    Every `*_sizes` column splits the next column into runs. Integers are unsigned, of any width.

    `vocabulary` uint64 (v,), ascending: term hashes; `postings` (v,): runs of `posting_pieces`,
    `counts` (occurrences in the text), `name_counts` (in the symbol), each (m,), by piece. `names`
    uint64 (k,), ascending: hashes of identifiers (`words.WordScanner`). `leaves` (n,) (last
    part of the symbol), `uses` (names that a piece calls or refers to) and `bases` (of a class) are
    indices into it. `imports`: lines of UTF-8, see `references`. `vectors` int8, (n, dimension) in
    C order.
    """

    vocabulary: NDArray[np.uint64]
    names: NDArray[np.uint64]
    postings: NDArray[np.unsignedinteger]
    posting_pieces: NDArray[np.unsignedinteger]
    counts: NDArray[np.unsignedinteger]
    name_counts: NDArray[np.unsignedinteger]
    file_sizes: NDArray[np.unsignedinteger]  # (f,) pieces of each file
    starts: NDArray[np.unsignedinteger]  # (n,) first line
    ends: NDArray[np.unsignedinteger]  # (n,) last line
    kinds: NDArray[np.unsignedinteger]  # (n,) index into KINDS
    text_lengths: NDArray[np.unsignedinteger]  # (n,) in terms
    name_lengths: NDArray[np.unsignedinteger]  # (n,) in terms
    symbol_sizes: NDArray[np.unsignedinteger]  # (n,) bytes
    symbols: NDArray[np.uint8]  # UTF-8
    signature_sizes: NDArray[np.unsignedinteger]  # (n,) bytes
    signatures: NDArray[np.uint8]  # UTF-8
    hole_sizes: NDArray[np.unsignedinteger]  # (n,) two per hole
    holes: NDArray[np.unsignedinteger]  # first and last lines
    leaves: NDArray[np.unsignedinteger]  # (n,)
    use_sizes: NDArray[np.unsignedinteger]  # (n,)
    uses: NDArray[np.unsignedinteger]
    base_sizes: NDArray[np.unsignedinteger]  # (n,)
    bases: NDArray[np.unsignedinteger]
    import_sizes: NDArray[np.unsignedinteger]  # (f,) bytes
    imports: NDArray[np.uint8]
    vectors: NDArray[np.uint8]  # int8 stored as bytes
    dimension: int = 0


_COLUMNS = Block.__slots__[:-1]
_HASHES = 2  # the first columns hold 64-bit hashes

_HEAD_BYTES = _HEADER.size + len(_COLUMNS) * _ENTRY.size

_RUNS = (
    ("postings", ("posting_pieces", "counts", "name_counts")),
    ("symbol_sizes", ("symbols",)),
    ("signature_sizes", ("signatures",)),
    ("hole_sizes", ("holes",)),
    ("use_sizes", ("uses",)),
    ("base_sizes", ("bases",)),
    ("import_sizes", ("imports",)),
)
NAMES = ("leaves", "uses", "bases")
_OF_PIECES = [
    "starts", "ends", "kinds", "text_lengths", "name_lengths", "symbol_sizes",
    "signature_sizes", "hole_sizes", "leaves", "use_sizes", "base_sizes",
]  # fmt: skip

_PLAIN = [n for n in _COLUMNS[_COLUMNS.index("file_sizes") :] if n not in NAMES]
"""Columns that describe files and pieces without referring to terms or names."""


def spread(first: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return first[0], first[0] + 1, ... (sizes[0] numbers), then those of first[1], and so on."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    return np.repeat(first - ends + sizes, sizes) + np.arange(total)


def total(column: NDArray[np.unsignedinteger]) -> int:
    """Return the sum of a column as a Python integer."""
    return int(column.sum(dtype=np.int64))


def encode(block: Block) -> bytes:
    """Return the block as bytes."""
    columns = [_narrow(getattr(block, name)) for name in _COLUMNS]
    table = b"".join(_ENTRY.pack(column.size, column.itemsize) for column in columns)
    body = table + b"".join(column.tobytes() for column in columns)
    return _HEADER.pack(_MAGIC, zlib.crc32(body), block.dimension) + body


def _narrow(column: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    if column.dtype == np.uint64:
        return column.astype("<u8", copy=False)
    top = int(column.max(initial=0))
    width = next(width for width in _WIDTHS if top < 1 << (8 * width))
    return column.astype(f"<u{width}", copy=False)


def decode(data: bytes, *, trusted: bool = False) -> Block | None:
    """Return the block; None if `data` is not valid. `trusted`: this process has just made it."""
    try:
        magic, checksum, dimension = _HEADER.unpack_from(data)
        if magic != _MAGIC or zlib.crc32(memoryview(data)[_HEADER.size :]) != checksum:
            return None
        columns = _columns(data)
    except (struct.error, ValueError):
        return None
    named: dict[str, Any] = dict(zip(_COLUMNS, columns, strict=True))
    block = Block(**named, dimension=dimension)
    return block if trusted or _is_sound(block) else None


def _columns(data: bytes) -> list[NDArray[np.unsignedinteger]]:
    """Read the columns. Raises ValueError or struct.error if the bytes are invalid."""
    at = _HEAD_BYTES
    columns: list[NDArray[np.unsignedinteger]] = []
    for number, (count, width) in enumerate(_ENTRY.iter_unpack(data[_HEADER.size : at])):
        if (width == 8) != (number < _HASHES) or width not in {*_WIDTHS, 8}:
            raise ValueError("width")
        columns.append(np.frombuffer(data, f"<u{width}", count, at))
        at += count * width
    if at != len(data) or len(columns) != len(_COLUMNS):
        raise ValueError("length")
    return columns


def _is_sound(block: Block) -> bool:
    """Whether all columns fit together and every index is in range.

    The checksum detects damage; this check keeps a forged block from raising errors later.
    """
    pieces = block.starts.size
    if any(getattr(block, name).size != pieces for name in _OF_PIECES):
        return False
    for sizes, runs in _RUNS:
        count = total(getattr(block, sizes))
        if any(getattr(block, run).size != count for run in runs):
            return False
    if block.import_sizes.size != block.file_sizes.size or total(block.file_sizes) != pieces:
        return False
    if block.postings.size != block.vocabulary.size:
        return False
    if block.vectors.size != pieces * block.dimension:
        return False
    return _points_inside(block) and not bool((block.hole_sizes % 2).any())


def _points_inside(block: Block) -> bool:
    limits = (
        (block.posting_pieces, block.starts.size),
        (block.kinds, len(KINDS)),
        (block.leaves, block.names.size),
        (block.uses, block.names.size),
        (block.bases, block.names.size),
    )
    if any(column.size and int(column.max()) >= limit for column, limit in limits):
        return False
    ascending = all(bool((h[1:] > h[:-1]).all()) for h in (block.vocabulary, block.names))
    return ascending and bool((block.starts >= 1).all() and (block.starts <= block.ends).all())


def merge(blocks: Sequence[Block]) -> Block:
    """Return one block of all files in this order. All blocks have the same dimension."""
    vocabulary, places = np.unique(
        np.concatenate([block.vocabulary for block in blocks]), return_inverse=True
    )
    sizes = np.concatenate([block.postings for block in blocks])
    firsts = accumulate((block.starts.size for block in blocks), initial=0)
    postings = Postings(
        np.repeat(places, sizes),
        np.concatenate(
            [b.posting_pieces + np.uint32(n) for b, n in zip(blocks, firsts, strict=False)]
        ),
        np.concatenate([block.counts for block in blocks]),
        np.concatenate([block.name_counts for block in blocks]),
    )
    names = (
        np.concatenate([block.names[getattr(block, name)] for block in blocks]) for name in NAMES
    )
    columns = {name: np.concatenate([getattr(b, name) for b in blocks]) for name in _PLAIN}
    return Block(
        **columns,
        **by_term(vocabulary, postings),
        **by_name(*names),
        dimension=blocks[0].dimension,
    )


@dataclass(frozen=True, slots=True)
class Postings:
    """`m` postings: `terms` (m,) are indices into a vocabulary, the others are as in `Block`.

    They are ordered by piece within each term.
    """

    terms: NDArray[np.int64]
    pieces: NDArray[np.generic]
    counts: NDArray[np.generic]
    name_counts: NDArray[np.generic]


def by_term(vocabulary: NDArray[np.uint64], postings: Postings) -> dict[str, NDArray[Any]]:
    """Return the columns of the terms that have postings."""
    sizes = np.bincount(postings.terms, minlength=vocabulary.size)
    width = np.uint16 if vocabulary.size <= 1 << 16 else np.uint32  # numpy sorts uint16 by radix
    order = np.argsort(postings.terms.astype(width), kind="stable")
    return {
        "vocabulary": vocabulary[sizes > 0],
        "postings": sizes[sizes > 0].astype(np.uint32),
        "posting_pieces": postings.pieces[order].astype(np.uint32),
        "counts": postings.counts[order].astype(np.uint32),
        "name_counts": postings.name_counts[order].astype(np.uint32),
    }


def by_name(
    leaves: NDArray[np.uint64], uses: NDArray[np.uint64], bases: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    """Return the columns of the identifiers with these hashes."""
    names, places = np.unique(np.concatenate((leaves, uses, bases)), return_inverse=True)
    columns = np.split(places.astype(np.uint32), np.cumsum((leaves.size, uses.size)))
    return {"names": names, **dict(zip(NAMES, columns, strict=True))}


_Scalar = TypeVar("_Scalar", bound=np.generic)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CorpusRuns:
    """Values in runs: run i is `values[offsets[i]:offsets[i + 1]]`. `offsets` int64."""

    offsets: NDArray[np.int64]
    values: NDArray[np.uint64]

    def of(self, number: int) -> NDArray[np.uint64]:
        """Return the values of one run."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]


@dataclass(frozen=True, slots=True)
class CorpusNames:
    """Identifier hashes as in `vocabulary.Words`.

    They are the last part of each piece's symbol (uint64 (n,), 0 for none), the names that each
    piece uses, and the bases of each class.
    """

    leaves: NDArray[np.uint64]
    uses: CorpusRuns
    bases: CorpusRuns


@dataclass(frozen=True, slots=True)
class Corpus:
    """`n` pieces of `f` files, in order of path and start; `m` postings of the query's terms.

    Arrays: `piece_file` int64 (n,), `text_lengths` and `name_lengths` float64 (n,) in terms;
    `piece`, `term` int64 (m,) are indices of the pieces and the sorted query terms; `counts`,
    `name_counts` float64 (m,) occurrences in text and symbol; `vectors` int8 (rows, dimension)
    each, together n rows, or none without an encoder. `pieces`, their `symbols` and `imports` are
    decoded on access, because a query reads a few hundred of a hundred thousand.
    """

    files: tuple[SourceFile, ...]
    pieces: Sequence[Piece]
    first_piece: tuple[int, ...]  # (f + 1,): file i has pieces first_piece[i] .. first_piece[i+1]-1
    piece_file: NDArray[np.int64]
    text_lengths: NDArray[np.float64]
    name_lengths: NDArray[np.float64]
    piece: NDArray[np.int64]
    term: NDArray[np.int64]
    counts: NDArray[np.float64]
    name_counts: NDArray[np.float64]
    symbols: Sequence[str]
    names: CorpusNames
    imports: Sequence[str]  # (f,): lines of `references.imports`
    vectors: tuple[NDArray[np.int8], ...]

    def pieces_of(self, file: int) -> Iterator[tuple[int, Piece]]:
        """Yield number and piece of each piece of a file."""
        for number in range(self.first_piece[file], self.first_piece[file + 1]):
            yield number, self.pieces[number]

    def path_of(self, piece: int) -> str:
        """Return the path of the file that a piece belongs to."""
        return self.files[int(self.piece_file[piece])].path


class _Made(Sequence[_T]):
    """A sequence that builds its items on access and compares by content, like a list."""

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...
    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        if isinstance(index, slice):
            return tuple([self._make(number) for number in range(*index.indices(len(self)))])
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(index)
        return self._make(number)

    @abstractmethod
    def _make(self, number: int) -> _T:
        """Build item `number`, which must exist."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class Texts(_Made[str]):
    """UTF-8 texts stored one after another, each of the given size in bytes."""

    def __init__(self, data: bytes, sizes: NDArray[np.int64]) -> None:
        self._data = data
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes

    def __len__(self) -> int:
        return self._ends.size

    def _make(self, number: int) -> str:
        return self._data[self._starts[number] : self._ends[number]].decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        """Yield all in order, several times faster than one by one."""
        spans = zip(self._starts.tolist(), self._ends.tolist(), strict=True)
        if self._data.isascii():
            text = self._data.decode("ascii")
            return iter([text[start:end] for start, end in spans])
        return (self._data[start:end].decode("utf-8", "replace") for start, end in spans)


class PieceTable(_Made[Piece]):
    """Pieces decoded from the columns of blocks, which it takes out of `parts`.

    Pieces accessed by number are cached.
    """

    def __init__(self, parts: Sequence[_Part], symbols: Texts) -> None:
        self._symbols = symbols
        self._starts, self._ends, self._kinds = (
            _joined(parts, name, np.int64) for name in ("starts", "ends", "kinds")
        )
        self._holes = _runs(parts, "hole_sizes", "holes")
        self._signatures = _texts(parts, "signatures", "signature_sizes")
        self._known: dict[int, Piece] = {}

    def __len__(self) -> int:
        return len(self._symbols)

    def _make(self, number: int) -> Piece:
        known = self._known.get(number)
        if known is None:
            lines = self._holes.of(number).tolist()
            known = self._known[number] = Piece(
                int(self._starts[number]),
                int(self._ends[number]),
                self._symbols[number],
                KINDS[int(self._kinds[number])],
                self._signatures[number],
                tuple(zip(lines[::2], lines[1::2], strict=True)),
            )
        return known

    def __iter__(self) -> Iterator[Piece]:
        """Yield all in order, several times faster than one by one."""
        holes = self._holes.offsets
        columns = (self._starts, self._ends, self._kinds, holes[:-1], holes[1:])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        lines = self._holes.values.tolist()
        for symbol, signature, (start, end, kind, i, j) in zip(
            self._symbols, self._signatures, rows, strict=True
        ):
            inner = tuple(zip(lines[i:j:2], lines[i + 1 : j : 2], strict=True)) if i < j else ()
            yield Piece(start, end, symbol, KINDS[kind], signature, inner)


_Part = dict[str, "NDArray[Any]"]
"""Copies of the columns of a block that the query needs, so that the block can be freed."""

_COPIED = [
    "file_sizes", "starts", "ends", "kinds", "text_lengths", "name_lengths", "symbol_sizes",
    "symbols", "signature_sizes", "signatures", "hole_sizes", "holes", "names", "leaves",
    "use_sizes", "uses", "base_sizes", "bases", "import_sizes", "imports", "vectors",
]  # fmt: skip


class CorpusBuilder:
    """Takes blocks of consecutive files in any order and builds the corpus in the order of `files`.

    `query`: uint64 (q,), sorted, distinct.
    """

    def __init__(self, files: Sequence[SourceFile], query: NDArray[np.uint64]) -> None:
        self._files = tuple(files)
        self._query = query
        self._parts: dict[int, _Part] = {}
        self._dimension = 0

    def add(self, first: int, block: Block) -> None:
        """Add the block of the files from number `first` on."""
        self._parts[first] = _part(block, self._query)
        self._dimension = block.dimension

    def finish(self) -> Corpus:
        """Return the corpus. Every file must be in some block. To be called once.

        Each column is freed once it is joined, so that no two copies of the corpus are in memory.
        """
        parts = [self._parts.pop(first) for first in sorted(self._parts)]
        sizes = _joined(parts, "file_sizes", np.int64)
        firsts = list(accumulate((part["starts"].size for part in parts), initial=0))
        for part, first in zip(parts, firsts, strict=False):
            part["piece"] += first
        vectors = (part.pop("vectors").view(np.int8) for part in parts)
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
            names=_names(parts),
            imports=_texts(parts, "imports", "import_sizes"),
            vectors=tuple([rows.reshape(-1, self._dimension) for rows in vectors])
            if self._dimension
            else (),
        )


def _part(block: Block, query: NDArray[np.uint64]) -> _Part:
    chosen, terms = _chosen(block, query)
    return {
        **{name: getattr(block, name).copy() for name in _COPIED},
        "piece": block.posting_pieces[chosen].astype(np.int64),
        "term": terms,
        "counts": block.counts[chosen],
        "name_counts": block.name_counts[chosen],
    }


def _chosen(block: Block, query: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the query's postings in the block, and the query's term of each."""
    if not (query.size and block.vocabulary.size):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(block.vocabulary, query), block.vocabulary.size - 1)
    hits = np.flatnonzero(block.vocabulary[at] == query)
    sizes = block.postings.astype(np.int64)
    firsts = np.cumsum(sizes) - sizes
    at = at[hits]
    return spread(firsts[at], sizes[at]), np.repeat(hits, sizes[at])


def _names(parts: Sequence[_Part]) -> CorpusNames:
    for part in parts:
        names = part.pop("names")
        for column in NAMES:
            part[column] = names[part[column]]
    return CorpusNames(
        _joined(parts, "leaves", np.uint64),
        _runs(parts, "use_sizes", "uses"),
        _runs(parts, "base_sizes", "bases"),
    )


def _texts(parts: Sequence[_Part], data: str, sizes: str) -> Texts:
    return Texts(_joined(parts, data, np.uint8).tobytes(), _joined(parts, sizes, np.int64))


def _runs(parts: Sequence[_Part], sizes: str, values: str) -> CorpusRuns:
    offsets = np.cumsum(_joined(parts, sizes, np.int64))
    return CorpusRuns(np.concatenate(([0], offsets)), _joined(parts, values, np.uint64))


def _joined(parts: Sequence[_Part], column: str, dtype: type[_Scalar]) -> NDArray[_Scalar]:
    """Remove the column from all parts and return it whole."""
    arrays = [part.pop(column) for part in parts]
    return np.concatenate([np.empty(0, dtype=dtype), *arrays], dtype=dtype, casting="unsafe")
