"""What is remembered between runs of the program: a folder of small files, untrusted when read.

One file an entry, named by its key. A link, a pipe, what is too large or too old is as good as
absent. The folder is bounded: the oldest go first.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

# A run of 20,000 tests with long names is below; what is larger is cheaper to run than to keep.
_MOST_BYTES = 4 * 1024 * 1024

# Tests look at the clock, certificates run out: what was true a month ago is asked again.
_MOST_SECONDS = 30 * 24 * 3600.0


class KeptEntry(BaseModel):
    """What entries have in common: the key that they were put under, whatever their file's name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str


_Entry = TypeVar("_Entry", bound=KeptEntry)


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Entries below `folder`, which need not be there.

    A run of a dozen test files takes some 20 KiB.
    """

    folder: Path
    most_files: int = 512
    most_total: int = 128 * 1024 * 1024  # bytes

    def get(self, key: str, now: float) -> bytes | None:
        """What was put under a key, a name without separators. `now`: seconds since the epoch."""
        return _read(self._path(key), now)

    def entry(self, key: str, now: float, kind: type[_Entry]) -> _Entry | None:
        """What was put under a key, where it is an entry of this kind and has that key in it."""
        data = self.get(key, now)
        if data is None:
            return None
        try:
            found = kind.model_validate_json(data)
        except ValidationError:
            return None
        return found if found.key == key else None

    def put(self, key: str, data: bytes) -> None:
        """Keep it, unless it is too large; a full or read-only disk costs time, nothing else."""
        if len(data) > _MOST_BYTES:
            return
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._path(key), data)
            self._prune()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _prune(self) -> None:
        files: list[tuple[float, str, int]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                files.append((-state.st_mtime, entry.name, state.st_size))
        for name in self._beyond(sorted(files)):
            with suppress(OSError):
                (self.folder / name).unlink()

    def _beyond(self, files: Sequence[tuple[float, str, int]]) -> list[str]:
        """Names of the oldest files, without which the rest is within its bounds."""
        total, names = 0, []
        for number, (_, name, size) in enumerate(files):
            total += size
            if number >= self.most_files or total > self.most_total:
                names.append(name)
        return names


def _read(path: Path, now: float) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        state = os.fstat(descriptor)
        fresh = abs(now - state.st_mtime) < _MOST_SECONDS
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST_BYTES or not fresh:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES)
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    """All or nothing, also when two programs write at once."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".run-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)  # noqa: PTH105  (names from mkstemp are strings)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise
