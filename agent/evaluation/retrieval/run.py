"""A whole evaluation of retrieval: select instances, measure them, compute figures."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.datasets import GoldInstance, Split, check_folder, find_repository, load_dataset, part_of
from agent.errors import ConfigurationError
from agent.evaluation.retrieval.measuring import MeasureJob, measure_all
from agent.evaluation.retrieval.metrics import (
    EDIT_RECALL,
    RECALL,
    GroupSummary,
    Interval,
    RetrievalReport,
    RetrievalRow,
    score,
    summarise,
)
from agent.llm import without_credentials
from agent.shared.files import replace_file
from agent.shared.terminal import inert
from agent.types.events import Notice, StageFinished, StageProgress, StageStarted
from agent.wiring import embedding_endpoint, open_retriever, retrieval_options

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types.protocols import Reporter

STAGE = "evaluate"

_NO_ANSWER = "the row names no answer: neither a patch nor gold_functions nor gold_files"
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
    """Measure the instances, write a row for each, and score them.

    Raises ConfigurationError for a bad data set, folder, output or setting.
    """
    check_folder(plan.repositories)
    instances = part_of(load_dataset(plan.dataset), plan.split)[: plan.limit]
    if not instances:
        raise ConfigurationError(f"{plan.dataset}: no instance in the split {plan.split!r}")
    embedder = embedder_name(plan.settings)
    asyncio.run(_try_settings(plan.settings))
    skipped: dict[str, str] = {}
    rows = _measure(plan, list(_jobs(plan, instances, skipped)), skipped, reporter)
    order = [one.instance_id for one in instances]
    ordered = [rows[name] for name in order if name in rows]
    with _writing(plan.output):
        replace_file(plan.output, [_line(row) for row in ordered])
    scores = [score(row) for row in ordered if row.gold.files]
    return RetrievalEvaluation(
        split=plan.split,
        instances=len(instances),
        scored=len(scores),
        unscored=len(ordered) - len(scores),
        absent=sum(len(row.gold.absent) for row in ordered),
        skipped={name: skipped[name] for name in order if name in skipped},
        report=summarise(scores) if scores else None,
        embedder=embedder,
    )


async def _try_settings(settings: Settings) -> None:
    """Raise the ConfigurationError that each worker would raise."""
    async with open_retriever(settings, lambda _: None):
        pass


def _jobs(
    plan: RetrievalPlan, instances: Sequence[GoldInstance], skipped: dict[str, str]
) -> Iterator[MeasureJob]:
    for instance in instances:
        repository = find_repository(plan.repositories, instance.repo)
        if not instance.names_answer():
            skipped[instance.instance_id] = _NO_ANSWER
        elif repository is None:
            skipped[instance.instance_id] = f"no repository of {instance.repo}"
        else:
            yield MeasureJob(instance, str(repository.absolute()))


def _measure(
    plan: RetrievalPlan,
    jobs: Sequence[MeasureJob],
    skipped: dict[str, str],
    reporter: Reporter,
) -> dict[str, RetrievalRow]:
    """Measure the jobs and write each row as it comes. Return the rows by id."""
    rows: dict[str, RetrievalRow] = {}
    workers = max(1, min(plan.workers or os.cpu_count() or 1, len(jobs)))
    reporter(StageStarted(STAGE, f"{len(jobs):,} instances to measure"))
    started = time.perf_counter()
    with _writing(plan.output):
        file = plan.output.open("wb", buffering=0)
    measurements = measure_all(jobs, plan.flags, plan.budgets, workers)
    done = 0
    try:
        for done, (job, measured) in enumerate(measurements, start=1):
            name = job.instance.instance_id
            for notice in measured.notices:
                reporter(Notice(f"{name}: {notice}"))
            if measured.row is None:
                skipped[name] = measured.skipped
                reporter(Notice(f"{name} skipped: {measured.skipped}", "warning"))
            else:
                with _writing(plan.output):
                    file.write(_line(measured.row))
                rows[name] = measured.row
            reporter(StageProgress(STAGE, done, len(jobs)))
    finally:
        measurements.close()
        file.close()
        summary = f"{len(rows):,} instances measured, {len(skipped):,} skipped"
        seconds = time.perf_counter() - started
        reporter(StageFinished(STAGE, seconds, summary, done == len(jobs)))
    return rows


@contextmanager
def _writing(output: Path) -> Iterator[None]:
    """Turn an OSError into a ConfigurationError that names `--output`."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"--output {output}: {error.strerror or error}") from None


def _line(row: RetrievalRow) -> bytes:
    return row.model_dump_json().encode() + b"\n"


def embedder_name(settings: Settings) -> str | None:
    """Return the model or server that embeds, without credentials, None if none does.

    Raises ConfigurationError.
    """
    if not retrieval_options(settings).embedding:
        return None
    chosen = embedding_endpoint(settings)
    if chosen is None:
        return None
    model = chosen.model or "a model of the server's list"
    return f"{model} at {without_credentials(chosen.base_url)} ({chosen.kind})"


# ---------------------------------------------------------------------------------- Markdown tables


def render(evaluation: RetrievalEvaluation) -> str:
    """Return the tables: metrics with intervals, breakdowns, and reasons for skipping."""
    report = evaluation.report
    parts = [_heading(evaluation)]
    if report is not None:
        parts.append(_metrics(report))
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
    return "".join(_cells(cells, widths) for cells in (head, rule, *rows))


def _cells(cells: Iterable[str], widths: Sequence[int]) -> str:
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
