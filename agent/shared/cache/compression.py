"""Compression: of what the caches keep on disk, and of what servers send."""

from __future__ import annotations

import zlib


def compress(data: bytes) -> bytes:
    """Compress quickly, to about half the size."""
    return zlib.compress(data, level=1)


def expand(data: bytes, limit: int) -> bytes:
    """Undo `compress`. Raises ValueError for damaged or cut data, or beyond `limit`."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflater.eof:
        raise ValueError("cut off, or too long")
    return raw


ENCODINGS = ("gzip", "deflate")
"""What `Unpacker` undoes."""


class Unpacker:
    """Undoes one layer of gzip or deflate, piece by piece."""

    def __init__(self) -> None:
        # Both formats, RFC 1950 and 1952; zlib tells them apart by their header.
        self._inflater = zlib.decompressobj(32 + zlib.MAX_WBITS)

    def feed(self, piece: bytes, most: int) -> bytes:
        """Return what the next piece gives, at most `most` bytes. Raises ValueError if damaged."""
        try:
            return self._inflater.decompress(piece, most)
        except zlib.error as error:
            raise ValueError(str(error)) from None

    @property
    def fault(self) -> str:
        """What is wrong with the data as a whole, once all pieces are fed; "" for nothing."""
        if not self._inflater.eof:
            return "without its end"
        return "with more data after its end" if self._inflater.unused_data else ""
