"""Cuts files and counts their contents: a `Block` of pieces with their terms and references.

A file's part of a block depends only on the file's content and language, never on its path or other
files, so renaming a file costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agent.retrieval.index.blocks import KINDS, Block, Postings, by_name, by_term, merge
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.index.contents import Contents, CutFile, Source
from agent.retrieval.index.contents import (
    PieceTerms as PieceTerms,  # part of this module's interface
)
from agent.retrieval.index.vocabulary import Vocabulary, WordScanner

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 3
"""Increase when chunking, terms or the layout change; older records are then ignored."""

_AT_ONCE = 400_000  # characters: arrays for so many fit in the processor's cache
_KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


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


class RecordBuilder:
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
        cut = [CutFile(lang, text, self._chunker.pieces(text, lang)) for lang, text in files]
        source = Source(cut)
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
    terms, names = contents.terms(), contents.names()
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
        **by_name(names.leaves, names.uses.values, names.bases.values),
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
        use_sizes=_unsigned(names.uses.sizes),
        base_sizes=_unsigned(names.bases.sizes),
        import_sizes=_unsigned([len(text) for text in imported]),
        imports=np.frombuffer(b"".join(imported), np.uint8),
        vectors=np.frombuffer(encoder.encode(terms) if encoder else b"", np.uint8),
        dimension=encoder.dimension if encoder else 0,
    )


def _unsigned(values: Sequence[int] | NDArray[np.generic]) -> NDArray[np.uint32]:
    return np.asarray(values).astype(np.uint32)
