"""The candidates of one query: pieces of all files, and the postings of the query's terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from agent.retrieval.index.blocks import KINDS, NAMES, Block, spread
from agent.retrieval.index.chunking import Piece

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types import SourceFile

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
