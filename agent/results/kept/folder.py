"""Read and write the folder of one solve: an instance of a batch, or a kept run.

result.json          the RunRecord, as `agent solve --json` prints it
patch.diff           the best patch so far, written as soon as there is one
exchanges.jsonl      every paid reply with its prompt (`agent solve --replay` reads it)
lock                 held by the process that solves, with its id

A batch adds:

attempt.json         how the last attempt ended
log.txt              the log of the workers of all attempts

A kept run (`keeping`) adds:

origin.json          what was solved, when and where
issue.md             the issue
feedback             "accepted" or "rejected", if the user said so

The files may be damaged or foreign: they are read with limits, and links are not followed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from agent.errors import ConfigurationError
from agent.run.record import RunRecord
from agent.shared.files import read_small_file, replace_file

LARGEST_FILE = 32 * 1024 * 1024
"""Bytes of one file at most. A result takes some ten kilobytes, a receipt some hundred."""

RESULT, PATCH, EXCHANGES, LOG, LOCK = (
    "result.json",
    "patch.diff",
    "exchanges.jsonl",
    "log.txt",
    "lock",
)


def write_patch(folder: Path, diff: bytes) -> None:
    """Write the best patch so far. Raises OSError."""
    replace_file(folder / PATCH, [diff])


def write_result(folder: Path, result: RunRecord, diff: bytes | None) -> None:
    """Write the files of a finished attempt, `result.json` last. Raises OSError.

    There is no file of a `diff` that is None.
    """
    if diff is None:
        (folder / PATCH).unlink(missing_ok=True)
    else:
        write_patch(folder, diff)
    replace_file(folder / RESULT, [(result.model_dump_json(indent=2) + "\n").encode()])


def read_result(folder: Path) -> RunRecord | None:
    """Return the result in the folder, None if there is none that can be read."""
    return read_model(RunRecord, folder / RESULT)


Model = TypeVar("Model", bound=BaseModel)


def read_model(kind: type[Model], path: Path) -> Model | None:
    """Return the record in a JSON file, None if there is none that can be read."""
    try:
        return kind.model_validate_json(read_small_file(path, LARGEST_FILE) or b"")
    except (OSError, ConfigurationError, ValidationError):
        return None


def read_patch(folder: Path) -> str:
    """Return the best patch as text, "" if there is none."""
    try:
        return (folder / PATCH).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def last_log_line(folder: Path, limit: int = 160) -> str:
    """Return the last line of the log, at most `limit` characters: why a worker died."""
    try:
        with (folder / LOG).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:limit] if lines else ""
