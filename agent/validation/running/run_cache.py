"""Runs of unpatched trees, kept between runs of the program.

Named by the SHA-256 of all that a run depends on. What is not exactly what was written (another
version, another key, not the fields it should have) is as good as absent. Only whole runs whose
accounts agree are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from agent.types import Channels, Outcome, TestRun
from agent.validation.judging.compare import executed, is_whole
from agent.validation.running.kept_files import KeptEntry, KeptFiles

# Changes whenever the fields or the meaning of an entry do.
VERSION = 1


class _Entry(KeptEntry):
    """One run as it lies on disk."""

    version: Literal[1]
    command: list[str]
    outcomes: dict[str, Literal["passed", "failed", "error", "skipped"]]
    exit_code: int | None
    seconds: float
    output_tail: str
    failures: dict[str, str]
    read: list[str]
    traces: list[str]


class RunCache:
    """Keeps runs as files. Never raises for what it finds there, or cannot write there."""

    def __init__(self, files: KeptFiles) -> None:
        self._files = files

    def get(self, key: str, now: float) -> TestRun | None:
        """The run that was put under this key. `now`: seconds since the epoch."""
        entry = self._files.entry(key, now, _Entry)
        return None if entry is None else _run_of(entry)

    def put(self, key: str, run: TestRun) -> None:
        """Keep a run that is whole and not suspect; anything else is passed over."""
        if not is_whole(run) or run.channels.disagreements or not executed(run):
            return
        text = json.dumps(_entry_of(key, run).model_dump(), ensure_ascii=True)
        self._files.put(key, text.encode("ascii"))


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

    Those of the installation that a virtual environment was made from count too. A package that is
    changed in place under the same version and date is not noticed.
    """
    found: list[str] = []
    for prefix in sorted({python.parent.parent, python.resolve().parent.parent}):
        for folder in sorted(prefix.glob("lib*/python*/*-packages")):
            with suppress(OSError), os.scandir(folder) as entries:
                for one in entries:
                    dated = one.stat(follow_symlinks=False).st_mtime_ns
                    found.append(f"{folder} {one.name} {dated}")
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
