"""A whole evaluation of retrieval: select instances, measure missing rows, compute figures."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.datasets import GoldInstance, Split, check_folder, find_repository, load_dataset, part_of
from agent.errors import ConfigurationError
from agent.evaluation.retrieval.metrics import PresetReport, RetrievalCase, Score, score, summarise
from agent.evaluation.retrieval.pool import (
    MeasureJob,
    MeasureReply,
    PresetRow,
    WorkerStart,
    measure_all,
)
from agent.evaluation.retrieval.result_files import (
    BudgetRow,
    RetrievalRow,
    RowFile,
    RunNote,
    embeds,
    provenance,
)
from agent.types.events import Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types.protocols import Reporter

STAGE = "evaluate"

_NO_ANSWER = "the row names no answer: neither a patch nor gold_functions nor gold_files"
_MAX_IDS = 5  # in a message


@dataclass(frozen=True, slots=True)
class RetrievalPlan:
    """What to evaluate. `settings` are by preset, in the order of the table, and made from `flags`.

    `limit` None means all instances, `workers` None one process for each core. Context recall is
    also computed at the token `budgets`.
    """

    dataset: Path
    repositories: Path
    output: Path
    settings: Mapping[str, Settings]
    flags: Mapping[str, Any]
    split: Split = "all"
    limit: int | None = None
    budgets: tuple[int, ...] = ()
    workers: int | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """An instance without rows, and the reason."""

    instance_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RetrievalEvaluation:
    """The figures. All presets are compared on the same `scored` instances.

    `instances` = `scored` + `unscored` (no existing function outside tests changes) + `skipped`.
    `absent` counts functions that rows name and their base commits lack. `embedders` has the
    embedder of each preset that uses embeddings, None if there is none.
    """

    split: Split
    instances: int
    scored: int
    unscored: int
    absent: int
    skipped: tuple[Skipped, ...]
    reports: tuple[PresetReport, ...]
    embedders: Mapping[str, str | None] = field(default_factory=dict)


def evaluate(plan: RetrievalPlan, reporter: Reporter) -> RetrievalEvaluation:
    """Measure the instances that have no row yet, then score all rows.

    Raises ConfigurationError for a bad data set, folder, output or setting.
    """
    check_folder(plan.repositories)
    instances = part_of(load_dataset(plan.dataset), plan.split)[: plan.limit]
    if not instances:
        raise ConfigurationError(f"{plan.dataset}: no instance in the split {plan.split!r}")
    with ExitStack() as stack:
        outputs = {
            preset: _open(stack, path, preset, plan) for preset, path in output_paths(plan).items()
        }
        for output in outputs.values():
            output.check(instances)
        _warn_of_unused_embeddings(plan.settings, reporter)
        found = _measure(plan, instances, outputs, reporter)
        for output in outputs.values():
            output.sort([instance.instance_id for instance in instances])
        return _judge(plan.split, instances, found, outputs, plan.settings)


def _warn_of_unused_embeddings(settings: Mapping[str, Settings], reporter: Reporter) -> None:
    for name, own in settings.items():
        if own.embed in ("local", "remote") and not embeds(own):
            message = f"--preset {name} ranks by words alone: --embed {own.embed} changes nothing"
            reporter(Notice(message, "warning"))


def output_paths(plan: RetrievalPlan) -> Mapping[str, Path]:
    """Return the file of each preset: `R.jsonl` for one, `R.<preset>.jsonl` for several."""
    if len(plan.settings) == 1:
        return dict.fromkeys(plan.settings, plan.output)
    stem, suffix = plan.output.stem, plan.output.suffix
    return {name: plan.output.with_name(f"{stem}.{name}{suffix}") for name in plan.settings}


def written_paths(output: Path) -> tuple[Path, Path]:
    """Return the file of rows, and the file of contexts at further budgets beside it."""
    return output, output.with_name(f"{output.name}.budgets.jsonl")


@dataclass(slots=True)
class _Output:
    """The rows of one preset, its contexts at further budgets, and the note of both."""

    rows: RowFile[RetrievalRow]
    budgets: RowFile[BudgetRow]
    note: RunNote
    made_with: Mapping[str, Any]
    begun: bool = False

    def check(self, instances: Sequence[GoldInstance]) -> None:
        """Refuse rows of other issues with the same ids. Raises ConfigurationError."""
        names = [i.instance_id for i in instances if self.has(i.instance_id)]
        digests = {instance.instance_id: instance.digest() for instance in instances}
        other = [name for name in names if self.budgets.rows[name].asked != digests[name]]
        if other:
            more = f" and {len(other) - _MAX_IDS:,} more" if len(other) > _MAX_IDS else ""
            raise ConfigurationError(
                f"--output {self.rows.path}: rows of another data set, where repository, commit "
                f"or problem of these ids differ: {', '.join(other[:_MAX_IDS])}{more}; --restart "
                "to measure again, or name another file"
            )

    def begin(self) -> None:
        """Start writing, once a worker has started with these settings."""
        if not self.begun:
            self.begun = True
            self.rows.begin()
            self.budgets.begin()
            self.note.write(self.made_with)

    def has(self, instance_id: str) -> bool:
        return instance_id in self.rows.rows and instance_id in self.budgets.rows

    def append(self, made: PresetRow) -> None:
        self.budgets.append(made.budgets)
        self.rows.append(made.row)

    def sort(self, order: Sequence[str]) -> None:
        if self.begun:
            self.rows.sort(order)
            self.budgets.sort(order)

    def score(self, case: RetrievalCase) -> Score:
        name = case.instance_id
        return score(case, self.rows.rows[name], self.budgets.rows[name])


def _open(stack: ExitStack, path: Path, preset: str, plan: RetrievalPlan) -> _Output:
    made_with = {**provenance(plan.settings[preset]), "budgets": list(plan.budgets)}
    path, beside = written_paths(path)
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--output {path}: not a file; name one to write rows to")
    note = stack.enter_context(RunNote(path))
    rows = stack.enter_context(RowFile(path, RetrievalRow, restart=plan.restart))
    budgets = stack.enter_context(RowFile(beside, BudgetRow, restart=plan.restart))
    if not plan.restart:
        note.check(made_with)
    return _Output(rows, budgets, note, made_with)


@dataclass(slots=True)
class _Found:
    """The measured and the skipped instances, by id."""

    cases: dict[str, RetrievalCase] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def _measure(
    plan: RetrievalPlan,
    instances: Sequence[GoldInstance],
    outputs: Mapping[str, _Output],
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
                for output in outputs.values():
                    output.begin()
                _take(job, reply, outputs, found, reporter)
                reporter(StageProgress(STAGE, done, len(jobs)))
        ok = True
    finally:
        summary = f"{len(found.cases):,} instances, {len(found.skipped):,} skipped"
        reporter(StageFinished(STAGE, time.perf_counter() - started, summary, ok))
    return found


def _jobs(
    plan: RetrievalPlan,
    instances: Sequence[GoldInstance],
    outputs: Mapping[str, _Output],
    found: _Found,
) -> list[MeasureJob]:
    jobs: list[MeasureJob] = []
    for instance in instances:
        if not instance.names_answer():
            found.skipped[instance.instance_id] = _NO_ANSWER
            continue
        repository = find_repository(plan.repositories, instance.repo)
        if repository is None:
            found.skipped[instance.instance_id] = f"no repository of {instance.repo}"
            continue
        missing = (n for n, output in outputs.items() if not output.has(instance.instance_id))
        jobs.append(
            MeasureJob(
                instance=instance, repository=str(repository.absolute()), presets=tuple(missing)
            )
        )
    return jobs


def _starts(plan: RetrievalPlan, jobs: int) -> list[WorkerStart]:
    workers = max(1, min(plan.workers or os.cpu_count() or 1, jobs))
    return [
        WorkerStart(
            flags=dict(plan.flags),
            presets=tuple(plan.settings),
            budgets=plan.budgets,
            number=n,
            workers=workers,
        )
        for n in range(workers)
    ]


def _take(
    job: MeasureJob,
    reply: MeasureReply,
    outputs: Mapping[str, _Output],
    found: _Found,
    reporter: Reporter,
) -> None:
    name = job.instance.instance_id
    for notice in reply.notices:
        reporter(Notice(f"{name}: {notice}"))
    for made in reply.rows:
        outputs[made.preset].append(made)
    if reply.skipped:
        found.skipped[name] = reply.skipped
        reporter(Notice(f"{name} skipped: {reply.skipped}", "warning"))
        return
    found.cases[name] = RetrievalCase(name, job.instance.repo, reply.kinds, reply.gold)


def _judge(
    split: Split,
    instances: Sequence[GoldInstance],
    found: _Found,
    outputs: Mapping[str, _Output],
    settings: Mapping[str, Settings],
) -> RetrievalEvaluation:
    known = [found.cases[i.instance_id] for i in instances if i.instance_id in found.cases]
    scored = [case for case in known if case.gold.files]
    reports = [
        summarise(preset, [output.score(case) for case in scored])
        for preset, output in outputs.items()
        if scored
    ]
    skipped = [
        Skipped(i.instance_id, found.skipped[i.instance_id])
        for i in instances
        if i.instance_id in found.skipped
    ]
    return RetrievalEvaluation(
        split=split,
        instances=len(instances),
        scored=len(scored),
        unscored=len(known) - len(scored),
        absent=sum(len(case.gold.absent) for case in known),
        skipped=tuple(skipped),
        reports=tuple(reports),
        embedders={
            name: outputs[name].made_with["embedder"]
            for name, own in settings.items()
            if embeds(own)
        },
    )
