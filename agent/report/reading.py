"""Read a run folder, a kept run, or the record of one solve, and count how instances ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from agent.batch import (
    INSTANCES,
    JOURNAL,
    RUN,
    RUN_LOCK,
    TASKS,
    Failed,
    Fingerprint,
    Finished,
    History,
    RunStarted,
    SetAside,
    parse_entry,
)
from agent.datasets import SolverTask, folder_name
from agent.errors import ConfigurationError
from agent.llm.recording import ChatExchange, parse_exchange
from agent.report.evaluations import LARGEST_DOCUMENT, Evaluated, RunFiles
from agent.report.text import Cleaner
from agent.results.kept import EXCHANGES, RESULT, KeptRun, read_run
from agent.run.record import RunRecord
from agent.types import Usage

# Statuses of a run's instances without a final result.
UNFINISHED = frozenset({"set-aside", "row", "stopped", "running", "cut-off", "not-begun"})

# How an instance ended, best first; other groups follow by name.
_GROUPS = (
    "verified", "not regressed", "unverified", "suspect", "tests red", "broken syntax",
    "not applied", "unparseable", "no edit",
)  # fmt: skip
_WORDS = {
    "regressed": "tests red",
    "row": "unusable row",
    "usage": "wrong input or setting",
}  # other statuses and verdicts are plain words already
_TONES = {"verified": "good", "not regressed": "fair", "unverified": "fair"}
_IDLE = ("running", "cut off", "stopped", "not begun")


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One instance. `path` leads to its folder, `record` is there if it is the only one.

    `group` says how it ended, `kind` why the reply could not be used.
    """

    id: str
    anchor: str
    path: tuple[str, ...] = ()
    project: str = ""
    title: str = ""
    issue: str = ""
    status: str = "not-begun"
    verdict: str = ""
    kind: str = ""
    why: str = ""
    usage: Usage = field(default_factory=Usage)
    seconds: float | None = None
    attempts: int = 0
    model: str = ""
    record: RunRecord | None = None
    evaluated: Evaluated | None = None

    @property
    def group(self) -> str:
        """How it ended, in words."""
        decided = self.status in ("accepted", "broken") and self.verdict
        name = self.verdict if decided else self.status
        return _WORDS.get(name, name.replace("-", " "))

    @property
    def tone(self) -> str:
        """The colour of its group."""
        return "idle" if self.group in _IDLE else _TONES.get(self.group, "bad")

    @property
    def resolved(self) -> bool | None:
        """Whether the evaluation calls it resolved, None if it was not judged."""
        return self.evaluated.resolved if self.evaluated else None


@dataclass(frozen=True, slots=True)
class ReportRun:
    """A run as far as the page needs it. `files` is None for a single record from a file."""

    name: str
    rows: tuple[ReportRow, ...]
    files: RunFiles | None = None
    single: bool = False
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    begun: tuple[str, ...] = ()
    live: bool = False
    notes: tuple[str, ...] = ()


def load(path: Path, evaluation: Mapping[str, Evaluated] | None, clean: Cleaner) -> ReportRun:
    """Return the run in a folder, a kept run, or the one solve in a file.

    Raises ConfigurationError.
    """
    if (kept := read_run(path)) is not None:
        return _load_kept(kept, evaluation, clean)
    if path.is_dir():
        return _load_folder(path, evaluation or {}, clean)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_DOCUMENT)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror}; give the folder of a run of `agent batch`, or what "
            "`agent solve --json` has printed"
        ) from None
    record = read_record(data)
    if isinstance(record, str):
        raise ConfigurationError(
            f"{path}: not the result of a solve ({record}); give what `agent solve --json` has "
            "printed, or the folder of a run (preds.run beside preds.json)"
        )
    row = ReportRow(path.stem, folder_name(path.stem))
    return _single(row, record, None, evaluation, clean)


def _load_kept(
    kept: KeptRun, evaluation: Mapping[str, Evaluated] | None, clean: Cleaner
) -> ReportRun:
    tree, name = RunFiles(kept.folder.parent), kept.folder.name
    data = tree.read(name, RESULT)
    record = "the run has no result" if data is None else read_record(data)
    title, issue = clean.line(kept.origin.title), kept.problem.text
    row = ReportRow(kept.id, folder_name(name), (name,), title=title, issue=issue)
    if isinstance(record, str):
        row = replace(row, status="cut-off", why=record)
        return ReportRun(title or row.id, (row,), tree, single=True)
    return _single(row, record, tree, evaluation, clean)


def _single(
    row: ReportRow,
    record: RunRecord,
    tree: RunFiles | None,
    evaluation: Mapping[str, Evaluated] | None,
    clean: Cleaner,
) -> ReportRun:
    evaluated = next(iter(evaluation.values())) if evaluation and len(evaluation) == 1 else None
    row = replace(_with_record(row, record, clean), record=record, attempts=1, evaluated=evaluated)
    title = row.title
    if record.issue is not None:
        row, title = replace(row, issue=record.issue.text), record.issue.title
    return ReportRun(clean.line(title or row.id), (row,), tree, single=True, model=row.model)


def read_record(data: bytes) -> RunRecord | str:
    """Return the record in a JSON text, or what is wrong with it."""
    try:
        return RunRecord.model_validate_json(data.decode("utf-8", "replace"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]


def _with_record(row: ReportRow, record: RunRecord, clean: Cleaner) -> ReportRow:
    kinds = record.attempts[-1].failure_kinds if record.attempts else ()
    return replace(
        row,
        status=record.status.value,
        verdict=clean.line(record.verdict or "", 40),
        kind=clean.line(", ".join(sorted(set(kinds))), 100),
        why=clean.line(record.message),
        usage=record.usage if not row.usage.calls else row.usage,
        seconds=sum(record.timings.values()) if row.seconds is None else row.seconds,
        model=clean.line(record.model or "", 80),
    )


def _load_folder(path: Path, evaluation: Mapping[str, Evaluated], clean: Cleaner) -> ReportRun:
    """Read a run folder. Raises ConfigurationError if it is not one."""
    tree, notes = RunFiles(path), list[str]()
    begun, histories = _journal(tree, notes)
    inputs = tree.read(RUN)
    if inputs is None and not begun and not histories:
        raise ConfigurationError(
            f"{path}: not the folder of a run (no {RUN}, no {JOURNAL}); give the folder that "
            "`agent batch` has made, preds.run beside preds.json (what `agent eval patches` has "
            "written goes with --evaluation)"
        )
    try:
        fingerprint = Fingerprint.model_validate_json(inputs or b"")
    except ValidationError:
        fingerprint = Fingerprint(dataset="", model="", settings={})
        notes.append(f"{RUN} cannot be read: settings are not known")
    live = tree.is_locked(RUN_LOCK)
    tasks = {task.instance_id: task for task in _tasks(tree, notes)}
    rows = [
        _row(tree, name, tasks.get(name), histories.get(name), clean, notes, live=live)
        for name in {**tasks, **histories}
    ]
    return ReportRun(
        clean.line(path.resolve().name),
        tuple(replace(row, evaluated=evaluation.get(row.id)) for row in rows),
        tree,
        model=clean.line(fingerprint.model),
        settings=fingerprint.settings,
        begun=tuple(clean.line(time, 40) for time in begun),
        live=live,
        notes=tuple(map(clean.line, notes)),
    )


def _journal(tree: RunFiles, notes: list[str]) -> tuple[list[str], dict[str, History]]:
    """Return when drivers began, and the history of each instance."""
    begun: list[str] = []
    histories: dict[str, History] = {}
    entries = [parse_entry(line) for line in tree.lines(JOURNAL)]
    for entry in entries:
        if isinstance(entry, RunStarted):
            begun.append(entry.time)
        elif entry is not None:
            histories.setdefault(entry.id, History()).add(entry)
    _note_unreadable(JOURNAL, entries.count(None), notes)
    return begun, histories


def _tasks(tree: RunFiles, notes: list[str]) -> list[SolverTask]:
    tasks, unreadable = [], 0
    for line in tree.lines(TASKS):
        try:
            tasks.append(SolverTask.model_validate_json(line.decode("utf-8", "replace")))
        except ValidationError:
            unreadable += 1
    _note_unreadable(TASKS, unreadable, notes)
    return tasks


def _note_unreadable(name: str, number: int, notes: list[str]) -> None:
    if number:
        notes.append(f"{name}: {number:,} lines cannot be read and are passed over")


def _row(
    tree: RunFiles,
    name: str,
    task: SolverTask | None,
    history: History | None,
    clean: Cleaner,
    notes: list[str],
    *,
    live: bool,
) -> ReportRow:
    path = (INSTANCES, folder_name(name))
    usage = (exchange.reply.usage for exchange in read_exchanges(tree, path))
    row = ReportRow(name, path[1], path, usage=sum(usage, Usage()))
    if task is not None:
        title = clean.line(task.problem_statement, 120)
        row = replace(row, project=task.repo, title=title, issue=task.problem_statement)
    if history is None:
        return row
    status, why = _standing(history, live=live)
    row = replace(row, status=status, why=clean.line(why), attempts=history.attempts)
    if not isinstance(history.last, Finished):
        return row
    row = replace(row, verdict=history.last.verdict or "", seconds=history.last.seconds)
    data = tree.read(*path, RESULT)
    record = "it is not there" if data is None else read_record(data)
    if isinstance(record, str):
        notes.append(f"{name}: {RESULT} cannot be read: {record}")
        return row
    return _with_record(row, record, clean)


def _standing(history: History, *, live: bool) -> tuple[str, str]:
    """Return the status of an instance according to its last entry, and the reason."""
    match history.last:
        case Finished() as last:
            return last.status.value, ""
        case SetAside() as last:
            return "set-aside", f"set aside after {last.tries} tries: {last.reason}"
        case Failed() as last:
            return last.blame if last.blame in ("row", "stopped") else last.status, last.reason
        case None:
            return ("running", "") if live else ("cut-off", "its attempt has not ended")


def read_exchanges(tree: RunFiles, path: tuple[str, ...]) -> list[ChatExchange]:
    """Return the readable calls of an instance."""
    exchanges = (parse_exchange(line) for line in tree.lines(*path, EXCHANGES))
    return [one for one in exchanges if isinstance(one, ChatExchange)]


# --- the figures


class CauseCount(BaseModel, frozen=True, extra="forbid"):
    """The number of instances that ended in one way; `kinds` are more precise reasons."""

    group: str
    tone: str
    count: int
    kinds: dict[str, int]


class ReportSummary(BaseModel, frozen=True, extra="forbid"):
    """The figures of a report. Dollars and seconds; None stands for unknown.

    `finished` counts instances with a final result. `cost_usd` is the sum for instances of known
    price, and `unpriced` counts the others that have replies.
    """

    run: str
    instances: int
    finished: int
    accepted: int
    verified: int
    evaluated: int
    resolved: int
    statuses: dict[str, int]
    verdicts: dict[str, int]
    causes: tuple[CauseCount, ...]
    cost_usd: float | None
    unpriced: int
    input_tokens: int
    output_tokens: int
    calls: int
    seconds: float
    model: str
    begun: tuple[str, ...]
    live: bool
    output: str = ""
    bytes: int = 0


def summarise(run: ReportRun) -> ReportSummary:
    """Return the figures of a run."""
    rows = run.rows
    prices = [row.usage.cost_usd for row in rows if row.usage.cost_usd is not None]
    evaluated = [row for row in rows if row.resolved is not None]
    return ReportSummary(
        run=run.name,
        instances=len(rows),
        finished=sum(row.status not in UNFINISHED and row.seconds is not None for row in rows),
        accepted=sum(row.status == "accepted" for row in rows),
        verified=sum(row.verdict == "verified" for row in rows),
        evaluated=len(evaluated),
        resolved=sum(row.resolved is True for row in evaluated),
        statuses=_counted(row.status for row in rows),
        verdicts=_counted(row.verdict or "none" for row in rows),
        causes=_causes(rows),
        cost_usd=round(sum(prices), 6) if prices else None,
        unpriced=sum(row.usage.cost_usd is None for row in rows),
        input_tokens=sum(row.usage.input_tokens for row in rows),
        output_tokens=sum(row.usage.output_tokens for row in rows),
        calls=sum(row.usage.calls for row in rows),
        seconds=round(sum(row.seconds or 0.0 for row in rows), 3),
        model=run.model,
        begun=run.begun,
        live=run.live,
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    """Return counts by name, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0])))


def _causes(rows: Sequence[ReportRow]) -> tuple[CauseCount, ...]:
    counts = Counter((row.group, row.tone) for row in rows)
    order = {group: number for number, group in enumerate(_GROUPS)}
    return tuple(
        CauseCount(
            group=group,
            tone=tone,
            count=counts[group, tone],
            kinds=_counted(row.kind for row in rows if row.group == group and row.kind),
        )
        for group, tone in sorted(counts, key=lambda one: (order.get(one[0], len(order)), one))
    )
