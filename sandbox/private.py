"""Private directories on the host: chosen, made, locked, swept after a crash, removed.

They lie in memory where they fit well, else in the temporary directory. Making thousands of small
files takes seconds on many disks and a tenth of it on a tmpfs (2,500 files, 40 MB: 2.8 s against
0.23 s on a virtual machine's ext4), and every test run gets a fresh copy. A TMPDIR that the user
has set is obeyed.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.cgroups import memory_left

_NAME = re.compile(r"patchshot-(\d+)-[0-9a-f]{16}")
_LOCK = "lock"

# A younger directory without a lock may belong to an agent that has made but not locked it.
_STALE_SECONDS = 60.0

# Time to remove some 10^5 files from a slow disk. Afterwards the next sweep tries again.
_REMOVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class PrivateDirectory:
    """A directory of mode 0700 with an flock that its maker holds as long as it lives."""

    path: Path
    lock: int  # descriptor; not inherited by children

    def remove(self) -> None:
        """Delete the directory and its content. Never follows links, never raises."""
        remove_tree(self.path)
        os.close(self.lock)


def make_private(parent: Path | None = None) -> PrivateDirectory:
    """Make a locked directory below `parent` (default: the temporary directory of the system).

    Raises OSError when it cannot be made.
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    path = base / f"patchshot-{os.getpid()}-{secrets.token_hex(8)}"
    path.mkdir(mode=0o700)
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return PrivateDirectory(path, lock)


def sweep_stale(parent: Path | None = None) -> tuple[Path, ...]:
    """Remove what killed agents of this user left below `parent`; return it in path order.

    The default is every directory where agents put them. A locked directory is in use and stays.
    """
    parents = temporary_directories() if parent is None else (parent,)
    left = (path for folder in parents for path in folder.glob("patchshot-*"))
    stale = sorted(path for path in left if _is_stale(path))
    for path in stale:
        remove_tree(path)
    return tuple(stale)


def remove_tree(path: Path) -> None:
    """Delete `path` and its content, also directories without permissions and very deep ones.

    Uses `rm` instead of shutil.rmtree, because a tree may be deeper than the interpreter's stack.
    """
    _quietly("rm", "-rf", "--", str(path))
    if os.path.lexists(path):
        _quietly("chmod", "-R", "u+rwx", "--", str(path))
        _quietly("rm", "-rf", "--", str(path))


def _quietly(*argv: str) -> None:
    try:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # the next start sweeps what stays


def _is_stale(path: Path) -> bool:
    match = _NAME.fullmatch(path.name)
    if match is None or not _is_own_directory(path):
        return False
    age = time.time() - path.lstat().st_mtime
    return _is_unlocked(path) and (age > _STALE_SECONDS or not _alive(int(match[1])))


def _is_own_directory(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.is_dir() and path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _is_unlocked(path: Path) -> bool:
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


# ------------------------------------------------------------- where private directories lie

MEMORY = Path("/dev/shm")  # noqa: S108 - the directories in it are private

# The size of a repository's tree, its objects and all copies of a validation, in store sizes.
_COPIES = 12

# Memory that must stay free for the tests themselves. Copies use at most a quarter of what is free.
_MARGIN_BYTES = 1024 * 1024 * 1024
_SHARE = 4


def temporary_directories() -> tuple[Path, ...]:
    """Return every directory in which private directories may lie."""
    usual = Path(tempfile.gettempdir())
    if os.environ.get("TMPDIR") or not MEMORY.is_dir() or usual == MEMORY:
        return (usual,)
    return (usual, MEMORY)


def choose_directory(store_bytes: int) -> Path:
    """Choose the parent of copies of a repository whose object store has this size."""
    usual, *memory = temporary_directories()
    needed = store_bytes * _COPIES + _MARGIN_BYTES
    fits = memory and needed <= min(_free(MEMORY), _available_memory() // _SHARE)
    return MEMORY if fits and _can_execute(MEMORY) else usual


def store_size(objects: Path) -> int:
    """Sum the bytes of a git object store: loose objects and packs. Never follows links."""
    total = 0
    for folder, _, files in os.walk(objects):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
            except OSError:
                continue  # git is repacking
    return total


def _free(place: Path) -> int:
    try:
        status = os.statvfs(place)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _can_execute(place: Path) -> bool:
    """Whether scripts of the target could start there: containers often mount it noexec."""
    return os.access(place, os.W_OK | os.X_OK) and not os.statvfs(place).f_flag & os.ST_NOEXEC


def _available_memory() -> int:
    """Return the free memory of the machine or of our container, whichever is less."""
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
