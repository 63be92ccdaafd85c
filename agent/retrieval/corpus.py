"""The candidates of one query: pieces of all files, and where the query's terms occur in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.chunking import Piece
from agent.retrieval.records import FileRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types import SourceFile


@dataclass(frozen=True, slots=True)
class Corpus:
    """`n` pieces of `f` files, in order of path and start; `m` postings of the query's terms.

    Arrays: `piece_file` int64 (n,), `text_lengths` and `name_lengths` float64 (n,) in terms;
    `piece`, `term` int64 (m,) index into the pieces and into the sorted query terms;
    `counts`, `name_counts` float64 (m,) occurrences in text and symbol.
    """

    files: tuple[SourceFile, ...]
    pieces: tuple[Piece, ...]
    first_piece: tuple[int, ...]  # (f + 1,): file i has pieces first_piece[i] .. first_piece[i+1]-1
    piece_file: NDArray[np.int64]
    text_lengths: NDArray[np.float64]
    name_lengths: NDArray[np.float64]
    piece: NDArray[np.int64]
    term: NDArray[np.int64]
    counts: NDArray[np.float64]
    name_counts: NDArray[np.float64]

    def pieces_of(self, file: int) -> Iterator[tuple[int, Piece]]:
        """Number and piece of each piece of a file."""
        for number in range(self.first_piece[file], self.first_piece[file + 1]):
            yield number, self.pieces[number]

    def path_of(self, piece: int) -> str:
        """The path of the file a piece belongs to."""
        return self.files[int(self.piece_file[piece])].path


@dataclass(frozen=True, slots=True)
class _FileView:
    """A record reduced to what the query needs; piece numbers count from the file's first."""

    pieces: tuple[Piece, ...]
    text_lengths: NDArray[np.float64]
    name_lengths: NDArray[np.float64]
    piece: NDArray[np.int64]
    term: NDArray[np.int64]
    counts: NDArray[np.float64]
    name_counts: NDArray[np.float64]


class CorpusBuilder:
    """Takes records in any order, gives the corpus in the order of `files`.

    `query`: uint64 (q,), sorted, distinct.
    """

    def __init__(self, files: Sequence[SourceFile], query: NDArray[np.uint64]) -> None:
        self._files = tuple(files)
        self._query = query
        self._views: list[_FileView | None] = [None] * len(self._files)

    def add(self, number: int, record: FileRecord) -> None:
        """Take the record of file `number`."""
        self._views[number] = _view(record, self._query)

    def finish(self) -> Corpus:
        """The corpus; files without a record have no pieces."""
        empty = _view(FileRecord((), b"", b"\0" * 4, b"", b"", b""), self._query)
        views = [view or empty for view in self._views]
        sizes = [len(view.pieces) for view in views]
        first = (0, *accumulate(sizes))
        return Corpus(
            files=self._files,
            pieces=tuple(piece for view in views for piece in view.pieces),
            first_piece=first,
            piece_file=np.repeat(np.arange(len(views)), sizes),
            text_lengths=_floats([view.text_lengths for view in views]),
            name_lengths=_floats([view.name_lengths for view in views]),
            piece=_ints([view.piece + start for view, start in zip(views, first, strict=False)]),
            term=_ints([view.term for view in views]),
            counts=_floats([view.counts for view in views]),
            name_counts=_floats([view.name_counts for view in views]),
        )


def _view(record: FileRecord, query: NDArray[np.uint64]) -> _FileView:
    n = len(record.pieces)
    offsets = np.frombuffer(record.offsets, "<u4").astype(np.int64)
    terms = np.frombuffer(record.terms, "<u4")
    counts = np.frombuffer(record.counts, "<u2").astype(np.float64)
    name_counts = np.frombuffer(record.name_counts, "u1").astype(np.float64)
    owners = np.repeat(np.arange(n), np.diff(offsets))
    matches = _positions(np.frombuffer(record.vocabulary, "<u8"), query)[terms]
    kept = matches >= 0
    return _FileView(
        pieces=record.pieces,
        text_lengths=_sums(owners, counts, n),
        name_lengths=_sums(owners, name_counts, n),
        piece=owners[kept],
        term=matches[kept],
        counts=counts[kept],
        name_counts=name_counts[kept],
    )


def _sums(
    owners: NDArray[np.int64], values: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    # Without any value bincount would give integers.
    return np.bincount(owners, values, count).astype(np.float64)


def _positions(vocabulary: NDArray[np.uint64], query: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each term of the vocabulary its index in the query, -1 for none."""
    if not query.size:
        return np.full(vocabulary.shape, -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(query, vocabulary), query.size - 1)
    return np.where(query[at] == vocabulary, at, -1)


def _floats(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate([np.empty(0), *arrays])


def _ints(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])
