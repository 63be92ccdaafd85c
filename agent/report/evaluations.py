"""Read the report of `agent eval patches` or of the SWE-bench harness, which has entries by
instance, at the top level or below `instances`: `{"ID": {"resolved": true, "tests_status": ...}}`.

The files of a run are read without following links, because untrusted code may have made them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from agent.errors import ConfigurationError
from sandbox import open_parent, open_regular

# Documents of a run are much smaller.
LARGEST_DOCUMENT = 32 * 1024 * 1024


class RunFiles:
    """The files below `root`. The path of the root may contain links, paths below it may not."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, *parts: str) -> bytes | None:
        """Return the content of a regular file of usual size, None for anything else."""
        data, size = self.end(LARGEST_DOCUMENT, *parts)
        return data if 0 <= size <= LARGEST_DOCUMENT else None

    def end(self, limit: int, *parts: str) -> tuple[bytes, int]:
        """Return the last `limit` bytes of a regular file and its size, -1 for anything else."""
        try:
            with self._open(parts) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - limit))
                return file.read(limit), size
        except (OSError, ValueError):
            return b"", -1

    def lines(self, *parts: str) -> Iterator[bytes]:
        """Yield the whole lines of a regular file, none of anything else.

        A torn last line is left out; one longer than LARGEST_DOCUMENT comes in parts.
        """
        try:
            with self._open(parts) as file:
                for line in iter(lambda: file.readline(LARGEST_DOCUMENT), b""):
                    if line.endswith(b"\n"):
                        yield line
        except (OSError, ValueError):
            return

    def is_locked(self, *parts: str) -> bool:
        """Whether a process holds the lock of a file."""
        try:
            with self._open(parts) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (OSError, ValueError):
            pass
        return False

    def _open(self, parts: tuple[str, ...]) -> BinaryIO:
        """Open a regular file. Raises OSError, and ValueError for a path that leads out."""
        with open_parent(self.root.resolve(), "/".join(parts)) as (folder, name):
            file = open_regular(name, folder)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no regular file")
        return file


def _a_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else ()


def _an_object(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {}


_Names = Annotated[tuple[str, ...], BeforeValidator(_a_list)]


class TestLists(BaseModel, frozen=True):
    """The deciding tests of one kind that met the expectation, and those that did not."""

    __test__ = False

    success: _Names = ()
    failure: _Names = ()


_Lists = Annotated[TestLists, BeforeValidator(_an_object)]


class TestsStatus(BaseModel, frozen=True):
    """The deciding tests of an instance."""

    __test__ = False

    fail_to_pass: _Lists = Field(default=TestLists(), validation_alias="FAIL_TO_PASS")
    pass_to_pass: _Lists = Field(default=TestLists(), validation_alias="PASS_TO_PASS")


class Evaluated(BaseModel, frozen=True):
    """The evaluation of one instance. `resolved` is None if the patch was not judged."""

    resolved: bool | None = None
    patch_successfully_applied: bool | None = None
    outcome: str = ""
    tests_status: Annotated[TestsStatus, BeforeValidator(_an_object)] = TestsStatus()
    reason: str = ""
    suspicion: str = ""
    absent: _Names = ()
    notes: _Names = ()
    own: Annotated[Mapping[str, Any], BeforeValidator(_an_object)] = {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Further remarks, one clause each."""
        remarks = [self.reason, self.suspicion, *self.notes]
        if self.own.get("same_patch") is False:
            remarks.append("the evaluated patch is another one than that of this run")
        if self.absent:
            remarks.append(f"{len(self.absent)} given tests were not known to the run")
        return tuple(dict.fromkeys(filter(None, remarks)))


def load_evaluation(path: Path) -> Mapping[str, Evaluated]:
    """Return the evaluation of each instance. Raises ConfigurationError if there is none."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(LARGEST_DOCUMENT))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"--evaluation {path}: cannot be read as one JSON object ({error}); give the "
            "evaluation.json that `agent eval patches --output` wrote"
        ) from None
    entries = value.get("instances", value) if isinstance(value, dict) else {}
    parsed = {name: _entry(entry) for name, entry in _an_object(entries).items()}
    evaluated = {name: entry for name, entry in parsed.items() if entry is not None}
    if not evaluated:
        raise ConfigurationError(
            f"--evaluation {path}: does not say of any instance whether it is resolved"
        )
    return evaluated


def _entry(value: Any) -> Evaluated | None:
    if not isinstance(value, Mapping) or "resolved" not in value:
        return None
    try:
        entry = Evaluated.model_validate(value)
    except ValidationError:
        return None
    return entry.model_copy(update={"resolved": None}) if entry.outcome == "error" else entry
