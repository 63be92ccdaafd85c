"""The values that a report reads from a run, and the causes for the results of instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.batch import Entry, Failed, Finished, SetAside, Settled, StageEntry, Started
from agent.report.evaluations import Evaluated
from agent.report.records import AttemptRecord, ResultRecord, RunFiles

UNKNOWN_KIND = "kind not recorded"

# Group and colour, in the order of the pipeline.
GROUPS: tuple[tuple[str, str], ...] = (
    ("verified", "good"),
    ("not regressed", "fair"),
    ("unverified", "fair"),
    ("suspect", "bad"),
    ("tests red", "bad"),
    ("broken syntax", "bad"),
    ("not applied", "bad"),
    ("unparseable", "bad"),
    ("no edit", "bad"),
    ("not retrieved", "bad"),
    ("fixed already", "bad"),
    ("time limit", "bad"),
    ("budget", "bad"),
    ("provider", "bad"),
    ("sandbox", "bad"),
    ("crashed", "bad"),
    ("set aside", "bad"),
    ("unusable row", "bad"),
    ("wrong input or setting", "bad"),
    ("under way", "idle"),
    ("stopped", "idle"),
    ("not begun", "idle"),
    ("other", "bad"),
)

_BY_STATUS = {
    "suspect": "suspect",
    "unparseable": "unparseable",
    "not-applied": "not applied",
    "no-edit": "no edit",
    "already-fixed": "fixed already",
    "time-limit": "time limit",
    "budget": "budget",
    "provider": "provider",
    "sandbox": "sandbox",
    "crashed": "crashed",
    "unverified": "unverified",
    "interrupted": "stopped",
    "usage": "wrong input or setting",
    "set-aside": "set aside",
    "row": "unusable row",
    "running": "under way",
    "cut-off": "stopped",
    "stopped": "stopped",
    "not-begun": "not begun",
}
_BY_VERDICT = {
    "verified": "verified",
    "not-regressed": "not regressed",
    "unverified": "unverified",
    "regressed": "tests red",
    "broken-syntax": "broken syntax",
    "suspect": "suspect",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an instance ended. `group` is in GROUPS; `kind` is a more precise reason or ""."""

    group: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The number of instances in a group and in its kinds, most frequent kind first."""

    group: str
    tone: str
    count: int
    kinds: tuple[tuple[str, int], ...]


def cause_of(status: str, verdict: str | None, result: ResultRecord | None) -> Cause:
    """Return the cause of this status, which may be one that only a run has."""
    attempts = result.attempts if result is not None else ()
    if status in ("accepted", "broken"):
        group = _BY_VERDICT.get(verdict or "", "other")
        return Cause(group, _validation_kind(group, attempts))
    group = _BY_STATUS.get(status, "other")
    if group in ("not applied", "unparseable", "no edit"):
        return _reply_cause(group, attempts, result)
    return Cause(group, status if group == "other" else "")


def _reply_cause(
    group: str, attempts: Sequence[AttemptRecord], result: ResultRecord | None
) -> Cause:
    """Return why a reply did not give a patch."""
    if result is not None and result.receipt is not None and not result.receipt.pieces:
        return Cause("not retrieved", "the context is empty")
    last = attempts[-1] if attempts else AttemptRecord()
    if group == "no edit" and last.missing:
        return Cause("not retrieved", "the reply names code it was not shown")
    kinds = sorted(set(last.failure_kinds))
    return Cause(group, ", ".join(kinds) if kinds else UNKNOWN_KIND)


def _validation_kind(group: str, attempts: Sequence[AttemptRecord]) -> str:
    judged = [a.validation for a in attempts if a.validation is not None]
    if group != "tests red" or not judged:
        return ""
    last = judged[-1]
    if last.newly_failing:
        return "tests fail newly"
    own = last.reproduction_after
    return "the reply's own test still fails" if own and own.failed else "other tests decide"


def shares(causes: Iterable[Cause]) -> tuple[GroupCount, ...]:
    """Count the instances of each group, in the order of GROUPS."""
    counts = Counter(causes)
    groups = Counter(cause.group for cause in counts.elements())
    return tuple(
        GroupCount(group, tone, groups[group], _kinds(group, counts))
        for group, tone in GROUPS
        if groups[group]
    )


def _kinds(group: str, counts: Counter[Cause]) -> tuple[tuple[str, int], ...]:
    found = [(c.kind, number) for c, number in counts.items() if c.group == group and c.kind]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))


_NOT_BEGUN = Cause("not begun")
_MOST = 10**15  # tokens, seconds or dollars; larger numbers are not measurements


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that has finished."""

    name: str
    seconds: float
    summary: str


@dataclass(slots=True)
class InstanceHistory:
    """The journal's entries about one instance, summed up. `paid` counts calls with a reply.

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
        """Fold in one more entry."""
        match entry:
            case Started():
                self.attempts, self.last = entry.attempt, None
                self.stages.clear()
            case Settled():
                self._settle(entry)
            case StageEntry():
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
class LinePosition:
    """The position of an instance's line in `tasks.jsonl`, in bytes."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A summary of one instance. Units are dollars and seconds; `cost_usd` is None if unknown.

    `anchor` is its id in the page, `folder` its folder in the run. `status` is that of its result,
    or "set-aside", "row", "stopped", "running", "cut-off" or "not-begun". `why` is one line.
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
    place: LinePosition | None = None
    stages: tuple[Stage, ...] = ()
    evaluated: Evaluated | None = None

    @property
    def tokens(self) -> int:
        """Input and output tokens of all calls."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Begun:
    """A start of a driver: its time as in the journal, and the program version.

    `seconds` is its duration, None if it was killed or is still running.
    """

    time: str
    version: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ReportRun:
    """Values of a run that do not belong to one instance.

    `single` holds the result of one solve; then `tree` is None, or the folder of kept runs.
    `instances` is where the folders of the instances are in `tree`. `held_usd` is the sum
    of the worst cases of open calls. `notes` say what could not be read.
    """

    name: str
    rows: tuple[ReportRow, ...]
    tree: RunFiles | None = None
    single: ResultRecord | None = None
    instances: tuple[str, ...] = ("instances",)
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    begun: tuple[Begun, ...] = ()
    live: bool = False
    evaluated: bool = False
    held_usd: float = 0.0
    notes: tuple[str, ...] = ()


def measured(value: float | None) -> float | None:
    """Return the number if it is a plausible measurement, else None."""
    return value if value is not None and 0 <= value <= _MOST else None
