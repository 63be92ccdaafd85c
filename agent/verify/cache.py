"""Caches runs of the base between runs of the program.

Each is a record in one SQLite file, by the SHA-256 of everything that the result depends on. The
file is untrusted: a record in any other form (another version, another key, too old) counts as
absent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import ConfigurationError
from agent.shared.cache import RecordStore, record_format
from agent.shared.files import read_small_file
from agent.types import TestRun
from agent.types.protocols import Reporter
from agent.verify.judging.compare import executed, is_whole

# Change this number whenever the fields of an entry or their meaning change.
_VERSION: Literal[3] = 3

_FORMAT = record_format("cache of test runs", 0x50535243, _VERSION)  # "PSRC"

# Bytes of one entry, and of all. A run of 20,000 tests with long names has less than 4 MiB, and one
# of a dozen test files some 20 KiB.
_MOST_BYTES = 4 * 1024 * 1024
_MOST_TOTAL = 128 * 1024 * 1024

# Tests look at the clock and certificates expire, so that a result holds for a month at most.
_MOST_SECONDS = 30 * 24 * 3600.0


class _Entry(BaseModel):
    """A cached run, with the key under which it was written and when."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str
    written: float
    run: TestRun


class ResultCache:
    """Entries in a file of `folder`; None keeps nothing. Nothing raises. Close it.

    `now` is in seconds since the epoch.
    """

    def __init__(self, folder: Path | None, reporter: Reporter) -> None:
        path = folder / "results.sqlite" if folder else None
        self._store = RecordStore(path, reporter=reporter, limit=_MOST_TOTAL, file_format=_FORMAT)

    def close(self) -> None:
        """Remove the entries that were not used for longest, if they are too many."""
        self._store.close()

    def run(self, key: str, now: float) -> TestRun | None:
        """Return the run of a key, or None."""
        name = key.encode()
        try:
            entry = _Entry.model_validate_json(self._store.get([name]).get(name, b""))
        except ValidationError:
            return None
        is_current = entry.key == key and abs(now - entry.written) < _MOST_SECONDS
        return replace(entry.run, cached=True) if is_current else None

    def put_run(self, key: str, run: TestRun, now: float) -> None:
        """Cache a run that is whole and whose accounts agree; ignore any other."""
        if not is_whole(run) or run.channels.disagreements or not executed(run):
            return
        with suppress(ValueError):  # text that is no Unicode
            data = _Entry(key=key, written=now, run=run).model_dump_json().encode()
            if len(data) <= _MOST_BYTES:
                self._store.put([(key.encode(), data)])


# ------------------------------------------------------------------------------------------- keys


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


def is_named_by(python: Path, root: Path) -> bool:
    """Whether what is installed for an interpreter leads to a folder (an editable installation).

    Only small text files by which packages do that are read.
    """
    name = str(root).encode()
    for folder in _package_folders(python):
        for pattern in ("*.pth", "*.egg-link", "__editable__*.py"):
            for file in sorted(folder.glob(pattern)):
                with suppress(OSError, ConfigurationError):
                    if name in (read_small_file(file) or b""):
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
    packages: list[str] = []
    for folder in _package_folders(python):
        with suppress(OSError), os.scandir(folder) as entries:
            for one in entries:
                dated = one.stat(follow_symlinks=False).st_mtime_ns
                packages.append(f"{folder} {one.name} {dated}")
    text = "\n".join(sorted(packages))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
