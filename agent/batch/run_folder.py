"""The folder of a run, and its journal: one JSON line for each event, written by the driver alone.

docs/reference/data-formats.md describes the files. The driver holds RUN/lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.batch.worker import Blame
from agent.errors import ConfigurationError, Status
from agent.settings import Settings
from agent.shared.files import AppendFile, locked, replace_file

RUN, JOURNAL, TASKS, INSTANCES, RUN_LOCK = (
    "run.json",
    "journal.jsonl",
    "tasks.jsonl",
    "instances",
    "lock",
)


@contextlib.contextmanager
def claim_run_folder(folder: Path) -> Iterator[None]:
    """Create or reopen the folder of a run, and hold its lock for the block.

    Raises ConfigurationError for a file, for a folder of something else, and if another run holds
    the lock; OSError.
    """
    for path in (folder, *folder.parents):
        if (path.exists() or path.is_symlink()) and not path.is_dir():
            raise ConfigurationError(
                f"--run {folder}: {path} is not a folder; name a folder, which is created if needed"
            )
    names = frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()
    # A process that is killed at the beginning leaves neither of the first two.
    if names and not names & {RUN, JOURNAL} and not names <= {TASKS, INSTANCES, RUN_LOCK}:
        raise ConfigurationError(
            f"--run {folder}: holds something else, not a run of this command; name an empty or "
            "a new folder with --run"
        )
    (folder / INSTANCES).mkdir(parents=True, exist_ok=True)
    with locked(folder / RUN_LOCK):
        yield


# Settings that are left out: keys must not be in a file, and paths, addresses and logs do not
# change a result.
_LEFT_OUT = frozenset({"api_key", "embed_api_key", "base_url", "cache_dir"})


class Fingerprint(BaseModel, frozen=True, extra="forbid"):
    """The inputs of a run: settings by name, model and address, SHA-256 of the data set.

    A run can only continue with the same inputs.
    """

    format: int = 1
    dataset: str
    model: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, settings: Settings, dataset: Path, model: str) -> Fingerprint:
        """Make the fingerprint of a run. Raises ConfigurationError, and OSError for a file of
        environments that cannot be read.
        """
        values = settings.model_dump(mode="json", exclude=set(_LEFT_OUT))
        if settings.environments is not None:  # its content counts, not its path
            content = settings.environments.read_bytes()
            values["environments"] = hashlib.sha256(content).hexdigest()
        try:
            with dataset.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ConfigurationError(
                f"--dataset {dataset}: {error.strerror}; give a file of SWE-bench rows"
            ) from None
        return cls(dataset=digest, model=model, settings=values)

    def check(self, path: Path, *, force: bool) -> tuple[str, ...]:
        """Describe how this differs from the fingerprint in `path`, if there is one.

        Raises ConfigurationError if something differs and `force` is not set.
        """
        try:
            earlier = Fingerprint.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return ()
        except ValidationError:
            raise ConfigurationError(
                f"{path}: not written by this command; choose another folder with --run"
            ) from None
        differences = tuple(self._differences(earlier))
        if differences and not force:
            raise ConfigurationError(
                f"{path.parent} was begun with other inputs ({'; '.join(differences)}): give the "
                "same, --force to go on all the same, or another folder with --run"
            )
        return differences

    def _differences(self, earlier: Fingerprint) -> Iterator[str]:
        if earlier.dataset != self.dataset:
            yield "the data set has changed"
        if earlier.model != self.model:
            yield f"model {earlier.model}, now {self.model}"
        for name in sorted({*earlier.settings, *self.settings}):
            old, new = earlier.settings.get(name), self.settings.get(name)
            if old != new:
                yield f"{name} {json.dumps(old)}, now {json.dumps(new)}"

    def save(self, path: Path) -> None:
        """Write the fingerprint to `path`. Raises OSError."""
        text = json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True)
        replace_file(path, [text.encode(), b"\n"])


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RunStarted(_Entry):
    """A driver has started the run. `time` is UTC, ISO 8601."""

    event: Literal["run"] = "run"
    format: Literal[3] = 3
    version: str
    time: str
    instances: int


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


Entry = RunStarted | Started | Finished | Failed | SetAside

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
        """Append an entry. It is on the disk on return, so that the driver may act on it."""
        self._file.append(entry.model_dump_json().encode() + b"\n")
        self._fold(entry)

    def _fold(self, entry: Entry) -> None:
        if not isinstance(entry, RunStarted):
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
