"""What has to be the same on every machine of a run."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from pathlib import Path

import agent
from agent import __version__


def here() -> str:
    """Versions of this package, with a hash of its source, of Python and of Ray."""
    try:
        ray = metadata.version("ray")
    except metadata.PackageNotFoundError:
        ray = "none"
    return (
        f"patchshot {__version__} ({_digest()[:12]}), Python {platform.python_version()}, Ray {ray}"
    )


def _digest() -> str:
    """SHA-256 over names and contents of all modules, hex."""
    digest = hashlib.sha256()
    for place in agent.__path__:
        root = Path(place)
        for path in sorted(root.rglob("*.py")):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()
