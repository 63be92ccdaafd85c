"""The runs of a plan, each on its tree. Synchronous."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from agent.types import TestRun
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.registry import framework_of
from agent.validation.judging.wording import number
from agent.validation.running.bench import Bench, Job, Task
from agent.validation.running.plan import Plan, over
from agent.validation.syntax_only import nothing_run

BASE = "the base"
SOURCE = "the patched tree"
WHOLE = "the tree with the patch's own tests"


@dataclass(frozen=True, slots=True)
class Runs:
    """What came of a plan, by the names of `agent.validation.running.plan`; None: not run.

    `by_files`: A, C and D ran the plan's test files, and not whatever a command runs.
    """

    a: TestRun | None = None
    b: TestRun | None = None
    c: TestRun | None = None
    c_new: TestRun | None = None  # C'
    d: TestRun | None = None
    by_files: bool = False


def run_plan(bench: Bench, plan: Plan, suite: Suite, cancel: threading.Event) -> Runs:
    """Run all of it, at once where that is possible. Raises SandboxError."""
    tasks: dict[str, Task] = {}
    new = _new_job(bench, plan, suite, cancel)
    if new is not None:
        tasks["b"] = Task(new, plan.new_tests, BASE)
        tasks["c_new"] = Task(new, over(plan.source, plan.new_tests), SOURCE)
    job = _project_job(bench, plan, suite)
    left = _left(bench, job, plan)
    if job is not None:
        tasks["a"] = Task(job, (), BASE)
        tasks["c"] = Task(job, plan.source, SOURCE)
        if plan.whole is not None and left is not None:
            tasks["d"] = Task(left, plan.whole, WHOLE)
    runs = dict(zip(tasks, bench.run(list(tasks.values()), cancel), strict=True))
    if job is not None and plan.whole is not None and left is None:
        runs["d"] = nothing_run("the patch deletes the selected tests")
    return Runs(**runs, by_files=job is not None and bool(job.targets))


def _new_job(bench: Bench, plan: Plan, suite: Suite, cancel: threading.Event) -> Job | None:
    """The reply's tests, in a framework that can run single files."""
    if not plan.new_paths:
        return None
    if not framework_of(suite).selects(suite):
        suite = bench.suite_of_files(plan.new_paths, cancel)
    job = bench.job(suite, plan.new_paths, plan.import_roots, "the new tests")
    return job if job.targets else None


def _project_job(bench: Bench, plan: Plan, suite: Suite) -> Job | None:
    if not framework_of(suite).selects(suite):
        return Job(suite, (), plan.import_roots, "the test command")
    paths = [test.path for test in plan.selected]
    job = bench.job(suite, paths, plan.import_roots, number(len(paths), "test file"))
    return job if job.targets else None


def _left(bench: Bench, job: Job | None, plan: Plan) -> Job | None:
    """What is left of a job's files once the whole patch is applied."""
    if job is None or not job.targets:
        return job
    gone = {change.path for change in plan.whole or () if change.after is None}
    paths = [test.path for test in plan.selected if test.path not in gone]
    left = bench.job(job.suite, paths, job.import_roots, job.label)
    return left if left.targets else None
