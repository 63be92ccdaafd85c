"""What a command writes: its streams, captured up to a limit, a report pipe and a JUnit file.

The report pipe is a FIFO in a directory that the command sees but cannot change. The command can
write into it, but cannot read, replace or take back what was written. The JUnit file lies in a
directory that belongs to the command. It is read when the command is dead, and nothing trusts it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from sandbox.types import Limits, SandboxError
from sandbox.workspace.nofollow import read_file


class Capture:
    """Keeps the head and the tail of a stream, together at most `limit` bytes.

    `total` is the number of bytes seen.
    """

    def __init__(self, limit: int) -> None:
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut only now and then, because moving the tail for every piece would be quadratic.
        if len(self._tail) > 2 * self._tail_size:
            self._cut()

    def value(self) -> bytes:
        """Return what is kept, with a line in place of what was cut."""
        self._cut()
        missing = self.total - len(self._head) - len(self._tail)
        gap = f"\n[{missing} bytes cut]\n".encode() if missing else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_size)]


class HeadCapture:
    """Keeps the first `limit` bytes of a stream. `total` is the number of bytes seen."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._head = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        self._head += data[: self.limit - len(self._head)]

    def value(self) -> bytes:
        """Return what is kept."""
        return bytes(self._head)

    @property
    def dropped(self) -> int:
        """The number of bytes beyond the limit."""
        return self.total - len(self._head)


REPORT_NAME = "report"
JUNIT_NAME = "junit.xml"

# Anybody may write and nobody read. The private directory around it keeps other users out.
_PIPE_MODE = 0o222

# The largest size that every user may set (pipe(7)), so that a command rarely waits for us.
_PIPE_BYTES = 1024 * 1024


class ReportPipe:
    """The reading end of a FIFO. It never blocks and keeps the first `limit` bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        """Make the FIFO at `path`, which must not exist. Raises OSError."""
        self.capture = HeadCapture(limit)
        os.mkfifo(path, 0o600)
        flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        self.reader = os.open(path, os.O_RDONLY | flags)
        # Without any writer, the reading end would report end of file all the time.
        self._writer: int | None = os.open(path, os.O_WRONLY | flags)
        path.chmod(_PIPE_MODE)
        try:
            fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except PermissionError:
            pass  # this user has too many pipes already (pipe-user-pages-soft)

    def seal(self) -> None:
        """Let the pipe end when its last foreign writer is gone. Safe to call twice."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def close(self) -> None:
        """Close both ends; a writer that is left gets EPIPE."""
        self.seal()
        os.close(self.reader)


class ReportChannels:
    """The report pipe and the JUnit file, in new directories below `scratch`. A context manager.

    The sandbox shows `report_directory`, which holds the FIFO REPORT_NAME, read-only, and
    `junit_directory`, where the command may make the file JUNIT_NAME, writable. `owner` is the uid
    (and gid) of the command, None when it is our own. Raises SandboxError when they cannot be made.
    """

    def __init__(self, scratch: Path, limits: Limits, owner: int | None) -> None:
        self.report_directory = scratch / "report"
        self.junit_directory = scratch / "junit"
        self._limit = limits.report
        try:
            self.report_directory.mkdir(mode=0o755)
            self.junit_directory.mkdir(mode=0o700)
            if owner is not None:
                os.chown(self.junit_directory, owner, owner)
            self.pipe = ReportPipe(self.report_directory / REPORT_NAME, limits.report)
        except OSError as error:
            raise SandboxError(f"cannot make the pipe for reports in {scratch}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()

    def junit(self) -> bytes:
        """Read the JUnit file up to `Limits.report`; b"" when it is missing or no regular file.

        Call this when the command is dead.
        """
        return read_file(self.junit_directory, JUNIT_NAME, self._limit)
