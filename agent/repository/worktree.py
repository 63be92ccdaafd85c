"""Reads files from disk without following symbolic links: each folder is opened from the root with
O_NOFOLLOW, so nothing outside is read even if paths are swapped meanwhile.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import stat
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_READ_BYTES = 1 << 20

# A larger file is not hashed and counts as changed. A sparse file of a terabyte costs nothing to
# make and twenty minutes to read.
_MAX_HASHED = 4 << 30

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Kind(enum.Enum):
    """What is at a path on disk."""

    FILE = "file"
    SYMLINK = "symlink"
    BEHIND_SYMLINK = "behind-symlink"  # a folder on the way is a link
    DIRECTORY = "directory"
    SPECIAL = "special"  # a FIFO, socket or device
    UNREADABLE = "unreadable"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A path on disk; `data` is None above the limit. `blob` is the git blob id of the bytes or the
    link's target, `blob_lf` the id after replacing CRLF by LF.
    """

    kind: Kind
    data: bytes | None = None
    size: int = 0
    executable: bool = False
    blob: str = ""
    blob_lf: str = ""


def blob_id(data: bytes) -> str:
    """Return the git blob id, SHA-1 in hex (git-hash-object)."""
    digest = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def read_files(
    root: Path,
    paths: Iterable[bytes],
    *,
    limit: int,
    hashed: Container[bytes] = (),
) -> Mapping[bytes, DiskFile]:
    """Return what is at each path. Above `limit` bytes, files in `hashed` are only hashed."""
    files: dict[bytes, DiskFile] = {}
    for folder, group in groupby(sorted(_split(path) for path in paths), key=lambda pair: pair[0]):
        with _opened(root, folder) as opened:
            for _, name in group:
                path = folder + b"/" + name if folder else name
                if isinstance(opened, Kind):
                    files[path] = DiskFile(opened)
                else:
                    files[path] = _read_file(opened, name, limit, path in hashed)
    return files


def _split(path: bytes) -> tuple[bytes, bytes]:
    folder, _, name = path.rpartition(b"/")
    return folder, name


@contextlib.contextmanager
def _opened(root: Path, folder: bytes) -> Iterator[int | Kind]:
    """Open the folder; return a descriptor, or why it cannot be read."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in filter(None, folder.split(b"/")):
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=descriptor)
            except OSError as error:
                yield _why_not(error, name, descriptor)
                return
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _why_not(error: OSError, name: bytes, folder: int) -> Kind:
    if isinstance(error, FileNotFoundError):
        return Kind.ABSENT
    if isinstance(error, NotADirectoryError):
        # Linux reports a link that may not be followed this way too.
        mode = _stat(name, folder)
        return Kind.BEHIND_SYMLINK if mode is not None and stat.S_ISLNK(mode) else Kind.ABSENT
    return Kind.UNREADABLE


def _stat(name: bytes, folder: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None


def _read_file(folder: int, name: bytes, limit: int, hashed: bool) -> DiskFile:
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        return _unopened(error, name, folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            directory = stat.S_ISDIR(status.st_mode)
            return DiskFile(Kind.DIRECTORY if directory else Kind.SPECIAL)
        executable = bool(status.st_mode & stat.S_IXUSR)
        if status.st_size > limit and hashed and status.st_size <= _MAX_HASHED:
            return _hashed(descriptor, status.st_size, executable)
        if status.st_size > limit:
            return DiskFile(Kind.FILE, None, status.st_size, executable)
        return _file(_read_all(descriptor, status.st_size), executable)
    except OSError:
        return DiskFile(Kind.UNREADABLE)
    finally:
        os.close(descriptor)


def _unopened(error: OSError, name: bytes, folder: int) -> DiskFile:
    mode = _stat(name, folder)
    if mode is None:
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        return DiskFile(Kind.ABSENT if absent else Kind.UNREADABLE)
    if not stat.S_ISLNK(mode):
        # ENXIO: a socket, or a device without a driver.
        readable = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        return DiskFile(Kind.UNREADABLE if readable else Kind.SPECIAL)
    try:
        target = blob_id(os.readlink(name, dir_fd=folder))
    except OSError:
        return DiskFile(Kind.ABSENT)
    return DiskFile(Kind.SYMLINK, blob=target, blob_lf=target)


def _file(data: bytes, executable: bool) -> DiskFile:
    blob = blob_id(data)
    blob_lf = blob_id(data.replace(b"\r\n", b"\n")) if b"\r\n" in data else blob
    return DiskFile(Kind.FILE, data, len(data), executable, blob, blob_lf)


def _read_all(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    parts = [data]  # it grew or shrank since fstat, or the read was short
    while data:
        data = os.read(descriptor, _READ_BYTES)
        parts.append(data)
    return b"".join(parts)


def _hashed(descriptor: int, size: int, executable: bool) -> DiskFile:
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    while part := os.read(descriptor, _READ_BYTES):
        digest.update(part)
    blob = digest.hexdigest()
    return DiskFile(Kind.FILE, None, size, executable, blob, blob)
