"""The journal of a run: what has happened, one JSON line each, appended by the driver alone.

Everything that money or a decision depends on is on the disk before it is acted upon. `read` folds
the lines into the state from which a run goes on. The format is described in docs/batch.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.batch.messages import Blame
from agent.durable import AppendFile
from agent.errors import ConfigurationError, Status


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunStarted(_Entry):
    """A driver has begun, or gone on. `time`: UTC, ISO 8601."""

    event: Literal["run"] = "run"
    format: Literal[1] = 1
    version: str
    time: str
    instances: int


class RunEnded(_Entry):
    """A driver has come to its end by itself, after so many seconds. For people; not synced."""

    event: Literal["ended"] = "ended"
    seconds: float


class Started(_Entry):
    """An instance was given to a worker."""

    event: Literal["started"] = "started"
    id: str
    attempt: int


class Granted(_Entry):
    """A call may be paid; until it is settled its worst case counts as spent."""

    event: Literal["granted"] = "granted"
    id: str
    sha256: str
    worst_usd: float | None


class Settled(_Entry):
    """What a granted call has cost. `how`: its reply is on the disk, or there is none."""

    event: Literal["settled"] = "settled"
    id: str
    sha256: str
    how: Literal["paid", "dropped", "recovered"]
    cost_usd: float | None
    input_tokens: int = 0
    output_tokens: int = 0


class StageFinished(_Entry):
    """A stage of the pipeline has finished. For people: nothing depends on it, it is not synced."""

    event: Literal["stage"] = "stage"
    id: str
    attempt: int
    stage: str
    seconds: float
    summary: str


class Finished(_Entry):
    """The last word on an instance; its result lies in its folder."""

    event: Literal["finished"] = "finished"
    id: str
    attempt: int
    status: Status
    verdict: str | None
    seconds: float


class Failed(_Entry):
    """An attempt that was not the last word, and what is to blame (`messages.Blame`)."""

    event: Literal["failed"] = "failed"
    id: str
    attempt: int
    blame: Blame
    status: Status
    reason: str


class SetAside(_Entry):
    """An instance that has used up its tries. A run with more of them takes it up again."""

    event: Literal["set-aside"] = "set-aside"
    id: str
    tries: int
    reason: str


Entry = (
    RunStarted
    | RunEnded
    | Started
    | Granted
    | Settled
    | StageFinished
    | Finished
    | Failed
    | SetAside
)

_ENTRIES: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="event")])


@dataclass(slots=True)
class History:
    """What is known of one instance. `crashes` are the attempts that count against its tries."""

    attempts: int = 0
    crashes: int = 0
    finished: Finished | None = None
    reason: str = ""  # of the last failure


@dataclass(slots=True)
class State:
    """The journal, folded. `open` are granted calls that nothing has settled, in order."""

    histories: dict[str, History] = field(default_factory=lambda: defaultdict(History))
    open: list[Granted] = field(default_factory=list)
    bound: bool = False  # something was paid for, or has a result: settings are part of it
    spent_usd: float = 0.0
    unpriced: int = 0  # replies whose cost is not known
    settled: Counter[tuple[str, str]] = field(default_factory=Counter)  # replies by id and prompt

    def add(self, entry: Entry) -> None:
        """Fold one more entry."""
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
            case RunStarted() | RunEnded() | StageFinished() | SetAside():
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
        """The worst case of all calls that are not settled."""
        return sum(granted.worst_usd or 0.0 for granted in self.open)


class Journal:
    """Appends entries and keeps the state they make. Close it.

    Methods raise OSError when the disk is full: nothing may then be paid any more.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there. Raises ConfigurationError for what is no journal."""
        self.state = State()
        if path.exists():
            for entry in read_entries(path):
                self.state.add(entry)
        self._file = AppendFile(path)

    def append(self, entry: Entry) -> None:
        """Add an entry. It is on the disk on return, unless it is for people only."""
        line = entry.model_dump_json().encode() + b"\n"
        self._file.append(line, sync=not isinstance(entry, StageFinished | RunEnded))
        self.state.add(entry)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_entries(path: Path) -> Iterator[Entry]:
    """The entries of a journal; a torn last line counts as not written.

    Raises ConfigurationError for any other line that is none.
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
                    f"{path}:{number}: no entry of a journal ({first['msg']}): name another folder "
                    "with --run, or take the line out"
                ) from None
