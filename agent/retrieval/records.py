"""Building the record of one file: a `Block` of its pieces, their terms and their references.

A record depends on the file's content and language only, never on its path, so that a renamed file
costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agent.retrieval.blocks import KINDS, Block
from agent.retrieval.chunking import Piece, TreeSitterChunker
from agent.retrieval.contents import Contents, Names, Runs, Source, no_names
from agent.retrieval.contents import PieceTerms as PieceTerms  # part of this module's interface
from agent.retrieval.grammars import GRAMMARS
from agent.retrieval.references import bases
from agent.retrieval.vocabulary import Vocabulary
from agent.retrieval.words import WordScanner
from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 2
"""Raise when chunking, terms or the layout change: older records are then simply not found."""

_KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


class PieceEncoder(Protocol):
    """Makes a vector of every piece from its terms alone. Pure; `dimension` is above 0.

    `fingerprint` is part of the records' keys. `path` is what a worker process loads its own from.
    """

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes with anything that changes a vector."""
        ...

    @property
    def path(self) -> Path:
        """Where a worker process finds the model."""
        ...

    def encode(self, terms: PieceTerms, /) -> bytes:
        """int8 of shape (terms.size, dimension), C order, as bytes."""
        ...


class RecordBuilder:
    """Chunks and counts one file. Holds parsers and the memory of split words; one a thread."""

    def __init__(self, encoder: PieceEncoder | None = None) -> None:
        self._chunker = TreeSitterChunker()
        self._scanner = WordScanner()
        self._vocabulary = Vocabulary()
        self._encoder = encoder

    def build(self, text: str, language: str) -> Block:
        """The record of a file's decoded text."""
        pieces = self._chunker.pieces(text, language)
        source = Source(text, pieces)
        words = self._scanner.scan(source.data)
        seen = Contents(source, words, self._vocabulary)
        code = language in GRAMMARS
        terms = seen.terms()
        names = seen.names(code, self._bases(pieces) if code else no_names(len(pieces)))
        return _block(pieces, terms, names, seen.imports(language), self._encoder)

    def _bases(self, pieces: Sequence[Piece]) -> Runs:
        """Hashes of the names of each class's bases."""
        found = [
            bases(piece.signature, piece.symbol.rpartition(".")[2])
            if piece.kind is ChunkKind.CLASS
            else ()
            for piece in pieces
        ]
        text = "\n".join(name for names in found for name in names)
        hashes = self._scanner.scan(text.encode("utf-8", "replace")).hashes
        return Runs(np.array([len(names) for names in found], dtype=np.int64), hashes)


def _block(
    pieces: Sequence[Piece],
    terms: PieceTerms,
    names: Names,
    imported: Sequence[str],
    encoder: PieceEncoder | None,
) -> Block:
    table, places = np.unique(
        np.concatenate([names.leaves, names.uses.values, names.bases.values]), return_inverse=True
    )
    cuts = np.cumsum([names.leaves.size, names.uses.values.size])
    leaves, uses, base_names = np.split(places.astype(np.uint32), cuts)
    size = len(pieces)
    text_lengths = np.bincount(terms.pieces, terms.counts, size)
    name_lengths = np.bincount(terms.pieces, terms.name_counts, size)
    symbols = [piece.symbol.encode("utf-8", "replace") for piece in pieces]
    signatures = [piece.signature.encode("utf-8", "replace") for piece in pieces]
    holes = [[line for hole in piece.holes for line in hole] for piece in pieces]
    import_bytes = "\n".join(imported).encode("utf-8", "replace")
    return Block(
        vocabulary=terms.vocabulary,
        names=table,
        postings=_unsigned(np.bincount(terms.terms, minlength=terms.vocabulary.size)),
        posting_pieces=_unsigned(terms.pieces),
        counts=_unsigned(terms.counts),
        name_counts=_unsigned(terms.name_counts),
        file_sizes=_unsigned([size]),
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
        leaves=leaves,
        use_sizes=_unsigned(names.uses.sizes),
        uses=uses,
        base_sizes=_unsigned(names.bases.sizes),
        bases=base_names,
        import_sizes=_unsigned([len(import_bytes)]),
        imports=np.frombuffer(import_bytes, np.uint8),
        vectors=np.frombuffer(encoder.encode(terms) if encoder else b"", np.uint8),
        dimension=encoder.dimension if encoder else 0,
    )


def _unsigned(values: Sequence[int] | NDArray[np.generic]) -> NDArray[np.uint32]:
    return np.asarray(values).astype(np.uint32)
