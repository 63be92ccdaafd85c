"""Reads and writes files of untrusted folders: no links followed, nothing but regular files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

SMALL_FILE_BYTES = 1 << 20
"""Largest file that `read_small_file` reads: far more than any configuration needs."""

# ELOOP: a symbolic link; ENXIO: a FIFO or socket that nobody reads, a device that is gone.
_NO_SUCH_FILE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENXIO, errno.EISDIR}
)


def read_small_file(path: Path, most: int = SMALL_FILE_BYTES) -> bytes | None:
    """The content of a small file in an untrusted folder; None where there is no such file.

    Reads regular files only: a symbolic link, FIFO, device or folder counts as missing, and
    opening one never blocks. Raises OSError, with EFBIG where the file has more than `most` bytes.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno in _NO_SUCH_FILE:
            return None
        raise
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        data = file.read(most + 1) if state.st_size <= most else b""
    if max(len(data), state.st_size) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return data


# ---- reading and writing below untrusted folders without following links


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def split_path(path: str) -> tuple[str, ...]:
    """Split a relative POSIX path. Raises ValueError for any other kind of path."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"not a path inside the workspace: {path!r}")
    return parts


def write_file(root: Path, path: str, data: bytes, *, executable: bool | None = None) -> None:
    """Write `data` to `path` below `root`; replaces a file or link that is there.

    `executable` None keeps the bit of the file that is replaced. New files and directories belong
    to the owner of `root`. Raises OSError when a component of the path is a link or a file, or the
    path is a directory, and ValueError for a path that is not inside.
    """
    *parents, name = split_path(path)
    with _opened(root, parents, create=True) as directory:
        if executable is None:
            executable = _is_executable(directory, name)
        _unlink(directory, name)
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=directory)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            _adopt(descriptor, directory)
            os.fchmod(descriptor, 0o755 if executable else 0o644)


def delete_file(root: Path, path: str) -> None:
    """Remove the file or link at `path` and the directories that become empty.

    A missing path is no error, nor is a path through a link or a file. Raises OSError when `path`
    is a directory.
    """
    *parents, name = split_path(path)
    try:
        with _opened(root, parents, create=False) as directory:
            _unlink(directory, name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for depth in range(len(parents), 0, -1):
        if not _remove_if_empty(root, parents[:depth]):
            return


def make_directory(root: Path, path: str) -> None:
    """Make `path` below `root` a real directory. Raises OSError when a component is a link."""
    with _opened(root, split_path(path), create=True):
        pass


def make_link(root: Path, path: str, points_to: str) -> None:
    """Make `path` below `root` a symbolic link, unless it exists. Raises OSError."""
    *parents, name = split_path(path)
    with _opened(root, parents, create=True) as directory:
        try:
            os.symlink(points_to, name, dir_fd=directory)
        except FileExistsError:
            pass


def is_file(root: Path, path: str) -> bool:
    """Whether `path` below `root` is a regular file, reached without following a link."""
    *parents, name = split_path(path)
    try:
        with _opened(root, parents, create=False) as directory:
            return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def read_file(root: Path, name: str, limit: int) -> bytes:
    """Read at most `limit` bytes of the regular file `name` in `root`; b"" for anything else."""
    try:
        with _opened(root, (), create=False) as directory:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=directory)
    except OSError:
        return b""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit)


@contextmanager
def open_parent(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that holds `path` below `root`, and the name in it.

    Raises OSError when a component of the path is missing, a link or a file, and ValueError for a
    path that is not inside.
    """
    *parents, name = split_path(path)
    with _opened(root, parents, create=False) as directory:
        yield directory, name


@contextmanager
def _opened(root: Path, parts: tuple[str, ...] | list[str], *, create: bool) -> Iterator[int]:
    current = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            following = _enter(current, part, create=create)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def _enter(directory: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not create:
            raise
    os.mkdir(name, 0o755, dir_fd=directory)
    made = os.open(name, _DIRECTORY, dir_fd=directory)
    _adopt(made, directory)
    os.fchmod(made, 0o755)
    return made


def _adopt(descriptor: int, directory: int) -> None:
    """Give a new entry to the owner of its directory, which only root can and must do."""
    if os.geteuid() == 0:
        owner = os.fstat(directory)
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _is_executable(directory: int, name: str) -> bool:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR)


def _unlink(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def _remove_if_empty(root: Path, parts: list[str]) -> bool:
    with _opened(root, parts[:-1], create=False) as directory:
        try:
            os.rmdir(parts[-1], dir_fd=directory)
        except OSError:
            return False
    return True
