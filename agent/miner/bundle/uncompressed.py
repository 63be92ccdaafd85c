"""Replaces `agent.shared.cache.compression` in a bundle.

A text scan refuses the words of the real module, and the cache of a bundle lives for one run only.
Servers are asked for plain bodies.
"""

from __future__ import annotations


def compress(data: bytes) -> bytes:
    """`data` as it is."""
    return data


def expand(data: bytes, limit: int) -> bytes:
    """The data that `compress` was given. Raises ValueError beyond `limit` bytes."""
    if len(data) > limit:
        raise ValueError("too long")
    return data


ENCODINGS = ()


class _PlainOnly:
    """Undoes nothing: no encoding is accepted."""

    fault = ""

    def feed(self, piece: bytes, most: int) -> bytes:
        """Raise ValueError."""
        raise ValueError("this bundle reads plain bodies only")


Unpacker = _PlainOnly
