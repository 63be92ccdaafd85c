"""What a command can tell beside its streams: a report through a pipe, and a JUnit file.

The pipe has a name (a FIFO) in a directory that the command sees but cannot change: it can write
into the pipe, and what was written cannot be taken back, replaced or read by it. The file lies in a
directory of the command's own; it is read back when the command is dead, and trusted for nothing.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.capture import HeadCapture
from sandbox.nofollow import read_file
from sandbox.types import Limits, SandboxError

REPORT_NAME = "report"
JUNIT_NAME = "junit.xml"

# Anybody may write, nobody read; the private directory around it keeps other users out.
_PIPE_MODE = 0o222

# A busy command waits for its reader less often: the largest that every user may have (pipe(7)).
_PIPE_BYTES = 1024 * 1024


class ReportPipe:
    """The reading end of a FIFO: never blocks, keeps the first `limit` bytes, drops the rest."""

    def __init__(self, path: Path, limit: int) -> None:
        """Make the FIFO at `path`, which must not exist. Raises OSError."""
        self.capture = HeadCapture(limit)
        os.mkfifo(path, 0o600)
        flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        self.reader = os.open(path, os.O_RDONLY | flags)
        # Without any writer the reading end would report its end all the time.
        self._writer: int | None = os.open(path, os.O_WRONLY | flags)
        path.chmod(_PIPE_MODE)
        try:
            fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except PermissionError:
            pass  # this user has too much in pipes already (pipe-user-pages-soft)

    def seal(self) -> None:
        """From now on the pipe ends when its last foreign writer is gone. Safe to call twice."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def close(self) -> None:
        """Let go of both ends; a writer that is left gets EPIPE."""
        self.seal()
        os.close(self.reader)


class Channels:
    """Both ways, in new directories below `scratch`. A context manager.

    `report_directory` is to be shown read-only (in it the FIFO REPORT_NAME), `junit_directory`
    writable (in it the file JUNIT_NAME may be made). `owner` is the uid (and gid) of the command,
    None when it is our own. Raises SandboxError when they cannot be made.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.pipe.close()

    def junit(self) -> bytes:
        """The file, cut at `Limits.report`; b"" when it is none, a link or not regular.

        To be called when the command is dead.
        """
        return read_file(self.junit_directory, JUNIT_NAME, self._limit)
