"""The evaluation: which instances, rows for each preset, figures of all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import ConfigurationError
from agent.evaluation.dataset import Instance, Split, load_dataset, part_of
from agent.evaluation.messages import Job, Reply, Start
from agent.evaluation.metrics import Case, Report, score, summarise
from agent.evaluation.pool import measure_all
from agent.evaluation.provenance import check_provenance, provenance
from agent.evaluation.repositories import check_folder, find_repository
from agent.evaluation.rows import RowFile
from agent.events import Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from agent.protocols import Reporter
    from agent.settings import Settings

STAGE = "evaluate"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to evaluate. `settings` by preset, in the order of the table; `flags` made them.

    `limit` None: all. `workers` None: one process a core.
    """

    dataset: Path
    repositories: Path
    output: Path
    settings: Mapping[str, Settings]
    flags: Mapping[str, Any]
    split: Split = "all"
    limit: int | None = None
    workers: int | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """An instance without rows, and why."""

    instance_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures and what they are of. All presets are judged on the same `scored` instances.

    `instances` = `scored` + `unscored` (which change no existing function outside tests) +
    `skipped`. `absent`: functions that rows name and their base commits lack; they are not asked.
    """

    split: Split
    instances: int
    scored: int
    unscored: int
    absent: int
    skipped: tuple[Skipped, ...]
    reports: tuple[Report, ...]


def evaluate(plan: Plan, reporter: Reporter) -> Evaluation:
    """Measure what has no row yet, then judge all rows.

    Raises ConfigurationError for a bad data set, folder, output or setting.
    """
    check_folder(plan.repositories)
    instances = part_of(load_dataset(plan.dataset), plan.split)[: plan.limit]
    if not instances:
        raise ConfigurationError(f"{plan.dataset}: no instance in the split {plan.split!r}")
    with ExitStack() as stack:
        outputs: dict[str, RowFile] = {}
        for preset, path in output_paths(plan).items():
            outputs[preset] = stack.enter_context(RowFile(path, restart=plan.restart))
            check_provenance(path, provenance(plan.settings[preset]), restart=plan.restart)
        found = _measure(plan, instances, outputs, reporter)
        for output in outputs.values():
            output.sort(instance.instance_id for instance in instances)
        return _judge(plan.split, instances, found, outputs)


def output_paths(plan: Plan) -> Mapping[str, Path]:
    """Each preset's file: `R.jsonl` for one, `R.<preset>.jsonl` for several."""
    if len(plan.settings) == 1:
        return dict.fromkeys(plan.settings, plan.output)
    stem, suffix = plan.output.stem, plan.output.suffix
    return {name: plan.output.with_name(f"{stem}.{name}{suffix}") for name in plan.settings}


@dataclass(slots=True)
class _Found:
    """What is known of the instances, by id."""

    cases: dict[str, Case] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def _measure(
    plan: Plan,
    instances: Sequence[Instance],
    outputs: Mapping[str, RowFile],
    reporter: Reporter,
) -> _Found:
    found = _Found()
    jobs = _jobs(plan, instances, outputs, found)
    fresh = sum(bool(job.presets) for job in jobs)
    reporter(StageStarted(STAGE, f"{fresh:,} of {len(instances):,} instances to measure"))
    started = time.perf_counter()
    ok = False
    try:
        with closing(measure_all(jobs, _starts(plan, len(jobs)))) as replies:
            for done, (job, reply) in enumerate(replies, start=1):
                _take(job, reply, outputs, found, reporter)
                reporter(StageProgress(STAGE, done, len(jobs)))
        ok = True
    finally:
        summary = f"{len(found.cases):,} instances, {len(found.skipped):,} skipped"
        reporter(StageFinished(STAGE, time.perf_counter() - started, summary, ok))
    return found


def _jobs(
    plan: Plan, instances: Sequence[Instance], outputs: Mapping[str, RowFile], found: _Found
) -> list[Job]:
    jobs: list[Job] = []
    for instance in instances:
        repository = find_repository(plan.repositories, instance.repo)
        if repository is None:
            found.skipped[instance.instance_id] = f"no repository of {instance.repo}"
            continue
        missing = (n for n, output in outputs.items() if instance.instance_id not in output.rows)
        jobs.append(
            Job(instance=instance, repository=str(repository.absolute()), presets=tuple(missing))
        )
    return jobs


def _starts(plan: Plan, jobs: int) -> list[Start]:
    workers = max(1, min(plan.workers or os.cpu_count() or 1, jobs))
    return [
        Start(flags=dict(plan.flags), presets=tuple(plan.settings), number=n, workers=workers)
        for n in range(workers)
    ]


def _take(
    job: Job, reply: Reply, outputs: Mapping[str, RowFile], found: _Found, reporter: Reporter
) -> None:
    name = job.instance.instance_id
    for notice in reply.notices:
        reporter(Notice(f"{name}: {notice}"))
    if reply.skipped:
        found.skipped[name] = reply.skipped
        reporter(Notice(f"{name} skipped: {reply.skipped}", "warning"))
        return
    for made in reply.rows:
        outputs[made.preset].append(made.row)
    found.cases[name] = Case(name, job.instance.repo, reply.kinds, reply.gold)


def _judge(
    split: Split,
    instances: Sequence[Instance],
    found: _Found,
    outputs: Mapping[str, RowFile],
) -> Evaluation:
    known = [found.cases[i.instance_id] for i in instances if i.instance_id in found.cases]
    scored = [case for case in known if case.gold.files]
    reports = [
        summarise(preset, [score(case, output.rows[case.instance_id]) for case in scored])
        for preset, output in outputs.items()
        if scored
    ]
    skipped = [
        Skipped(i.instance_id, found.skipped[i.instance_id])
        for i in instances
        if i.instance_id in found.skipped
    ]
    return Evaluation(
        split=split,
        instances=len(instances),
        scored=len(scored),
        unscored=len(known) - len(scored),
        absent=sum(len(case.gold.absent) for case in known),
        skipped=tuple(skipped),
        reports=tuple(reports),
    )
