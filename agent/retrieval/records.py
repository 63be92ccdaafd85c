"""What the index keeps of one file: its pieces and their term statistics, as bytes.

A record depends on the file's content and language only, never on its path, so that a renamed file
costs nothing. The bytes may come from a damaged or foreign cache: `decode` returns None for
anything that is not exactly a record.

Layout (little-endian, then zlib): magic, counts, the lengths of what follows, pieces as JSON, then
the arrays of `FileRecord` in order.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from agent.retrieval.chunking import Piece, TreeSitterChunker, split_lines
from agent.retrieval.identifiers import WORD, Terms
from agent.types import ChunkKind

FORMAT = 1
"""Raise when chunking, terms or the layout change: older records are then simply not found."""

_MAGIC = b"psr1"
_HEADER = struct.Struct("<4sIIII")  # magic, pieces, distinct terms, postings, bytes of JSON
_MAX_COUNT = 0xFFFF
_MAX_RECORD = 32 * 1024 * 1024  # bytes once inflated: several times what a file of 1 MB can need
_MAX_INDEXED_CHARS = 200_000  # of one chunk: what follows in a longer one is data
_KINDS = tuple(ChunkKind)
_KIND_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Pieces of a file and their postings.

    `vocabulary`: uint64 (v,), the distinct term hashes of the file. One posting is one term in one
    piece: `terms` uint32 (n,) index into `vocabulary`, `counts` uint16 (n,) occurrences in the
    text, `name_counts` uint8 (n,) occurrences in the symbol. Piece i owns postings
    `offsets[i]:offsets[i+1]`, `offsets` uint32 (pieces + 1,).
    """

    pieces: tuple[Piece, ...]
    vocabulary: bytes
    offsets: bytes
    terms: bytes
    counts: bytes
    name_counts: bytes


class RecordBuilder:
    """Chunks and counts one file. Holds parsers and the memory of split words; one a thread."""

    def __init__(self) -> None:
        self._chunker = TreeSitterChunker()
        self._terms = Terms()

    def build(self, text: str, language: str) -> FileRecord:
        """The record of a file's decoded text."""
        pieces = self._chunker.pieces(text, language)
        lines = split_lines(text)
        vocabulary: dict[int, int] = {}
        offsets, terms = array("I", [0]), array("I")
        counts, name_counts = array("H"), array("B")
        for piece in pieces:
            found = self._terms.count_hashes(piece.text(lines)[:_MAX_INDEXED_CHARS])
            named = self._name_counts(piece.symbol)
            for term in named:
                found.setdefault(term, 0)
            for term, count in found.items():
                terms.append(vocabulary.setdefault(term, len(vocabulary)))
                counts.append(min(count, _MAX_COUNT))
                name_counts.append(named.get(term, 0))
            offsets.append(len(terms))
        hashes = array("Q", vocabulary)
        arrays = (_bytes(part) for part in (hashes, offsets, terms, counts, name_counts))
        return FileRecord(pieces, *arrays)

    def _name_counts(self, symbol: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        for word in WORD.findall(symbol):
            for term in self._terms.hashes_of_word(word):
                counts[term] = min(counts.get(term, 0) + 1, 255)
        return counts


def _bytes(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def encode(record: FileRecord) -> bytes:
    """The record as compressed bytes."""
    pieces = json.dumps([_piece_row(piece) for piece in record.pieces]).encode("ascii")
    header = _HEADER.pack(
        _MAGIC,
        len(record.pieces),
        len(record.vocabulary) // 8,
        len(record.terms) // 4,
        len(pieces),
    )
    body = (record.vocabulary, record.offsets, record.terms, record.counts, record.name_counts)
    # Level 1: warm runs inflate thousands of these; higher levels save a tenth of the space.
    return zlib.compress(b"".join((header, pieces, *body)), level=1)


def decode(data: bytes) -> FileRecord | None:
    """The record, or None when `data` is not one."""
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(data, _MAX_RECORD)
        if not inflater.eof:
            return None
        magic, n_pieces, n_terms, n_postings, n_json = _HEADER.unpack_from(raw)
        sizes = (
            n_json,
            8 * n_terms,
            4 * (n_pieces + 1),
            4 * n_postings,
            2 * n_postings,
            n_postings,
        )
        if magic != _MAGIC or len(raw) != _HEADER.size + sum(sizes):
            return None
        parts = _slices(raw, _HEADER.size, sizes)
        pieces = tuple(_piece(row) for row in json.loads(parts[0]))
    except (zlib.error, struct.error, ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    record = FileRecord(pieces, *parts[1:])
    return record if len(pieces) == n_pieces and _is_sound(record) else None


def _slices(raw: bytes, start: int, sizes: Sequence[int]) -> list[bytes]:
    parts: list[bytes] = []
    for size in sizes:
        parts.append(raw[start : start + size])
        start += size
    return parts


def _is_sound(record: FileRecord) -> bool:
    """Whether every index points at something."""
    import numpy as np

    offsets = np.frombuffer(record.offsets, "<u4").astype(np.int64)
    terms = np.frombuffer(record.terms, "<u4")
    in_order = offsets[0] == 0 and offsets[-1] == terms.size and bool((np.diff(offsets) >= 0).all())
    return in_order and (terms.size == 0 or int(terms.max()) < len(record.vocabulary) // 8)


def _piece_row(piece: Piece) -> list[object]:
    return [
        piece.start,
        piece.end,
        piece.symbol,
        _KIND_NUMBERS[piece.kind],
        piece.signature,
        piece.holes,
    ]


def _piece(row: list[object]) -> Piece:
    start, end, symbol, kind, signature, holes = row
    if not (isinstance(start, int) and isinstance(end, int) and 1 <= start <= end):
        raise ValueError("span")
    if not (isinstance(symbol, str) and isinstance(signature, str) and isinstance(kind, int)):
        raise TypeError("names")
    if not isinstance(holes, list):
        raise TypeError("holes")
    return Piece(
        start, end, symbol, _KINDS[kind], signature, tuple((int(a), int(b)) for a, b in holes)
    )
