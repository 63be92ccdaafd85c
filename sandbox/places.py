"""Where private copies are put: in memory where they fit well, else in the temporary directory.

Making some thousand small files costs seconds on many disks and a tenth of it on a tmpfs (measured:
2,500 files, 40 MB, 2.8 s against 0.23 s on a virtual machine's ext4), and every test run gets a
fresh copy. A TMPDIR that the user has set is obeyed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sandbox.hierarchies import memory_left

MEMORY = Path("/dev/shm")  # noqa: S108  (directories in it are private, see `sandbox.private`)

# A repository's tree, its objects, and the copies of a validation, as multiples of the store.
_COPIES = 12

# What must stay free for the tests themselves, and never more than this share of free memory.
_MARGIN = 1024 * 1024 * 1024
_SHARE = 4


def temporary_places() -> tuple[Path, ...]:
    """Every directory in which private directories may lie."""
    usual = Path(tempfile.gettempdir())
    if os.environ.get("TMPDIR") or not MEMORY.is_dir() or usual == MEMORY:
        return (usual,)
    return (usual, MEMORY)


def working_place(store_bytes: int) -> Path:
    """Where copies of a repository belong whose object store has this size."""
    usual, *memory = temporary_places()
    needed = store_bytes * _COPIES + _MARGIN
    fits = memory and needed <= min(_free(MEMORY), _available_memory() // _SHARE)
    return MEMORY if fits and _can_execute(MEMORY) else usual


def store_size(objects: Path) -> int:
    """Bytes of a git object store, roughly: loose objects and packs; links are not followed."""
    total = 0
    for folder, _, files in os.walk(objects):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
            except OSError:
                continue  # repacked in this moment
    return total


def _free(place: Path) -> int:
    try:
        status = os.statvfs(place)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _can_execute(place: Path) -> bool:
    """Containers often mount it noexec: scripts of the target would not start."""
    return os.access(place, os.W_OK | os.X_OK) and not os.statvfs(place).f_flag & os.ST_NOEXEC


def _available_memory() -> int:
    """Of the machine, and of the container that we are in."""
    left = memory_left()
    return _free_memory() if left is None else min(left, _free_memory())


def _free_memory() -> int:
    try:
        text = Path("/proc/meminfo").read_text("ascii")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
