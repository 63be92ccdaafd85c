"""Binary hunks of git's patches: base85 of deflated data, whole (`literal`) or as a `delta`.

Formats: git's `gitformat-pack` (deltas), and base85 as in `git apply`: each line begins with its
length, A-Z for 1 to 26 bytes, a-z for 27 to 52.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_HEAD = re.compile(rb"(literal|delta) (\d{1,12})\s*$")
_MOST_BYTES = 64 * 1024 * 1024


class BinaryError(ValueError):
    """A binary hunk that cannot be read or applied."""


@dataclass(frozen=True, slots=True)
class BinaryHunk:
    """The forward half of a binary patch; `data` is inflated."""

    kind: Literal["literal", "delta"]
    data: bytes

    def apply(self, before: bytes) -> bytes:
        """The file after it. Raises BinaryError."""
        return self.data if self.kind == "literal" else _patched(before, self.data)


def read_binary(lines: Sequence[bytes], at: int) -> tuple[BinaryHunk, int]:
    """The hunk at line `at` (0-based), and the line after it and its reverse half.

    Raises BinaryError.
    """
    forward, at = _half(lines, at)
    if forward is None:
        raise BinaryError(f"line {at + 1}: a binary patch without data")
    _, at = _half(lines, at)
    return forward, at


def _half(lines: Sequence[bytes], at: int) -> tuple[BinaryHunk | None, int]:
    head = _HEAD.match(lines[at]) if at < len(lines) else None
    if head is None:
        return None, at
    encoded, start = [], at
    at += 1
    while at < len(lines) and lines[at].strip():
        encoded.append(_line(lines[at].rstrip(b"\r"), at))
        at += 1
    kind: Literal["literal", "delta"] = "literal" if head[1] == b"literal" else "delta"
    return BinaryHunk(kind, _inflated(b"".join(encoded), int(head[2]), start)), at + 1


def _line(line: bytes, at: int) -> bytes:
    first = line[:1]
    length = first[0] - 64 if first.isupper() else first[0] - 70 if first.islower() else 0
    try:
        data = base64.b85decode(line[1:])
    except ValueError:
        data = b""
    if not 0 < length <= len(data):
        raise BinaryError(f"corrupt binary patch at line {at + 1}")
    return data[:length]


def _inflated(data: bytes, size: int, at: int) -> bytes:
    try:
        plain = zlib.decompressobj().decompress(data, min(size, _MOST_BYTES) + 1)
    except zlib.error as error:
        raise BinaryError(f"corrupt binary patch at line {at + 1}: {error}") from None
    if len(plain) != size:
        raise BinaryError(f"corrupt binary patch at line {at + 1}: not {size} bytes")
    return plain


def _patched(before: bytes, delta: bytes) -> bytes:
    at, size = _number(delta, 0)
    at, expected = _number(delta, at)
    if size != len(before):
        raise BinaryError("the binary patch is for another file than the one that is there")
    parts: list[bytes] = []
    while at < len(delta):
        command = delta[at]
        at += 1
        if command & 0x80:
            at, start, length = _copy(delta, at, command)
            parts.append(before[start : start + length])
        elif command:
            parts.append(delta[at : at + command])
            at += command
        else:
            raise BinaryError("a binary delta with an unknown command")
    after = b"".join(parts)
    if len(after) != expected:
        raise BinaryError("a binary delta that does not give what it says")
    return after


def _copy(delta: bytes, at: int, command: int) -> tuple[int, int, int]:
    values = []
    for bits in ((0, 1, 2, 3), (4, 5, 6)):
        value = 0
        for shift, bit in enumerate(bits):
            if command & (1 << bit):
                if at >= len(delta):
                    raise BinaryError("a binary delta that is cut off")
                value |= delta[at] << (8 * shift)
                at += 1
        values.append(value)
    return at, values[0], values[1] or 0x10000


def _number(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(delta):
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return at, value
    raise BinaryError("a binary delta that is cut off")
