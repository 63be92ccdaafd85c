"""A whole evaluation of retrieval: select instances, measure them, compute figures."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.datasets import (
    GoldInstance,
    Split,
    check_folder,
    check_output,
    find_repository,
    load_dataset,
    part_of,
)
from agent.errors import ConfigurationError
from agent.evaluation.retrieval.measuring import MeasureJob, measure_all
from agent.evaluation.retrieval.metrics import RetrievalReport, RetrievalRow, summarise
from agent.shared.files import replace_file
from agent.shared.terminal import inert, markdown_table
from agent.types.events import Notice, StageFinished, StageProgress, StageStarted
from agent.wiring import open_retriever

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types.protocols import Reporter

STAGE = "evaluate"

_NO_ANSWER = "the row names no answer: neither a patch nor gold_functions nor gold_files"


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
    which has the reason by id.
    """

    split: Split
    instances: int
    scored: int
    unscored: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    report: RetrievalReport | None = None


def evaluate(plan: RetrievalPlan, reporter: Reporter) -> RetrievalEvaluation:
    """Measure the instances, write a row for each, and score them.

    Raises ConfigurationError for a bad data set, folder, output or setting.
    """
    check_folder(plan.repositories)
    check_output(plan.output)
    instances = part_of(load_dataset(plan.dataset), plan.split)[: plan.limit]
    if not instances:
        raise ConfigurationError(f"{plan.dataset}: no instance in the split {plan.split!r}")
    asyncio.run(_try_settings(plan.settings))
    skipped: dict[str, str] = {}
    rows = _measure(plan, list(_jobs(plan, instances, skipped)), skipped, reporter)
    order = [one.instance_id for one in instances]
    ordered = [rows[name] for name in order if name in rows]
    replace_file(plan.output, map(_line, ordered))
    scored = [row for row in ordered if row.gold.files]
    return RetrievalEvaluation(
        split=plan.split,
        instances=len(instances),
        scored=len(scored),
        unscored=len(ordered) - len(scored),
        skipped={name: skipped[name] for name in order if name in skipped},
        report=summarise(scored) if scored else None,
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
        names = instance.gold_functions or instance.gold_files
        if not names and "+++ " not in (instance.patch or ""):
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


def _line(row: RetrievalRow) -> bytes:
    return row.model_dump_json().encode() + b"\n"


def render(evaluation: RetrievalEvaluation) -> str:
    """Return the table of metrics with intervals, and the reasons for skipping."""
    parts = [
        f"Split {evaluation.split}: {evaluation.scored:,} instances scored, "
        f"{evaluation.unscored:,} change no existing function outside tests, "
        f"{len(evaluation.skipped):,} skipped.\n"
    ]
    if evaluation.report is not None:
        parts.append(_metrics(evaluation.report))
    if evaluation.skipped:
        parts.append("".join(_reasons(evaluation.skipped)))
    return "\n".join(parts)


def _metrics(report: RetrievalReport) -> str:
    rows = [
        [name, f"{100 * one.mean:.1f} ({100 * one.low:.0f}–{100 * one.high:.0f})"]
        for name, one in report.metrics.items()
    ]
    rows += [
        ["seconds, median", f"{report.seconds_median:.2f}"],
        ["seconds, 95%", f"{report.seconds_p95:.2f}"],
        ["context tokens, median", f"{report.context_tokens_median:,.0f}"],
    ]
    head = ("", "% (95% interval)")
    return "\n".join(markdown_table(head, rows, head[1:])) + "\n"


def _reasons(skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield the reasons for skipping, the most frequent first."""
    first = {reason: name for name, reason in reversed(list(skipped.items()))}
    yield f"Skipped ({len(skipped):,}):\n"
    counts = Counter(skipped.values())
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield inert(f"- {count:,} × {reason} (first: {first[reason]})", kept="") + "\n"
