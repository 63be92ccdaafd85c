"""Read a run folder, or the result of one solve.

This step makes a small `ReportRow` for each instance; `agent.report.instance` reads the other data
while the page is written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from agent.batch import (
    ENTRIES,
    Entry,
    Failed,
    Finished,
    Granted,
    RunEnded,
    RunStarted,
    SetAside,
    Settled,
)
from agent.datasets import SolverTask
from agent.errors import ConfigurationError
from agent.report.evaluations import Evaluated
from agent.report.records import (
    LARGEST_DOCUMENT,
    MadeWithRecord,
    ReceiptRecord,
    ResultRecord,
    RunFiles,
    read_record,
    record_of,
)
from agent.report.rows import (
    Begun,
    InstanceHistory,
    LinePosition,
    ReportRow,
    ReportRun,
    cause_of,
    measured,
)
from agent.report.text import Cleaner
from agent.results.kept import RECEIPT, RESULT, KeptRun, read_run

JOURNAL, TASKS, MADE_WITH, LOCK, INSTANCES = (
    "journal.jsonl",
    "tasks.jsonl",
    "run.json",
    "lock",
    "instances",
)


def load(path: Path, evaluation: Mapping[str, Evaluated] | None, clean: Cleaner) -> ReportRun:
    """Return the run in a folder, a kept run, or the one solve in a file.

    Raises ConfigurationError.
    """
    if (kept := read_run(path)) is not None:
        return _load_kept(kept, evaluation, clean)
    if path.is_dir():
        return _RunReader(path, evaluation, clean).read()
    return _load_single(path, evaluation, clean)


def _load_single(
    path: Path, evaluation: Mapping[str, Evaluated] | None, clean: Cleaner
) -> ReportRun:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_DOCUMENT)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror}; give the folder of a run of `agent batch`, or what "
            "`agent solve --json` has printed"
        ) from None
    result = read_record(ResultRecord, data)
    if isinstance(result, str):
        raise ConfigurationError(
            f"{path}: not the result of a solve ({result}); give what `agent solve --json` has "
            "printed, or the folder of a run (preds.run beside preds.json)"
        )
    return _single(ReportRow(path.stem, _anchor(path.stem)), result, evaluation, clean)


def _load_kept(
    kept: KeptRun, evaluation: Mapping[str, Evaluated] | None, clean: Cleaner
) -> ReportRun:
    tree, name = RunFiles(kept.folder.parent), kept.folder.name
    result = record_of(ResultRecord, tree.document(name, RESULT))
    if isinstance(result, str):
        result = ResultRecord(status="cut-off", message=result or "the run has no result")
    title = clean.line(kept.origin.title, 120)
    row = ReportRow(kept.id, _anchor(name), name, title=title)
    return replace(_single(row, result, evaluation, clean), tree=tree, instances=())


def _single(
    row: ReportRow,
    result: ResultRecord,
    evaluation: Mapping[str, Evaluated] | None,
    clean: Cleaner,
) -> ReportRun:
    name = (result.issue.title if result.issue else "") or row.title or row.id
    row = replace(_with_result(row, result, result.receipt, clean), attempts=1)
    if evaluation and len(evaluation) == 1:
        row = _with_evaluation(row, next(iter(evaluation.values())))
    return ReportRun(
        clean.line(name),
        (row,),
        single=result,
        model=clean.line(result.model or ""),
        evaluated=row.evaluated is not None,
    )


def _anchor(name: str) -> str:
    """Return the folder name that `agent batch` uses for an instance."""
    return SolverTask.model_construct(instance_id=name).folder_name


def _with_result(
    row: ReportRow, result: ResultRecord, receipt: ReceiptRecord | None, clean: Cleaner
) -> ReportRow:
    """Add the values of the result; values of the journal take precedence."""
    seconds = sum(result.timings.values()) if row.seconds is None else row.seconds
    counted = result.usage
    known = row.calls > 0
    status = result.status if row.status == "not-begun" else row.status
    verdict = result.verdict or ""
    with_receipt = result.model_copy(update={"receipt": receipt or result.receipt})
    return replace(
        row,
        status=clean.line(status, 40),
        verdict=clean.line(verdict, 40),
        cause=cause_of(status, verdict, with_receipt),
        why=row.why or clean.line(result.message),
        cost_usd=row.cost_usd if known else counted.cost_usd,
        input_tokens=row.input_tokens if known else counted.input_tokens,
        output_tokens=row.output_tokens if known else counted.output_tokens,
        calls=row.calls if known else counted.calls,
        seconds=seconds,
        model=clean.line(result.model or "", 80),
    )


def _with_evaluation(row: ReportRow, evaluated: Evaluated | None) -> ReportRow:
    return (
        row if evaluated is None else replace(row, resolved=evaluated.resolved, evaluated=evaluated)
    )


class _RunReader:
    """Reads one run folder."""

    def __init__(
        self, path: Path, evaluation: Mapping[str, Evaluated] | None, clean: Cleaner
    ) -> None:
        self._path = path
        self._tree = RunFiles(path)
        self._evaluation = evaluation or {}
        self._clean = clean
        self._notes: list[str] = []
        self._begun: list[Begun] = []
        self._open: dict[tuple[str, str], list[float]] = {}
        self._histories: dict[str, InstanceHistory] = {}

    def read(self) -> ReportRun:
        """Read the run. Raises ConfigurationError if the folder is not one of a run."""
        made_with = record_of(MadeWithRecord, self._tree.document(MADE_WITH))
        folders = self._tree.folders(INSTANCES)
        entries = self._journal()
        if made_with == "" and not entries:
            raise ConfigurationError(
                f"{self._path}: not the folder of a run (no {MADE_WITH}, no {JOURNAL}); give the "
                "folder that `agent batch` has made, preds.run beside preds.json (what `agent eval "
                "patches` has written goes with --evaluation)"
            )
        if isinstance(made_with, str):
            self._notes.append(f"{MADE_WITH}: {made_with or 'not there'}: settings are not known")
            made_with = MadeWithRecord()
        live = _is_held(self._path / LOCK)
        rows = self._rows(folders, live=live)
        return ReportRun(
            self._clean.line(self._path.resolve().name),
            rows,
            tree=self._tree,
            model=self._clean.line(made_with.model),
            settings=made_with.settings,
            dataset=self._clean.line(made_with.dataset, 64),
            begun=tuple(self._begun),
            live=live,
            evaluated=bool(self._evaluation),
            held_usd=sum(sum(worst) for worst in self._open.values()),
            notes=tuple(map(self._clean.line, self._notes)),
        )

    # ------------------------------------------------------------------------------ the journal

    def _journal(self) -> int:
        """Read the journal into the histories, and return the number of its entries."""
        entries = bad = 0
        for line in self._tree.lines(JOURNAL):
            try:
                entry = ENTRIES.validate_json(line.data.decode("utf-8", "replace"))
            except ValidationError:
                bad += 1
                continue
            entries += 1
            self._take(entry)
        if bad:
            self._notes.append(f"{JOURNAL}: {bad:,} lines cannot be read and are passed over")
        return entries

    def _take(self, entry: Entry) -> None:
        if isinstance(entry, RunStarted):
            self._begun.append(
                Begun(self._clean.line(entry.time, 40), self._clean.line(entry.version, 40))
            )
            return
        if isinstance(entry, RunEnded):
            if self._begun:
                self._begun[-1] = replace(self._begun[-1], seconds=measured(entry.seconds))
            return
        self._histories.setdefault(entry.id, InstanceHistory()).add(entry)
        if isinstance(entry, Granted):
            self._open.setdefault((entry.id, entry.sha256), []).append(
                measured(entry.worst_usd) or 0.0
            )
        elif isinstance(entry, Settled):
            waiting = self._open.get((entry.id, entry.sha256))
            if waiting:
                waiting.pop(0)

    # ---------------------------------------------------------------------------- the instances

    def _rows(self, folders: list[str], *, live: bool) -> tuple[ReportRow, ...]:
        """Return all instances: selected ones, others of the journal, others with a folder."""
        found = {row.id: row for row in self._selected()}
        for name in self._histories:
            found.setdefault(name, _unselected(name, _anchor(name)))
        known = {row.folder for row in found.values()}
        for name in folders:
            if name not in known:
                found.setdefault(name, _unselected(name, name))
        return tuple(self._row(row, live=live) for row in found.values())

    def _selected(self) -> list[ReportRow]:
        rows, bad = [], 0
        for line in self._tree.lines(TASKS):
            try:
                task = SolverTask.model_validate_json(line.data.decode("utf-8", "replace"))
            except ValidationError:
                bad += 1
                continue
            rows.append(
                ReportRow(
                    task.instance_id,
                    task.folder_name,
                    task.folder_name,
                    project=task.repo,
                    title=self._clean.line(task.problem_statement, 120),
                    place=LinePosition(line.offset, line.length),
                )
            )
        if bad:
            self._notes.append(f"{TASKS}: {bad:,} lines cannot be read and are passed over")
        return rows

    def _row(self, row: ReportRow, *, live: bool) -> ReportRow:
        history = self._histories.get(row.id)
        name, row = row.id, replace(row, id=self._clean.line(row.id, 200))
        if history is not None:
            row = self._with_history(row, history, live=live)
        row = self._with_files(row, final=history is None or isinstance(history.last, Finished))
        return _with_evaluation(row, self._evaluation.get(name))

    def _with_history(self, row: ReportRow, history: InstanceHistory, *, live: bool) -> ReportRow:
        last = history.last
        status, why = _standing(last, live=live)
        return replace(
            row,
            status=status,
            verdict=(last.verdict or "") if isinstance(last, Finished) else "",
            why=self._clean.line(why),
            cause=cause_of(status, last.verdict if isinstance(last, Finished) else None, None),
            cost_usd=None if history.unpriced else history.cost_usd,
            input_tokens=history.input_tokens,
            output_tokens=history.output_tokens,
            calls=history.paid,
            seconds=measured(last.seconds) if isinstance(last, Finished) else None,
            attempts=history.attempts,
            stages=tuple(history.stages),
        )

    def _with_files(self, row: ReportRow, *, final: bool) -> ReportRow:
        """Add the values of the result, if it is final."""
        result = record_of(ResultRecord, self._tree.document(INSTANCES, row.folder, RESULT))
        if isinstance(result, str):
            if result:
                self._notes.append(f"{row.id}: {RESULT} cannot be read: {result}")
            return row
        if not final:
            return replace(row, model=self._clean.line(result.model or "", 80))
        receipt = None
        if result.status in ("not-applied", "unparseable", "no-edit", "already-fixed"):
            read = record_of(ReceiptRecord, self._tree.document(INSTANCES, row.folder, RECEIPT))
            receipt = None if isinstance(read, str) else read
        return _with_result(row, result, receipt, self._clean)


def _standing(last: Finished | Failed | SetAside | None, *, live: bool) -> tuple[str, str]:
    """Return the status of an instance according to its last entry, and the reason."""
    match last:
        case Finished():
            return last.status.value, ""
        case SetAside():
            return "set-aside", f"set aside after {last.tries} tries: {last.reason}"
        case Failed():
            names = {"row": "row", "stopped": "stopped"}
            return names.get(last.blame, last.status.value), last.reason
        case None:
            return ("running", "") if live else ("cut-off", "its attempt has not ended")


def _unselected(name: str, folder: str) -> ReportRow:
    """Return the row of an instance that is not in `tasks.jsonl`."""
    return ReportRow(name, _anchor(name), folder, project=_project(name))


def _project(name: str) -> str:
    """Guess the project of an instance from its id."""
    owner, separator, rest = name.partition("__")
    return f"{owner}/{rest.rpartition('-')[0] or rest}" if separator else ""


def _is_held(lock: Path) -> bool:
    """Return whether a driver holds the lock, which means that the run has not ended."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
