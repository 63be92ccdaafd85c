"""A whole evaluation of retrieval: select instances, measure missing rows, compute figures."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.datasets import GoldInstance, Split, check_folder, find_repository, load_dataset, part_of
from agent.errors import ConfigurationError
from agent.evaluation.retrieval.measuring import MeasureJob, Measurement, WorkerStart, measure_all
from agent.evaluation.retrieval.metrics import (
    EDIT_RECALL,
    RECALL,
    GroupSummary,
    Interval,
    RetrievalReport,
    score,
    summarise,
)
from agent.evaluation.retrieval.rows import RetrievalOutput, embedder_name, made_with, open_output
from agent.shared.terminal import inert
from agent.types.events import Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types.protocols import Reporter

STAGE = "evaluate"

_NO_ANSWER = "the row names no answer: neither a patch nor gold_functions nor gold_files"
_MAX_IDS = 5  # in a message

# The breakdowns that show where retrieval is weak. `--json` has the others.
_BREAKDOWN = ("file @1", "file @5", "function @10", RECALL, EDIT_RECALL)
_MAX_REASONS = 20


@dataclass(frozen=True, slots=True)
class RetrievalPlan:
    """What to evaluate. `settings` are made from `flags`, which the workers load again.

    `limit` None means all instances, `workers` None one process for each core. Context recall is
    also computed at the token `budgets`.
    """

    dataset: Path
    repositories: Path
    output: Path
    settings: Settings
    flags: Mapping[str, Any]
    split: Split = "all"
    limit: int | None = None
    budgets: tuple[int, ...] = ()
    workers: int | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class RetrievalEvaluation:
    """The figures of the `scored` instances.

    `instances` = `scored` + `unscored` (no existing function outside tests changes) + `skipped`,
    which has the reason by id. `absent` counts functions that rows name and their base commits
    lack. `embedder` is None if nothing was embedded.
    """

    split: Split
    instances: int
    scored: int
    unscored: int
    absent: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    report: RetrievalReport | None = None
    embedder: str | None = None


def evaluate(plan: RetrievalPlan, reporter: Reporter) -> RetrievalEvaluation:
    """Measure the instances that have no row yet, then score all rows.

    Raises ConfigurationError for a bad data set, folder, output or setting.
    """
    check_folder(plan.repositories)
    instances = part_of(load_dataset(plan.dataset), plan.split)[: plan.limit]
    if not instances:
        raise ConfigurationError(f"{plan.dataset}: no instance in the split {plan.split!r}")
    order = [instance.instance_id for instance in instances]
    inputs = made_with(plan.settings, plan.budgets)
    with open_output(plan.output, inputs, order, restart=plan.restart) as output:
        _check_issues(output, instances)
        skipped = _measure(plan, instances, output, reporter)
        return _judge(plan.split, instances, skipped, output, embedder_name(plan.settings))


def _check_issues(output: RetrievalOutput, instances: Sequence[GoldInstance]) -> None:
    """Refuse rows of other issues with the same ids. Raises ConfigurationError."""
    others = [
        one.instance_id
        for one in instances
        if output.has(one.instance_id) and output.rows[one.instance_id].asked != one.digest()
    ]
    if others:
        more = f" and {len(others) - _MAX_IDS:,} more" if len(others) > _MAX_IDS else ""
        raise ConfigurationError(
            f"--output {output.path}: rows of another data set, where repository, commit or "
            f"problem of these ids differ: {', '.join(others[:_MAX_IDS])}{more}; --restart to "
            "measure again, or name another file"
        )


def _measure(
    plan: RetrievalPlan,
    instances: Sequence[GoldInstance],
    output: RetrievalOutput,
    reporter: Reporter,
) -> dict[str, str]:
    """Measure what is missing. Return why instances have no row, by id."""
    skipped: dict[str, str] = {}
    jobs = list(_jobs(plan, instances, output, skipped))
    reporter(StageStarted(STAGE, f"{len(jobs):,} of {len(instances):,} instances to measure"))
    started = time.perf_counter()
    finished = False
    try:
        with closing(measure_all(jobs, _starts(plan, len(jobs)))) as measurements:
            for done, (job, measured) in enumerate(measurements, start=1):
                _take(job.instance.instance_id, measured, output, skipped, reporter)
                reporter(StageProgress(STAGE, done, len(jobs)))
        finished = True
    finally:
        summary = f"{len(instances) - len(skipped):,} instances, {len(skipped):,} skipped"
        reporter(StageFinished(STAGE, time.perf_counter() - started, summary, finished))
    return skipped


def _jobs(
    plan: RetrievalPlan,
    instances: Sequence[GoldInstance],
    output: RetrievalOutput,
    skipped: dict[str, str],
) -> Iterator[MeasureJob]:
    for instance in instances:
        repository = find_repository(plan.repositories, instance.repo)
        if not instance.names_answer():
            skipped[instance.instance_id] = _NO_ANSWER
        elif output.has(instance.instance_id):
            continue
        elif repository is None:
            skipped[instance.instance_id] = f"no repository of {instance.repo}"
        else:
            yield MeasureJob(instance, str(repository.absolute()))


def _starts(plan: RetrievalPlan, jobs: int) -> list[WorkerStart]:
    workers = max(1, min(plan.workers or os.cpu_count() or 1, jobs))
    return [WorkerStart(plan.flags, plan.budgets, number, workers) for number in range(workers)]


def _take(
    name: str,
    measured: Measurement,
    output: RetrievalOutput,
    skipped: dict[str, str],
    reporter: Reporter,
) -> None:
    output.begin()
    for notice in measured.notices:
        reporter(Notice(f"{name}: {notice}"))
    if measured.row is not None:
        output.append(measured.row)
    else:
        skipped[name] = measured.skipped
        reporter(Notice(f"{name} skipped: {measured.skipped}", "warning"))


def _judge(
    split: Split,
    instances: Sequence[GoldInstance],
    skipped: Mapping[str, str],
    output: RetrievalOutput,
    embedder: str | None,
) -> RetrievalEvaluation:
    order = [one.instance_id for one in instances]
    rows = [output.rows[name] for name in order if output.has(name)]
    scores = [score(row) for row in rows if row.gold.files]
    return RetrievalEvaluation(
        split=split,
        instances=len(instances),
        scored=len(scores),
        unscored=len(rows) - len(scores),
        absent=sum(len(row.gold.absent) for row in rows),
        skipped={
            o.instance_id: skipped[o.instance_id] for o in instances if o.instance_id in skipped
        },
        report=summarise(scores) if scores else None,
        embedder=embedder,
    )


# ---------------------------------------------------------------------------------- Markdown tables


def render(evaluation: RetrievalEvaluation) -> str:
    """Return the tables: metrics with intervals, breakdowns, and reasons for skipping."""
    report = evaluation.report
    parts = [_heading(evaluation)]
    if report is not None:
        parts.append(_metrics(report))
        parts.append(_breakdown("kind of query", report.by_kind))
        parts.append(_breakdown("project", report.by_project))
    if evaluation.embedder:
        parts.append(f"Embedded by {inert(evaluation.embedder, kept='')}.\n")
    if evaluation.skipped:
        parts.append("".join(_reasons(evaluation.skipped)))
    return "\n".join(parts)


def _heading(evaluation: RetrievalEvaluation) -> str:
    projects = len(evaluation.report.by_project) if evaluation.report else 0
    absent = f"; {evaluation.absent:,} named functions not there" if evaluation.absent else ""
    return (
        f"Split {evaluation.split}: {evaluation.scored:,} instances of {projects} projects scored, "
        f"{evaluation.unscored:,} change no existing function outside tests, "
        f"{len(evaluation.skipped):,} skipped{absent}.\n"
    )


def _metrics(report: RetrievalReport) -> str:
    rows = [[name, _with_interval(value)] for name, value in report.overall.metrics.items()]
    needed = report.tokens_needed_median
    rows += [
        ["seconds, median", f"{report.seconds_median:.2f}"],
        ["seconds, 95%", f"{report.seconds_p95:.2f}"],
        ["context tokens, median", f"{report.context_tokens_median:,.0f}"],
        ["tokens until all edits, median", "more" if needed is None else f"{needed:,.0f}"],
    ]
    return _table(["", "% (95% interval)"], rows)


def _with_interval(interval: Interval) -> str:
    return f"{interval.mean:.1%} ({interval.low:.0%}–{interval.high:.0%})".replace("%", "")


def _breakdown(title: str, groups: Mapping[str, GroupSummary]) -> str:
    rows = [
        [name, f"{group.instances:,}", *(_plain(group.metrics.get(m)) for m in _BREAKDOWN)]
        for name, group in groups.items()
    ]
    return _table([title, "n", *_BREAKDOWN], rows)


def _plain(interval: Interval | None) -> str:
    return "–" if interval is None else f"{100 * interval.mean:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(3, *map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "".join(_line(cells, widths) for cells in (head, rule, *rows))


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |\n"


def _reasons(skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield the reasons for skipping, the most frequent first."""
    counts = Counter(skipped.values())
    first = {reason: name for name, reason in reversed(list(skipped.items()))}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    yield f"Skipped ({len(skipped):,}):\n"
    for reason, count in ordered[:_MAX_REASONS]:
        yield inert(f"- {count:,} × {reason} (first: {first[reason]})", kept="") + "\n"
    if len(ordered) > _MAX_REASONS:
        yield f"- and {len(ordered) - _MAX_REASONS:,} further reasons (--json has all)\n"
