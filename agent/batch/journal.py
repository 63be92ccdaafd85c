"""The journal of a run: one JSON line for each event, appended by the driver alone.

Every entry that a payment or a decision depends on is on the disk before the driver acts on it.
`RunState` folds the entries into the state from which a run goes on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.batch.messages import Blame
from agent.errors import ConfigurationError, Status
from agent.shared.files import AppendFile


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunStarted(_Entry):
    """A driver has started the run. `time` is UTC, ISO 8601."""

    event: Literal["run"] = "run"
    format: Literal[1] = 1
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


class Granted(_Entry):
    """A call may be paid. Until it is settled, its worst case counts as spent."""

    event: Literal["granted"] = "granted"
    id: str
    sha256: str
    worst_usd: float | None


class Settled(_Entry):
    """The cost of a granted call. `how` says whether it has a reply on the disk."""

    event: Literal["settled"] = "settled"
    id: str
    sha256: str
    how: Literal["paid", "dropped", "recovered"]
    cost_usd: float | None
    input_tokens: int = 0
    output_tokens: int = 0


class StageEntry(_Entry):
    """A stage of the pipeline has finished. Only people read this entry, so it is not synced."""

    event: Literal["stage"] = "stage"
    id: str
    attempt: int
    stage: str
    seconds: float
    summary: str


class Finished(_Entry):
    """An instance has a final result, which is in its folder."""

    event: Literal["finished"] = "finished"
    id: str
    attempt: int
    status: Status
    verdict: str | None
    seconds: float


class Failed(_Entry):
    """An attempt has ended without a final result. `blame` is a `messages.Blame`."""

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


Entry = (
    RunStarted | RunEnded | Started | Granted | Settled | StageEntry | Finished | Failed | SetAside
)

ENTRIES: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="event")])


@dataclass(slots=True)
class History:
    """The attempts of one instance. `crashes` count against its tries."""

    attempts: int = 0
    crashes: int = 0
    finished: Finished | None = None
    reason: str = ""  # of the last failure


@dataclass(slots=True)
class RunState:
    """All entries of a journal, folded. `open` are granted calls that are not settled, in order.

    `bound`: something was paid or has a result, so the settings may not change any more.
    """

    histories: dict[str, History] = field(default_factory=lambda: defaultdict(History))
    open: list[Granted] = field(default_factory=list)
    bound: bool = False
    spent_usd: float = 0.0
    unpriced: int = 0  # replies whose cost is not known
    settled: Counter[tuple[str, str]] = field(default_factory=Counter)  # replies by id and prompt

    def add(self, entry: Entry) -> None:
        """Fold in one more entry."""
        match entry:
            case Started():
                self.histories[entry.id].attempts = entry.attempt
            case Granted():
                self.open.append(entry)
                self.bound = True
            case Settled():
                self._settle(entry)
            case Finished():
                self.histories[entry.id].finished = entry
                self.bound = True
            case Failed():
                history = self.histories[entry.id]
                history.crashes += entry.blame == "crash"
                history.reason = entry.reason
            case RunStarted() | RunEnded() | StageEntry() | SetAside():
                pass

    def _settle(self, entry: Settled) -> None:
        for position, granted in enumerate(self.open):
            if (granted.id, granted.sha256) == (entry.id, entry.sha256):
                del self.open[position]
                break
        if entry.how != "dropped":
            self.settled[entry.id, entry.sha256] += 1
        if entry.cost_usd is None:
            self.unpriced += 1
        else:
            self.spent_usd += entry.cost_usd

    def held_usd(self) -> float:
        """Return the sum of the worst cases of all open calls, in dollars."""
        return sum(granted.worst_usd or 0.0 for granted in self.open)


class Journal:
    """Appends entries and folds them into `state`. The caller closes it.

    Methods raise OSError if the disk is full; nothing may be paid after that.
    """

    def __init__(self, path: Path) -> None:
        """Read the entries in `path`. Raises ConfigurationError if it is not a journal."""
        self.state = RunState()
        if path.exists():
            for entry in read_entries(path):
                self.state.add(entry)
        self._file = AppendFile(path)

    def append(self, entry: Entry) -> None:
        """Append an entry. It is on the disk on return, unless it is for people only."""
        line = entry.model_dump_json().encode() + b"\n"
        self._file.append(line, sync=not isinstance(entry, StageEntry | RunEnded))
        self.state.add(entry)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the entries of a journal. A torn last line counts as not written.

    Raises ConfigurationError for any other line that cannot be read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield ENTRIES.validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                raise ConfigurationError(
                    f"{path}:{number}: not an entry of a journal ({first['msg']}); name another "
                    "folder with --run, or remove the line"
                ) from None
