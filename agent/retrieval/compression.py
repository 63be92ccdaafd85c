"""Compression of what the caches keep on disk."""

from __future__ import annotations

import zlib


def compress(data: bytes) -> bytes:
    """`data` in about half the space, quickly made."""
    return zlib.compress(data, level=1)


def expand(data: bytes, limit: int) -> bytes:
    """What `compress` was given. Raises ValueError for damaged or cut data, or beyond `limit`."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflater.eof:
        raise ValueError("cut off, or too long")
    return raw
