"""Reads and writes files of untrusted folders: no links followed, nothing but regular files.

Also makes private directories on the host, removes them, and sweeps those of killed agents.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sandbox.killing import is_abandoned, new_name

SMALL_FILE_BYTES = 1 << 20
"""Largest file that `read_small_file` reads: far more than any configuration needs."""

# ELOOP: a symbolic link; ENXIO: a FIFO or socket that nobody reads, a device that is gone.
_NO_SUCH_FILE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENXIO, errno.EISDIR}
)

_READ_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: Path | str, folder: int | None = None) -> BinaryIO | None:
    """Open a regular file to read it; None where there is none. Raises OSError.

    Never blocks and follows no link in the last part of the path, which an open `folder` may hold.
    """
    try:
        handle = os.open(path, _READ_REGULAR, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_SUCH_FILE:
            return None
        raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    return None


def read_small_file(path: Path, most: int = SMALL_FILE_BYTES) -> bytes | None:
    """Return the content of a small file; None where there is no regular one.

    Raises OSError, with EFBIG where the file has more than `most` bytes.
    """
    if (file := open_regular(path)) is None:
        return None
    with file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if size <= most else b""
    if max(len(data), size) > most:
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

    `executable` None keeps the bit of that file. New entries belong to the owner of `root`. Raises
    OSError, and ValueError for a path that is not inside.
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
    """Remove the file or link at `path`, if it exists, and the directories that become empty."""
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
    with _opened(root, parents, create=True) as directory, suppress(FileExistsError):
        os.symlink(points_to, name, dir_fd=directory)


def is_file(root: Path, path: str) -> bool:
    """Whether `path` below `root` is a regular file, reached without following a link."""
    *parents, name = split_path(path)
    try:
        with _opened(root, parents, create=False) as directory:
            return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


@contextmanager
def open_parent(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that holds `path` below `root`, and the name in it.

    Raises OSError (a component is missing, a link or a file), ValueError for a path outside.
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
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _remove_if_empty(root: Path, parts: list[str]) -> bool:
    with _opened(root, parts[:-1], create=False) as directory:
        try:
            os.rmdir(parts[-1], dir_fd=directory)
        except OSError:
            return False
    return True


# ---- private directories

# Time to remove some 10^5 files from a slow disk. Afterwards the next sweep tries again.
_REMOVE_SECONDS = 120.0


def make_private(parent: Path | None = None) -> Path:
    """Make a directory of mode 0700 below `parent` (default: the system's temporary one).

    Its name says which process made it. Raises OSError.
    """
    path = (parent or Path(tempfile.gettempdir())) / new_name()
    path.mkdir(mode=0o700)
    return path


def sweep_stale(parent: Path | None = None) -> tuple[Path, ...]:
    """Remove what killed agents left below `parent` (as in `make_private`); return it in order."""
    paths = (parent or Path(tempfile.gettempdir())).glob("patchshot-*")
    stale = sorted(path for path in paths if is_abandoned(path.name) and _is_own_directory(path))
    for path in stale:
        remove_tree(path)
    return tuple(stale)


def remove_tree(path: Path) -> None:
    """Delete `path` with its content, however deep. Never follows links, never raises."""
    _quietly("rm", "-rf", "--", str(path))
    if os.path.lexists(path):
        _quietly("chmod", "-R", "u+rwx", "--", str(path))
        _quietly("rm", "-rf", "--", str(path))


def _quietly(*argv: str) -> None:
    with suppress(OSError, subprocess.TimeoutExpired):  # the next start sweeps what stays
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVE_SECONDS,
            check=False,
        )


def _is_own_directory(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.is_dir() and path.lstat().st_uid == os.geteuid()
    except OSError:
        return False
