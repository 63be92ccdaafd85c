"""What a folder looks like, down to time stamps: to show that nothing in it was touched."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Path -> (mode, mtime in ns, SHA-256 of content or link target) of everything below `root`.

    Folders count with their mtime: a temporary file that came and went shows there.
    """
    found = {}
    for folder, directories, files in os.walk(root):
        for name in (".", *directories, *files):
            path = Path(folder, name)
            status = path.lstat()
            content = b""
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            elif path.is_file():
                content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, digest)
    return found
