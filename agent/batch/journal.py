"""The journal of a run: one JSON line for each event, appended by the driver alone.

Every entry that a decision depends on is on the disk before the driver acts on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.batch.worker import Blame
from agent.errors import ConfigurationError, Status
from agent.shared.files import AppendFile


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RunStarted(_Entry):
    """A driver has started the run. `time` is UTC, ISO 8601."""

    event: Literal["run"] = "run"
    format: Literal[2] = 2
    version: str
    time: str
    instances: int


class RunEnded(_Entry):
    """A driver has ended without being killed. Only people read this entry, so it is not synced."""

    event: Literal["ended"] = "ended"
    seconds: float


class Started(_Entry):
    """An instance was given to a worker."""

    event: Literal["started"] = "started"
    id: str
    attempt: int


class Finished(_Entry):
    """An instance has a final result, which is in its folder."""

    event: Literal["finished"] = "finished"
    id: str
    attempt: int
    status: Status
    verdict: str | None
    seconds: float


class Failed(_Entry):
    """An attempt has ended without a final result."""

    event: Literal["failed"] = "failed"
    id: str
    attempt: int
    blame: Blame
    status: Status
    reason: str


class SetAside(_Entry):
    """An instance has used up its tries. A run with more tries starts it again."""

    event: Literal["set-aside"] = "set-aside"
    id: str
    tries: int
    reason: str


Entry = RunStarted | RunEnded | Started | Finished | Failed | SetAside

_ENTRIES: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="event")])


@dataclass(slots=True)
class History:
    """The attempts of one instance. `crashes` count against its tries; `last` says how it ended."""

    attempts: int = 0
    crashes: int = 0
    finished: Finished | None = None
    last: Finished | Failed | SetAside | None = None  # None while an attempt is under way

    @property
    def reason(self) -> str:
        """Why the last attempt failed."""
        return self.last.reason if isinstance(self.last, Failed | SetAside) else ""

    def add(self, entry: Started | Finished | Failed | SetAside) -> None:
        """Fold in one more entry."""
        if isinstance(entry, Started):
            self.attempts, self.last = entry.attempt, None
            return
        self.last = entry
        if isinstance(entry, Finished):
            self.finished = entry
        elif isinstance(entry, Failed) and entry.blame == "crash":
            self.crashes += 1


class Journal:
    """Appends entries and folds them into `histories`, by instance. The caller closes it.

    Methods raise OSError if the disk is full; nothing may be paid after that.
    """

    def __init__(self, path: Path) -> None:
        """Read the entries in `path`. Raises ConfigurationError if it is not a journal."""
        self.histories: dict[str, History] = defaultdict(History)
        if path.exists():
            for entry in read_entries(path):
                self._fold(entry)
        self._file = AppendFile(path)

    def append(self, entry: Entry) -> None:
        """Append an entry. It is on the disk on return, unless it is for people only."""
        line = entry.model_dump_json().encode() + b"\n"
        self._file.append(line, sync=not isinstance(entry, RunEnded))
        self._fold(entry)

    def _fold(self, entry: Entry) -> None:
        if not isinstance(entry, RunStarted | RunEnded):
            self.histories[entry.id].add(entry)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def parse_entry(line: bytes) -> Entry | None:
    """Return the entry in a line, None if it is not one of this version."""
    try:
        return _ENTRIES.validate_json(line)
    except ValidationError:
        return None


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the entries of a journal. A torn last line counts as not written.

    Raises ConfigurationError for any other line that cannot be read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _ENTRIES.validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                raise ConfigurationError(
                    f"{path}:{number}: not an entry of a journal ({first['msg']}); name another "
                    "folder with --run, or remove the line"
                ) from None
