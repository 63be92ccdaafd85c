"""Reads small files of untrusted folders: configuration, links of git, lists of names."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

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
