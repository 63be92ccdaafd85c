"""The words of a file, found all at once: where each begins and ends, and a 64-bit hash of each.

Works on UTF-8 bytes with numpy, several times faster than a regular expression that makes a string
of every word. A word here is a run of ASCII letters, digits, underscores and of any bytes beyond
ASCII; the few that hold such bytes are taken apart by `identifiers.WORD` afterwards.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_CHUNK = 1 << 17  # bytes hashed at a time: tables and temporaries stay in the processor's cache
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64; bits well mixed
_LONGEST = 1024  # bytes: a word or a sentence in a script without spaces is shorter
_WORD_BYTES = (string.ascii_letters + string.digits + "_").encode()


@dataclass(frozen=True, slots=True)
class Words:
    """Occurrences in order: `starts`, `ends` int64 (w,) byte offsets, `hashes` uint64 (w,)."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    hashes: NDArray[np.uint64]


class WordScanner:
    """Finds and hashes words.

    The hash of bytes b_0..b_k is sum of T[b_i] * BASE**i modulo 2**64 with a fixed random table T:
    with prefix sums it costs the same for any word. The same on every machine.
    """

    def __init__(self) -> None:
        self._is_word = np.zeros(256, dtype=np.bool_)
        self._is_word[list(_WORD_BYTES)] = True
        self._is_word[128:] = True
        table = b"".join(blake2b(bytes([b]), digest_size=8).digest() for b in range(256))
        self._values = np.frombuffer(table, "<u8").astype(np.uint64)
        self._values[~self._is_word] = 0
        self._powers = _powers(_BASE)
        self._inverses = _powers(pow(_BASE, -1, 1 << 64))

    def scan(self, data: bytes) -> Words:
        """All words of the bytes."""
        parts = [self._scan_chunk(data, start, end) for start, end in self._chunks(data)]
        if len(parts) == 1:
            return parts[0]
        return Words(
            np.concatenate([np.empty(0, np.int64), *(part.starts for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.ends for part in parts)]),
            np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]),
        )

    def _chunks(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Cut between words, inside of one only where it is longer than any that counts."""
        start = 0
        while start < len(data):
            end = min(start + _CHUNK, len(data))
            if end < len(data):
                tail = np.frombuffer(data, np.uint8, _LONGEST, end - _LONGEST)
                gaps = np.flatnonzero(~self._is_word[tail])
                end = end - _LONGEST + int(gaps[-1]) + 1 if gaps.size else end
            yield start, end
            start = end

    def _scan_chunk(self, data: bytes, start: int, end: int) -> Words:
        found = np.frombuffer(data, np.uint8, end - start, start)
        inside = self._is_word.take(found)  # here and below: half the time of [found]
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        if inside[0]:
            edges = np.concatenate(([0], edges))
        if inside[-1]:
            edges = np.concatenate((edges, [found.size]))
        starts, ends = edges[::2], edges[1::2]
        sums = np.zeros(found.size + 1, dtype=np.uint64)
        np.cumsum(self._values.take(found) * self._powers[: found.size], out=sums[1:])
        hashes = (sums[ends] - sums[starts]) * self._inverses[starts]
        return Words(starts + start, ends + start, hashes)


def _powers(base: int) -> NDArray[np.uint64]:
    """base**0 .. base**_CHUNK modulo 2**64."""
    factors = np.full(_CHUNK + 1, base, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)
