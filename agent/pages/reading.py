"""Reads files below one folder without following any link: what a run left is not to be trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block

# No document of a run comes near; a larger one is not one.
LARGEST_DOCUMENT = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """What was read of a file. `size`: of the whole file; `problem`: why nothing was, else ""."""

    data: bytes = b""
    size: int = 0
    problem: str = ""

    @property
    def missing(self) -> bool:
        """There is no such file, which need not mean anything."""
        return self.problem == _MISSING


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file without its newline, and where it is (bytes)."""

    data: bytes
    offset: int
    length: int


_MISSING = "not there"


class Tree:
    """The files below `root`. The root itself may be reached through links, nothing below it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folders(self, *parts: str) -> list[str]:
        """The folders in a folder, by name; links to folders are none."""
        try:
            with self._opened(parts) as handle, os.scandir(handle) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def document(self, *parts: str) -> Piece:
        """A whole file, unless it is larger than LARGEST_DOCUMENT."""
        piece = self.head(LARGEST_DOCUMENT, *parts)
        if piece.size > LARGEST_DOCUMENT:
            return Piece(size=piece.size, problem=f"larger than {LARGEST_DOCUMENT:,} bytes")
        return piece

    def head(self, limit: int, *parts: str) -> Piece:
        """The first `limit` bytes of a file."""
        return self._read(0, limit, parts)

    def tail(self, limit: int, *parts: str) -> Piece:
        """The last `limit` bytes of a file."""
        return self._read(-limit, limit, parts)

    def part(self, offset: int, length: int, *parts: str) -> Piece:
        """`length` bytes from `offset`."""
        return self._read(offset, length, parts)

    def lines(self, *parts: str) -> Iterator[Line]:
        """The whole lines of a file, one at a time; none where it cannot be read.

        A torn last line counts as not written; one longer than LARGEST_DOCUMENT comes in parts.
        """
        try:
            with self._file(parts) as handle, os.fdopen(os.dup(handle), "rb") as file:
                yield from _lines(iter(lambda: file.readline(LARGEST_DOCUMENT), b""))
        except OSError:
            return

    def _read(self, start: int, limit: int, parts: tuple[str, ...]) -> Piece:
        try:
            with self._file(parts) as handle:
                size = os.fstat(handle).st_size
                offset = start if start >= 0 else max(0, size + start)
                return Piece(_read_all(handle, offset, limit), size)
        except FileNotFoundError:
            return Piece(problem=_MISSING)
        except OSError as error:
            return Piece(problem=error.strerror or str(error))

    @contextmanager
    def _file(self, parts: tuple[str, ...]) -> Iterator[int]:
        """A regular file. Raises OSError for anything else."""
        with self._opened(parts[:-1]) as folder:
            if stat.S_ISLNK(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                raise OSError(0, "a link, not followed")
            handle = os.open(parts[-1], _FILE, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(0, "not a regular file")
                yield handle
            finally:
                os.close(handle)

    @contextmanager
    def _opened(self, parts: tuple[str, ...]) -> Iterator[int]:
        current = os.open(self.root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in parts:
                if "/" in part or part in ("", ".", ".."):
                    raise OSError(0, "not a plain name")
                following = os.open(part, _FOLDER, dir_fd=current)
                os.close(current)
                current = following
            yield current
        finally:
            os.close(current)


def _lines(found: Iterator[bytes]) -> Iterator[Line]:
    offset = 0
    for line in found:
        if line.endswith(b"\n") or len(line) >= LARGEST_DOCUMENT:
            yield Line(line.rstrip(b"\n"), offset, len(line))
        offset += len(line)


def _read_all(handle: int, offset: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (data := os.pread(handle, min(limit, 1 << 20), offset)):
        parts.append(data)
        offset, limit = offset + len(data), limit - len(data)
    return b"".join(parts)
