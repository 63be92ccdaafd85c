"""Read the files of a run without following links, because untrusted code may have made them."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block

# Documents of a run are much smaller.
LARGEST_DOCUMENT = 32 * 1024 * 1024


class RunFiles:
    """The files below `root`. The path of the root may contain links, paths below it may not."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, *parts: str) -> bytes | None:
        """Return the content of a regular file of usual size, None for anything else."""
        data, size = self.end(LARGEST_DOCUMENT, *parts)
        return data if 0 <= size <= LARGEST_DOCUMENT else None

    def end(self, limit: int, *parts: str) -> tuple[bytes, int]:
        """Return the last `limit` bytes of a regular file and its size, -1 for anything else."""
        try:
            with self._open(parts) as handle, os.fdopen(os.dup(handle), "rb") as file:
                size = os.fstat(handle).st_size
                file.seek(max(0, size - limit))
                return file.read(limit), size
        except OSError:
            return b"", -1

    def lines(self, *parts: str) -> Iterator[bytes]:
        """Yield the whole lines of a regular file, none of anything else.

        A torn last line is left out; one longer than LARGEST_DOCUMENT comes in parts.
        """
        try:
            with self._open(parts) as handle, os.fdopen(os.dup(handle), "rb") as file:
                for line in iter(lambda: file.readline(LARGEST_DOCUMENT), b""):
                    if line.endswith(b"\n"):
                        yield line
        except OSError:
            return

    def is_locked(self, *parts: str) -> bool:
        """Whether a process holds the lock of a file."""
        try:
            with self._open(parts) as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    @contextmanager
    def _open(self, parts: tuple[str, ...]) -> Iterator[int]:
        """Open a regular file. Raises OSError for anything else."""
        handle = os.open(self.root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for number, part in enumerate(parts, start=1):
                if "/" in part or part in ("", ".", ".."):
                    raise OSError(0, "not a plain name")
                flags = _FILE if number == len(parts) else _FOLDER
                inner = os.open(part, flags, dir_fd=handle)
                os.close(handle)
                handle = inner
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(0, "not a regular file")
            yield handle
        finally:
            os.close(handle)
