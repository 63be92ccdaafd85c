"""Columns of pieces: the format in which the index stores consecutive files in path order.

The data of a file in a `Block` depends only on the file's content and language. The bytes may come
from a damaged or forged cache: `decode` returns None for anything but a valid block.

Layout (little-endian): magic, CRC-32 of all following bytes, vector dimension, for each column its
number of elements and their width, then the columns. Integers are as narrow as their largest value
allows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
