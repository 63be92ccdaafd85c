"""Runs of unpatched trees, kept between runs of the program. JSON files, untrusted when read.

One file a run, named by the SHA-256 of all that a run depends on. What is not exactly what was
written (another version, another key, a link, too large, not the fields it should have) is as good
as absent. Only whole runs whose accounts agree are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.types import Channels, Outcome, TestRun
from agent.validation.judging.compare import executed, is_whole

# Changes whenever the fields or the meaning of an entry do.
VERSION = 1

# A run of 20,000 tests with long names is below; what is larger is cheaper to run than to keep.
_MOST_BYTES = 4 * 1024 * 1024

# Of the folder; the oldest go first. A run of a dozen files takes some 20 KiB.
_MOST_FILES = 512
_MOST_TOTAL = 128 * 1024 * 1024

# Tests look at the clock, certificates run out: what was true a month ago is asked again.
_MOST_SECONDS = 30 * 24 * 3600.0


class _Entry(BaseModel):
    """One run as it lies on disk."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1]
    key: str
    command: list[str]
    outcomes: dict[str, Literal["passed", "failed", "error", "skipped"]]
    exit_code: int | None
    seconds: float
    output_tail: str
    failures: dict[str, str]
    read: list[str]
    traces: list[str]


class RunCache:
    """Keeps runs below `folder`. Never raises for what it finds there, or cannot write there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str, now: float) -> TestRun | None:
        """The run that was put under this key. `now`: seconds since the epoch."""
        data = _read(self._folder / f"{key}.json", now)
        if data is None:
            return None
        try:
            entry = _Entry.model_validate_json(data)
        except ValidationError:
            return None
        return _run_of(entry) if entry.key == key else None

    def put(self, key: str, run: TestRun) -> None:
        """Keep a run that is whole and not suspect; anything else is passed over."""
        if not is_whole(run) or run.channels.disagreements or not executed(run):
            return
        data = json.dumps(_entry_of(key, run).model_dump(), ensure_ascii=True).encode("ascii")
        if len(data) > _MOST_BYTES:
            return
        with suppress(OSError):  # a full or read-only cache costs time, nothing else
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._folder / f"{key}.json", data)
            _prune(self._folder)


def key_of(parts: Mapping[str, object]) -> str:
    """The key of what a run depends on: any values that JSON can hold."""
    text = json.dumps({**parts, "cache": VERSION}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def digest_of(contents: Mapping[str, bytes | None]) -> str:
    """One digest of files by path; None is a deleted one."""
    whole = hashlib.sha256()
    for path in sorted(contents):
        data = contents[path]
        inner = "gone" if data is None else hashlib.sha256(data).hexdigest()
        whole.update(f"{path!r} {inner}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()


def installed(python: Path) -> str:
    """What is installed for an interpreter: names and dates of its packages' folders, hashed.

    A package that is changed in place under the same version and date is not noticed.
    """
    found: list[str] = []
    prefix = python.parent.parent
    for folder in sorted(prefix.glob("lib*/python*/*-packages")):
        with suppress(OSError), os.scandir(folder) as entries:
            found.extend(f"{e.name} {e.stat(follow_symlinks=False).st_mtime_ns}" for e in entries)
    return hashlib.sha256("\n".join(sorted(found)).encode("utf-8", "surrogateescape")).hexdigest()


def files_digest(folder: Path) -> str:
    """Of the files directly in a folder, as `digest_of`."""
    return digest_of({f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()})


def _entry_of(key: str, run: TestRun) -> _Entry:
    return _Entry.model_construct(
        version=VERSION,
        key=key,
        command=list(run.command),
        outcomes={test: outcome.value for test, outcome in run.outcomes.items()},
        exit_code=run.exit_code,
        seconds=run.seconds,
        output_tail=run.output_tail,
        failures=dict(run.failures),
        read=list(run.channels.read),
        traces=list(run.channels.traces),
    )


def _run_of(entry: _Entry) -> TestRun:
    return TestRun(
        command=tuple(entry.command),
        outcomes={test: Outcome(value) for test, value in entry.outcomes.items()},
        exit_code=entry.exit_code,
        seconds=entry.seconds,
        ended="exited",
        output_tail=entry.output_tail,
        failures=entry.failures,
        channels=Channels(tuple(entry.read), (), tuple(entry.traces)),
        cached=True,
    )


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


def _prune(folder: Path) -> None:
    files: list[tuple[float, str, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            state = entry.stat(follow_symlinks=False)
            files.append((-state.st_mtime, entry.name, state.st_size))
    for name in _beyond(sorted(files)):
        with suppress(OSError):
            (folder / name).unlink()


def _beyond(files: Sequence[tuple[float, str, int]]) -> list[str]:
    """Names of the oldest files, without which the rest is within its bounds."""
    total, names = 0, []
    for number, (_, name, size) in enumerate(files):
        total += size
        if number >= _MOST_FILES or total > _MOST_TOTAL:
            names.append(name)
    return names
