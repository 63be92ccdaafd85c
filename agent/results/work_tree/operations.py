"""The operations that change the disk, one method each. Tests pass one that fails or kills."""

from __future__ import annotations

import errno
import os

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# File systems that cannot flush a folder say so in these ways.
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})


class FileOperations:
    """Names are relative to `folder`, the descriptor of an open folder. Methods raise OSError."""

    def make_folder(self, folder: int, name: str) -> None:
        """Make a folder; the umask decides its permissions."""
        os.mkdir(name, dir_fd=folder)

    def create(self, folder: int, name: str, mode: int) -> int:
        """Create a file, which must not exist, and return its descriptor."""
        return os.open(name, _NEW_FILE, mode, dir_fd=folder)

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of `data`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Flush a file or a folder to the disk."""
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise

    def link(self, folder: int, name: str, other: str) -> None:
        """Give a file a second name."""
        os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def rename(self, folder: int, name: str, to: str) -> None:
        """Rename a file; a file that has the new name is replaced."""
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, folder: int, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=folder)

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)
