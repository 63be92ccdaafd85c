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
from agent.evaluation.messages import Job, PresetRow, Reply, Start
from agent.evaluation.metrics import Case, Report, Score, score, summarise
from agent.evaluation.pool import measure_all
from agent.evaluation.provenance import RunNote, embeds, provenance
from agent.evaluation.repositories import check_folder, find_repository
from agent.evaluation.rows import BudgetRow, Row, RowFile
from agent.events import Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from agent.protocols import Reporter
    from agent.settings import Settings

STAGE = "evaluate"

_NO_ANSWER = "the row names no answer: neither a patch nor gold_functions nor gold_files"
_MAX_IDS = 5  # in a message; one is enough to find the mix-up


@dataclass(frozen=True, slots=True)
class Plan:
    """What to evaluate. `settings` by preset, in the order of the table; `flags` made them.

    `limit` None: all. `workers` None: one process a core. `budgets`: token budgets to show context
    recall at, beside the one of the settings.
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
    """An instance without rows, and why."""

    instance_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures and what they are of. All presets are judged on the same `scored` instances.

    `instances` = `scored` + `unscored` (which change no existing function outside tests) +
    `skipped`. `absent`: functions that rows name and their base commits lack; they are not asked.
    `embedders`: what embeds, for each preset that has a use for it; None where nothing does.
    """

    split: Split
    instances: int
    scored: int
    unscored: int
    absent: int
    skipped: tuple[Skipped, ...]
    reports: tuple[Report, ...]
    embedders: Mapping[str, str | None] = field(default_factory=dict)


def evaluate(plan: Plan, reporter: Reporter) -> Evaluation:
    """Measure what has no row yet, then judge all rows.

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
        _say_what_embeds_nothing(plan.settings, reporter)
        found = _measure(plan, instances, outputs, reporter)
        for output in outputs.values():
            output.sort([instance.instance_id for instance in instances])
        return _judge(plan.split, instances, found, outputs, plan.settings)


def _say_what_embeds_nothing(settings: Mapping[str, Settings], reporter: Reporter) -> None:
    for name, own in settings.items():
        if own.embed in ("local", "remote") and not embeds(own):
            message = f"--preset {name} ranks by words alone: --embed {own.embed} changes nothing"
            reporter(Notice(message, "warning"))


def output_paths(plan: Plan) -> Mapping[str, Path]:
    """Each preset's file: `R.jsonl` for one, `R.<preset>.jsonl` for several."""
    if len(plan.settings) == 1:
        return dict.fromkeys(plan.settings, plan.output)
    stem, suffix = plan.output.stem, plan.output.suffix
    return {name: plan.output.with_name(f"{stem}.{name}{suffix}") for name in plan.settings}


def written_paths(output: Path) -> tuple[Path, Path]:
    """The files of rows: that of the contract, and the one beside it."""
    return output, output.with_name(f"{output.name}.budgets.jsonl")


@dataclass(slots=True)
class _Output:
    """The rows of one preset, beside them its contexts at further budgets, and what made them."""

    rows: RowFile[Row]
    budgets: RowFile[BudgetRow]
    note: RunNote
    made_with: Mapping[str, Any]
    begun: bool = False

    def check(self, instances: Sequence[Instance]) -> None:
        """Refuse rows of other issues that have the same ids. Raises ConfigurationError."""
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
        """A worker has come up with these settings: from here on they replace what was there."""
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

    def score(self, case: Case) -> Score:
        name = case.instance_id
        return score(case, self.rows.rows[name], self.budgets.rows[name])


def _open(stack: ExitStack, path: Path, preset: str, plan: Plan) -> _Output:
    made_with = {**provenance(plan.settings[preset]), "budgets": list(plan.budgets)}
    path, beside = written_paths(path)
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--output {path}: not a file; name one to write rows to")
    note = stack.enter_context(RunNote(path))
    rows = stack.enter_context(RowFile(path, Row, restart=plan.restart))
    budgets = stack.enter_context(RowFile(beside, BudgetRow, restart=plan.restart))
    if not plan.restart:
        note.check(made_with)
    return _Output(rows, budgets, note, made_with)


@dataclass(slots=True)
class _Found:
    """What is known of the instances, by id."""

    cases: dict[str, Case] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def _measure(
    plan: Plan,
    instances: Sequence[Instance],
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
    plan: Plan, instances: Sequence[Instance], outputs: Mapping[str, _Output], found: _Found
) -> list[Job]:
    jobs: list[Job] = []
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
            Job(instance=instance, repository=str(repository.absolute()), presets=tuple(missing))
        )
    return jobs


def _starts(plan: Plan, jobs: int) -> list[Start]:
    workers = max(1, min(plan.workers or os.cpu_count() or 1, jobs))
    return [
        Start(
            flags=dict(plan.flags),
            presets=tuple(plan.settings),
            budgets=plan.budgets,
            number=n,
            workers=workers,
        )
        for n in range(workers)
    ]


def _take(
    job: Job, reply: Reply, outputs: Mapping[str, _Output], found: _Found, reporter: Reporter
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
    found.cases[name] = Case(name, job.instance.repo, reply.kinds, reply.gold)


def _judge(
    split: Split,
    instances: Sequence[Instance],
    found: _Found,
    outputs: Mapping[str, _Output],
    settings: Mapping[str, Settings],
) -> Evaluation:
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
    return Evaluation(
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
