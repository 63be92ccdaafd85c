"""Which files of a tree a command has changed. Links are neither followed nor read.

Nothing of the command is alive any more when the tree is read. The folders `.git` and `__pycache__`
are left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LEFT_OUT = frozenset({".git", "__pycache__"})

# Source trees are far smaller. A command may make more than it is worth to look at.
_MAX_DEPTH = 60
_MAX_ENTRIES = 500_000


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells without reading that a file was written: inode, size, times in ns, owner."""

    inode: int
    size: int
    modified: int
    changed: int
    owner: int

    def differs(self, other: FileStamp) -> bool:
        """Whether the file was written. A change of the owner alone sets the time of change."""
        if (self.inode, self.size, self.modified) != (other.inode, other.size, other.modified):
            return True
        return self.owner == other.owner and self.changed != other.changed


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """`contents` by relative path, None for a deleted file. `left_out`: changed and not read."""

    contents: Mapping[str, bytes | None]
    left_out: tuple[str, ...] = ()


def stamp_files(root: Path) -> Mapping[str, FileStamp]:
    """Return a stamp of every regular file below `root`."""
    return dict(_stamps(root))


def find_changed(
    root: Path, before: Mapping[str, FileStamp], *, most_files: int, most_bytes: int
) -> ChangedFiles:
    """Return what differs from `before`: at most `most_files`, each of at most `most_bytes`."""
    after = stamp_files(root)
    written = [p for p, stamp in after.items() if p not in before or before[p].differs(stamp)]
    gone = [p for p in before if p not in after]
    contents: dict[str, bytes | None] = {}
    left_out: list[str] = []
    for path in sorted((*written, *gone)):
        if len(contents) == most_files:
            left_out.append(path)
        elif path in after:
            data = _read(root / path, most_bytes)
            if data is None:
                left_out.append(path)
            else:
                contents[path] = data
        elif os.path.lexists(root / path):  # a link, a folder or a device stands in its place
            left_out.append(path)
        else:
            contents[path] = None
    return ChangedFiles(contents, tuple(left_out))


def _stamps(root: Path) -> Iterator[tuple[str, FileStamp]]:
    folders = [("", 0)]
    count = 0
    while folders and count < _MAX_ENTRIES:
        folder, depth = folders.pop()
        for entry in _entries(root / folder):
            count += 1
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _LEFT_OUT and depth < _MAX_DEPTH:
                    folders.append((path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                s = entry.stat(follow_symlinks=False)
                stamp = FileStamp(s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_uid)
                yield path, stamp


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # the command may have made it unreadable
        return []


def _read(path: Path, most: int) -> bytes | None:
    """The bytes of a regular file; None for another kind, a larger one or one that is closed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(most + 1)
    return data if len(data) <= most else None
