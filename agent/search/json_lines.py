"""JSON lines that cost money to produce: they are appended to a file, and damaged lines are
skipped.

A line that a crash truncated is skipped, and the next line starts on a new line. Several processes
may append. A process that produces lines holds `making`, so that two processes do not pay for the
same lines.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from agent.errors import ConfigurationError

MAX_LINE = 1_000_000
"""Maximum bytes of a line. This program writes no longer ones."""

_Line = TypeVar("_Line", bound=BaseModel)


class JsonLines(Generic[_Line]):
    """A file whose lines are instances of one pydantic model. Not thread-safe."""

    def __init__(self, path: Path, kind: type[_Line]) -> None:
        self.path = path
        self._kind = kind
        self._read_to = 0

    def news(self) -> Iterator[_Line]:
        """Yield the lines that this or another process added since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_to)
                for line in file:
                    if not line.endswith(b"\n"):
                        return  # truncated, or still being written
                    self._read_to += len(line)
                    parsed = self._parsed(line)
                    if parsed is not None:
                        yield parsed
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be read ({error.strerror}): check PATCHSHOT_DATA_DIR"
            ) from None

    def append(self, line: _Line) -> None:
        """Append a line and sync it to disk. Raises OSError and leaves the file unchanged."""
        data = line.model_dump_json().encode("utf-8", "surrogatepass") + b"\n"
        handle = self._open_for_append()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            end = os.fstat(handle).st_size
            if end and os.pread(handle, 1, end - 1) != b"\n":
                data = b"\n" + data  # keeps a truncated line separate
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, end)
                raise
        finally:
            os.close(handle)

    @contextmanager
    def making(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the lock for producing lines.

        Yields False if another process holds it and not `wait`.
        """
        self._make_folder()
        lock = self.path.with_name(f"{self.path.name}.lock")
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(handle)

    def _parsed(self, line: bytes) -> _Line | None:
        if len(line) > MAX_LINE or not line.strip():
            return None
        try:
            return self._kind.model_validate_json(line)
        except ValidationError:
            return None

    def _open_for_append(self) -> int:
        self._make_folder()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)

    def _make_folder(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
