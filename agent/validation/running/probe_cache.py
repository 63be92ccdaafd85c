"""What an interpreter said of itself inside the sandbox, kept between runs of the program.

Starting pytest only to learn its version takes a fifth of a second, as long as a short test run.
An answer holds for an interpreter and what is installed for it, as far as names and dates tell.
Only answers that say which pytest is there are kept: what is missing may be installed by then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agent.validation.running.kept_files import KeptEntry, KeptFiles
from agent.validation.running.run_cache import installed, key_of


class _Entry(KeptEntry):
    """One answer as it lies on disk."""

    version: str
    pytest: str


class ProbeCache:
    """Keeps answers as files. Never raises for what it finds there, or cannot write there."""

    def __init__(self, files: KeptFiles) -> None:
        self._files = files

    def get(self, key: str, now: float) -> tuple[str, str] | None:
        """Versions of Python and pytest. `now`: seconds since the epoch."""
        entry = self._files.entry(key, now, _Entry)
        return None if entry is None else (entry.version, entry.pytest)

    def put(self, key: str, version: str, pytest: str | None) -> None:
        """Keep an answer, unless there is no pytest in it."""
        if pytest is not None:
            entry = {"key": key, "version": version, "pytest": pytest}
            self._files.put(key, json.dumps(entry).encode("ascii"))


def probe_key(python: Path, argv: Sequence[str], shown: Sequence[Path], backend: str) -> str:
    """The key of a question to an interpreter: the file that it is, and what it can import."""
    try:
        state = python.stat()
        file = [state.st_ino, state.st_size, state.st_mtime_ns]
    except OSError:
        file = []
    return key_of(
        {
            "probe": list(argv),
            "python": [str(python), *file],
            "shown": [str(path) for path in shown],
            "installed": installed(python),
            "backend": backend,
        }
    )
