"""Writes files so that a crash leaves no half-written content, and locks folders."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from agent.errors import ConfigurationError

REPORT_MARK = b"<!doctype html>\n<!-- agent report -->\n"
"""The first bytes of a report of `agent report`, which may be replaced and is no code."""

LONGEST_ROW = 256 * 1024 * 1024
"""Bytes of a SWE-bench row at most; the rows of published data sets are far smaller."""


def read_small_file(path: Path, most: int | None = None) -> bytes | None:
    """As `sandbox.read_small_file`, but raises ConfigurationError where the file is too large."""
    import sandbox  # takes a fifth of a second

    try:
        return sandbox.read_small_file(path, most or sandbox.SMALL_FILE_BYTES)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise ConfigurationError(f"{path}: {error.strerror}") from None


# `tomllib` takes memory in the square of the parts of a key: 1 GB for a key of 32 KB.
_MOST_KEY_PARTS = 100
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse untrusted TOML. Raises ValueError, also for a very long key or very deep brackets."""
    text = data.decode("utf-8")
    if any(line.count(".") > _MOST_KEY_PARTS for line in _QUOTED.sub("", text).splitlines()):
        raise ValueError(f"a key of more than {_MOST_KEY_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def is_report(path: Path) -> bool:
    """Whether a file is a report of `agent report`."""
    if not path.is_file():
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(REPORT_MARK)) == REPORT_MARK
    return False


def make_private_folder(folder: Path) -> None:
    """Make a folder, and the missing ones above it, for this user alone. Raises OSError."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file atomically: after a crash it has the old or the new content. Raises OSError."""
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
    """Appends whole lines to a file, for one writer. Methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._end = _whole_lines(self._handle)
        os.ftruncate(self._handle, self._end)
        _sync_folder(path.parent)

    def append(self, line: bytes) -> None:
        """Append one line with its newline. It is on the disk on return."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._end)
            raise
        self._end += len(line)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _whole_lines(handle: int) -> int:
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
    """Hold the lock file `path` for a `with` block. The kernel releases it if the process dies.

    Without `wait`, raises ConfigurationError if another process holds it.
    """
    handle = open_locked(path, wait=wait)
    if handle is None:
        owner = ""
        with suppress(OSError):  # its holder may have removed it
            owner = path.read_bytes()[:32].decode("ascii", "replace").strip()
        raise ConfigurationError(
            f"{path.parent}: another run uses this folder (process {owner or 'unknown'}): wait "
            "for it, or choose another folder"
        )
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def open_locked(path: Path, *, wait: bool = False) -> int | None:
    """Open a file and lock it until the handle is closed; create it if it is missing.

    Returns None if another process holds the lock and `wait` is not set.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _names(path, handle):  # else its last holder removed the file meanwhile
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _names(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
