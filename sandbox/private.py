"""Private directories on the host: made, locked, swept after a crash, removed in any state."""

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

from sandbox.places import temporary_places

_NAME = re.compile(r"patchshot-(\d+)-[0-9a-f]{16}")
_LOCK = "lock"

# A directory is made, then locked; one that is younger may belong to an agent between the two.
_STALE_SECONDS = 60.0

# Removing some 10^5 files of a slow disk; beyond it the directory stays for the next sweep.
_REMOVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class PrivateDirectory:
    """A directory of mode 0700 that is held by an flock for as long as its maker lives."""

    path: Path
    lock: int  # descriptor; not inherited by children

    def remove(self) -> None:
        """Delete the directory with all it holds. Links are never followed; never raises."""
        remove_tree(self.path)
        os.close(self.lock)


def make_private(parent: Path | None = None) -> PrivateDirectory:
    """A new locked directory below `parent` (default: the temporary directory of the system).

    Raises OSError when it cannot be made.
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    path = base / f"patchshot-{os.getpid()}-{secrets.token_hex(8)}"
    path.mkdir(mode=0o700)
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return PrivateDirectory(path, lock)


def sweep_stale(parent: Path | None = None) -> tuple[Path, ...]:
    """Remove what killed agents of this user left below `parent`; the removed ones, in path order.

    Default: every place where they are put. A directory whose lock is held is in use and stays.
    """
    places = temporary_places() if parent is None else (parent,)
    left = (path for place in places for path in place.glob("patchshot-*"))
    stale = sorted(path for path in left if _is_stale(path))
    for path in stale:
        remove_tree(path)
    return tuple(stale)


def remove_tree(path: Path) -> None:
    """Delete `path` with all it holds, also directories without permissions and very deep ones.

    `rm` rather than shutil.rmtree: a tree deeper than the interpreter's stack is no obstacle.
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
        pass  # what stays is swept at the next start


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
        return True
    return True
