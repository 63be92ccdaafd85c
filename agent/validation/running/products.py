"""Files that a build put beside the sources and git ignores, without which nothing imports.

`_version.py` of setuptools-scm, `*.so` of in-place builds: a fresh checkout lacks them, and every
test would fail in collection. They are copied from the user's work tree, never through a link.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from agent.protocols import Snapshot

_PRODUCT = re.compile(r"_*(?:scm_|generated_|build_)?version_*\.py|.*\.(?:so|pyd)")

# Compiled extensions of a large project; what is beyond stays away.
_MOST_BYTES = 512 * 1024 * 1024


def build_products(snapshot: Snapshot) -> Mapping[str, bytes]:
    """Path -> bytes of the products that stand in folders of tracked Python files, by path."""
    found: dict[str, bytes] = {}
    left = _MOST_BYTES
    for path in _ignored(snapshot):
        data = _read(snapshot.root / path, left)
        if data is not None:
            found[path] = data
            left -= len(data)
    return found


def _ignored(snapshot: Snapshot) -> Iterator[str]:
    folders = {str(PurePosixPath(path).parent) for path in snapshot.files if path.endswith(".py")}
    for folder in sorted(folders):
        for name in _names(snapshot.root / folder):
            path = name if folder == "." else f"{folder}/{name}"
            if _PRODUCT.fullmatch(name) and not snapshot.exists(path):
                yield path


def _names(folder: Path) -> Iterable[str]:
    """Names of the regular files of a folder, in order; none when it is a link or gone."""
    try:
        if folder.is_symlink():
            return ()
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
    except OSError:
        return ()


def _read(path: Path, most: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most:
            return None
        return file.read(most)
