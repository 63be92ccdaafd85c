"""Bounded capture of a stream: the head and the tail stay, the middle is cut and counted."""

from __future__ import annotations


class Capture:
    """Takes a stream piece by piece and holds at most `limit` bytes of it.

    `total` is the number of bytes seen.
    """

    def __init__(self, limit: int) -> None:
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut only now and then: moving the tail's bytes for every piece would be quadratic.
        if len(self._tail) > 2 * self._tail_size:
            self._cut()

    def value(self) -> bytes:
        """What is held, with a line in the place of what was cut."""
        self._cut()
        missing = self.total - len(self._head) - len(self._tail)
        gap = f"\n[{missing} bytes cut]\n".encode() if missing else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_size)]


class HeadCapture:
    """Takes a stream piece by piece and holds its first `limit` bytes.

    `total` is the number of bytes seen.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._head = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self.total += len(data)
        self._head += data[: self.limit - len(self._head)]

    def value(self) -> bytes:
        """What is held."""
        return bytes(self._head)

    @property
    def dropped(self) -> int:
        """How many bytes came beyond the limit."""
        return self.total - len(self._head)
