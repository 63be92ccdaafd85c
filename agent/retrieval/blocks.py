"""Columns of pieces: what the index keeps of a run of files in path order.

What a `Block` says of a file depends on the file's content and language only: however files came
together in it, cut at once or by `joining`, it is the same to the byte. Bytes may
come from a damaged or foreign cache: `decode` gives None for anything that is not exactly a block.

Layout (little-endian): magic, CRC-32 of all that follows, vector dimension, for each column its
number of elements and their width, then the columns. Integers are as narrow as their largest value
allows.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = tuple(ChunkKind)
"""Kinds by the numbers that `Block.kinds` holds."""

_MAGIC = b"psb3"
_HEADER = struct.Struct("<4sIH")  # magic, checksum, dimension
_ENTRY = struct.Struct("<IB")  # elements, bytes of each
_WIDTHS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Block:
    """`f` files, `n` pieces, `v` distinct terms, `m` postings, `k` distinct names.

    Every `*_sizes` column cuts the column after it in runs. Integers are unsigned, of any width.

    `vocabulary` uint64 (v,), ascending: term hashes; `postings` (v,): runs of `posting_pieces`,
    `counts` (occurrences in the text), `name_counts` (in the symbol), each (m,), by piece.
    `names` uint64 (k,), ascending: hashes of identifiers (`words.WordScanner`), which `leaves` (n,)
    (last part of the symbol), `uses` (what a piece calls or refers to) and `bases` (of a class)
    index. `imports`: lines of UTF-8, see `references`. `vectors` int8, (n, dimension) in C order.
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
    hole_sizes: NDArray[np.unsignedinteger]  # (n,) twice the number of holes
    holes: NDArray[np.unsignedinteger]  # first and last lines
    leaves: NDArray[np.unsignedinteger]  # (n,)
    use_sizes: NDArray[np.unsignedinteger]  # (n,)
    uses: NDArray[np.unsignedinteger]
    base_sizes: NDArray[np.unsignedinteger]  # (n,)
    bases: NDArray[np.unsignedinteger]
    import_sizes: NDArray[np.unsignedinteger]  # (f,) bytes
    imports: NDArray[np.uint8]
    vectors: NDArray[np.uint8]  # int8 seen as bytes
    dimension: int = 0


_COLUMNS = Block.__slots__[:-1]
_HASHES = 2  # the first columns

HEAD_BYTES = _HEADER.size + len(_COLUMNS) * _ENTRY.size
"""What stands before the columns."""

RUNS = (
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

KEPT = [n for n in _COLUMNS[_COLUMNS.index("file_sizes") :] if n not in NAMES]
"""Columns that describe files and pieces without pointing at terms or names."""


def spread(first: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """first[0], first[0] + 1, ... sizes[0] of them, then those of first[1], and so on."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    return np.repeat(first - ends + sizes, sizes) + np.arange(total)


def total(column: NDArray[np.unsignedinteger]) -> int:
    """The sum of a column."""
    return int(column.sum(dtype=np.int64))


def encode(block: Block) -> bytes:
    """The block as bytes."""
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


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the head of a block says of it."""

    files: int
    pieces: int


def sizes_in(head: bytes, length: int) -> Sizes | None:
    """From the first HEAD_BYTES of a block of `length` bytes; None for anything else.

    Nothing behind the head is looked at, so that damage there goes unnoticed.
    """
    if len(head) < HEAD_BYTES:
        return None
    magic, _, _ = _HEADER.unpack_from(head)
    table = dict(zip(_COLUMNS, _ENTRY.iter_unpack(head[_HEADER.size :]), strict=True))
    whole = HEAD_BYTES + sum(count * width for count, width in table.values())
    if magic != _MAGIC or length != whole:
        return None
    return Sizes(table["file_sizes"][0], table["starts"][0])


def decode(data: bytes, *, trusted: bool = False) -> Block | None:
    """The block, or None when `data` is not one. `trusted`: made by this program just now."""
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
    """Raises ValueError or struct.error where the bytes are no columns."""
    at = HEAD_BYTES
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
    """Whether all columns fit together and every index points at something.

    The checksum makes damage improbable; this keeps even a forged block from raising later.
    """
    pieces = block.starts.size
    if any(getattr(block, name).size != pieces for name in _OF_PIECES):
        return False
    for sizes, runs in RUNS:
        count = total(getattr(block, sizes))
        if any(getattr(block, run).size != count for run in runs):
            return False
    if block.import_sizes.size != block.file_sizes.size or total(block.file_sizes) != pieces:
        return False
    if block.postings.size != block.vocabulary.size:
        return False
    if block.vectors.size != pieces * block.dimension:
        return False
    return _points_inside(block) and _is_readable(block)


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


def _is_readable(block: Block) -> bool:
    return not (bool((block.hole_sizes % 2).any()))
