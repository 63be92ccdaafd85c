"""Caches runs of the base and answers of interpreters between runs of the program.

Both are small JSON files in one folder, named by the SHA-256 of everything that the result depends
on. The files are untrusted: an entry in any other form (another version, another key, other fields,
a link, too large, too old) counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import ConfigurationError
from agent.shared.files import read_small_file
from agent.types import TestRun
from agent.verify.judging.compare import executed, is_whole

# Change this number whenever the fields of an entry or their meaning change.
_VERSION: Literal[2] = 2

# Limit in bytes. A run of 20,000 tests with long names is smaller.
_MOST_BYTES = 4 * 1024 * 1024

# Tests look at the clock and certificates expire, so that a result holds for a month at most.
_MOST_SECONDS = 30 * 24 * 3600.0


class Probed(NamedTuple):
    """What an interpreter says: its version, that of pytest, and its top-level modules."""

    version: str
    pytest: str | None
    modules: tuple[str, ...]


class _Entry(BaseModel):
    """One cached value, with the key under which it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[2] = _VERSION
    key: str
    run: TestRun | None = None
    answer: Probed | None = None


@dataclass(frozen=True, slots=True)
class ResultCache:
    """Entries in `folder`, which need not exist. The oldest are removed beyond the two limits.

    A run of a dozen test files takes some 20 KiB. `now` is in seconds since the epoch. Failed
    writes do not raise.
    """

    folder: Path
    most_files: int = 512
    most_total: int = 128 * 1024 * 1024  # bytes

    def run(self, key: str, now: float) -> TestRun | None:
        """Return the run of a key, or None."""
        entry = self._entry(key, now)
        return replace(entry.run, cached=True) if entry and entry.run else None

    def put_run(self, key: str, run: TestRun) -> None:
        """Cache a run that is whole and whose accounts agree; ignore any other."""
        if is_whole(run) and not run.channels.disagreements and executed(run):
            self._put(_Entry(key=key, run=run))

    def answer(self, key: str, now: float) -> Probed | None:
        """Return what an interpreter said of itself, or None.

        Starting pytest only to learn its version takes as long as a short test run.
        """
        entry = self._entry(key, now)
        return entry.answer if entry else None

    def put_answer(self, key: str, answer: Probed) -> None:
        """Cache an answer that names a pytest: a missing one may be installed by the next run."""
        if answer.pytest is not None:
            self._put(_Entry(key=key, answer=answer))

    def _entry(self, key: str, now: float) -> _Entry | None:
        try:
            entry = _Entry.model_validate_json(_read(self._path(key), now) or b"")
        except ValidationError:
            return None
        return entry if entry.key == key else None

    def _put(self, entry: _Entry) -> None:
        with suppress(OSError, ValueError):  # ValueError: text that is no Unicode
            data = entry.model_dump_json().encode()
            if len(data) <= _MOST_BYTES:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(self._path(entry.key), data)
                self._prune()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _prune(self) -> None:
        with os.scandir(self.folder) as entries:
            states = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        total = 0
        newest_first = sorted(states, key=lambda one: (-one[1].st_mtime, one[0]))
        for number, (name, state) in enumerate(newest_first):
            total += state.st_size
            if number >= self.most_files or total > self.most_total:
                with suppress(OSError):
                    (self.folder / name).unlink()


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
        # The descriptor of a folder cannot be opened as a file: the check comes first.
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES)
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    """Write the whole file or nothing, even if two programs write at once."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".run-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)  # noqa: PTH105  (names from mkstemp are strings)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise


# ------------------------------------------------------------------------------------------- keys


def probe_key(python: Path, argv: Sequence[str], shown: Sequence[Path], backend: str) -> str:
    """Return the key of a probe: the interpreter's file and what it can import."""
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
            "installed": installed_packages(python),
            "backend": backend,
        }
    )


def key_of(parts: Mapping[str, object]) -> str:
    """Return the key of what a result depends on: any values that JSON can hold."""
    text = json.dumps({**parts, "cache": _VERSION}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def digest_of(contents: Mapping[str, bytes | None]) -> str:
    """Return one digest of files by path; None is a deleted file."""
    whole = hashlib.sha256()
    for path in sorted(contents):
        data = contents[path]
        inner = "gone" if data is None else hashlib.sha256(data).hexdigest()
        whole.update(f"{path!r} {inner}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()


def files_digest(folder: Path) -> str:
    """Return the `digest_of` the files directly in a folder."""
    return digest_of({f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()})


def is_named_by(python: Path, root: Path) -> bool:
    """Whether what is installed for an interpreter leads to a folder (an editable installation).

    Only small text files by which packages do that are read.
    """
    wanted = str(root).encode()
    for pattern in ("*.pth", "*.egg-link", "__editable__*.py"):
        for folder in _package_folders(python):
            for file in sorted(folder.glob(pattern)):
                with suppress(OSError, ConfigurationError):
                    if wanted in (read_small_file(file) or b""):
                        return True
    return False


def _package_folders(python: Path) -> list[Path]:
    """Return the folders of installed packages, those of a base installation too."""
    prefixes = sorted({python.parent.parent, python.resolve().parent.parent})
    return [
        folder for prefix in prefixes for folder in sorted(prefix.glob("lib*/python*/*-packages"))
    ]


def installed_packages(python: Path) -> str:
    """Return a digest of the names and dates of an interpreter's installed packages.

    It covers the installation that a virtual environment was made from. It misses a package that is
    changed in place under the same name and date.
    """
    found: list[str] = []
    for folder in _package_folders(python):
        with suppress(OSError), os.scandir(folder) as entries:
            for one in entries:
                dated = one.stat(follow_symlinks=False).st_mtime_ns
                found.append(f"{folder} {one.name} {dated}")
    return hashlib.sha256("\n".join(sorted(found)).encode("utf-8", "surrogateescape")).hexdigest()
