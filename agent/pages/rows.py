"""What a report keeps of a run: a few values of each instance, folded from journal and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.batch.journal import (
    Entry,
    Failed,
    Finished,
    SetAside,
    Settled,
    StageFinished,
    Started,
)
from agent.pages.evaluations import Evaluated
from agent.pages.reading import Tree
from agent.pages.records import ResultRecord
from agent.pages.taxonomy import Cause

_NOT_BEGUN = Cause("not begun")
_MOST = 10**15  # of tokens, seconds or dollars: what is beyond is no measurement


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that has finished. `seconds`: how long it took."""

    name: str
    seconds: float
    summary: str


@dataclass(slots=True)
class History:
    """What the journal says of one instance. `paid` counts calls whose reply there is.

    `stages` are those of the last attempt, in order.
    """

    attempts: int = 0
    last: Finished | Failed | SetAside | None = None
    paid: int = 0
    unpriced: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    stages: list[Stage] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Fold one more entry."""
        match entry:
            case Started():
                self.attempts, self.last = entry.attempt, None
                self.stages.clear()
            case Settled():
                self._settle(entry)
            case StageFinished():
                seconds = measured(entry.seconds) or 0.0
                self.stages.append(Stage(entry.stage, seconds, entry.summary))
            case Finished() | Failed() | SetAside():
                self.last = entry

    def _settle(self, entry: Settled) -> None:
        self.paid += entry.how != "dropped"
        cost = measured(entry.cost_usd)
        self.unpriced += cost is None
        self.cost_usd += cost or 0.0
        self.input_tokens += min(max(0, entry.input_tokens), _MOST)
        self.output_tokens += min(max(0, entry.output_tokens), _MOST)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the task of an instance lies in `tasks.jsonl`: bytes."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Row:
    """One instance in short. Dollars and seconds; `cost_usd` None: not known.

    `anchor` names it in the page, `folder` is its folder in the run. `status` is that of its
    result, or: "set-aside", "row", "stopped", "running", "cut-off", "not-begun". `why`: one line.
    """

    id: str
    anchor: str
    folder: str = ""
    project: str = ""
    title: str = ""
    status: str = "not-begun"
    verdict: str = ""
    resolved: bool | None = None
    cause: Cause = _NOT_BEGUN
    why: str = ""
    cost_usd: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    seconds: float | None = None
    attempts: int = 0
    model: str = ""
    place: Place | None = None
    stages: tuple[Stage, ...] = ()
    evaluated: Evaluated | None = None

    @property
    def tokens(self) -> int:
        """Of all calls, in and out."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Begun:
    """A driver has begun: when (as the journal says), and which version of the program.

    `seconds`: what it took; None for one that was killed or is still at it.
    """

    time: str
    version: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """All that a report tells beside the pages of the instances.

    `tree`: the folder; None where `single` holds the result of one solve. `held_usd`: worst cases
    of calls that nothing has settled. `notes`: what could not be read, and the like.
    """

    name: str
    rows: tuple[Row, ...]
    tree: Tree | None = None
    single: ResultRecord | None = None
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    begun: tuple[Begun, ...] = ()
    live: bool = False
    evaluated: bool = False
    held_usd: float = 0.0
    notes: tuple[str, ...] = ()


def measured(value: float | None) -> float | None:
    """A number that can have been measured, None for any other."""
    return value if value is not None and 0 <= value <= _MOST else None
