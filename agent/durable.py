"""Files that outlive a kill: whole or not there, appended to without a torn end, locked."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import ConfigurationError


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file as a whole: after a crash it is the old one or the new one. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
        _sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class AppendFile:
    """Lines appended to a file by one writer. A last line that a crash has torn is cut off.

    A line that cannot be written whole is taken back, so that a full disk leaves no torn middle.
    Methods raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._end = _whole_lines(self._handle)
        os.ftruncate(self._handle, self._end)
        _sync_folder(path.parent)

    def append(self, line: bytes, *, sync: bool = True) -> None:
        """Add one line, its newline included; with `sync` it is on the disk on return."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            if sync:
                os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._end)
            raise
        self._end += len(line)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _whole_lines(handle: int) -> int:
    """The size of the file up to its last newline."""
    size = os.fstat(handle).st_size
    block = 1 << 16
    while size:
        start = max(0, size - block)
        found = os.pread(handle, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` for the block; the kernel lets go of it when the process ends.

    Without `wait`, raises ConfigurationError where somebody else holds it.
    """
    handle = _lock(path, wait=wait)
    while not _names(path, handle):  # its last holder has removed it meanwhile
        os.close(handle)
        handle = _lock(path, wait=wait)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _lock(path: Path, *, wait: bool) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        raise ConfigurationError(
            f"{path.parent}: another run uses this folder (process {owner or 'unknown'}): wait "
            "for it, or choose another folder"
        ) from None
    except BaseException:
        os.close(handle)
        raise
    return handle


def _names(path: Path, handle: int) -> bool:
    """Whether `path` is the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
