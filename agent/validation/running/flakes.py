"""Tests that do not do the same twice, and so decide nothing. Synchronous."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.types import Outcome, TestRun
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.registry import framework_of
from agent.validation.judging.compare import Comparison, compare, is_whole
from agent.validation.running.bench import Bench, Job, Task
from agent.validation.running.plan import Plan
from agent.validation.running.runs import BASE, SOURCE, WHOLE, Runs

# More tests than this do not fail by chance at once; running them again would only cost time.
_MOST_FLAKES = 20


@dataclass(frozen=True, slots=True)
class Steady:
    """A comparison without flakes, and the flakes: in order of the ids."""

    comparison: Comparison
    not_against: tuple[str, ...] = ()  # failed newly, once
    not_for: tuple[str, ...] = ()  # passed newly, once


def without_flakes(
    bench: Bench, plan: Plan, suite: Suite, runs: Runs, cancel: threading.Event
) -> Steady | None:
    """Compare A and C; run the files that decide once more, and keep what does the same again.

    Only whole runs of files are repeated: a hang or a crash is no flake, and a command has no
    parts. None where A or C was not run. Raises SandboxError.
    """
    if runs.a is None or runs.c is None:
        return None
    comparison = compare(runs.a, runs.c)
    failing, passing = comparison.newly_failing, comparison.newly_passing
    whole = is_whole(runs.a) and is_whole(runs.c)
    if not whole or len(failing) > _MOST_FLAKES or not (failing or passing):
        return Steady(comparison)
    job = _job_of(bench, plan, suite, (*failing, *passing))
    if job is None:
        return Steady(comparison)
    tasks = [Task(job, (), BASE, again=True)]
    if failing:
        tasks.append(Task(job, plan.source, SOURCE, again=True))
    base, *patched = bench.run(tasks, cancel)
    again = set(compare(base, patched[0]).newly_failing) if patched else set()
    lucky = tuple(test for test in passing if _passes(base, test))
    return Steady(
        replace(
            comparison,
            newly_failing=tuple(test for test in failing if test in again),
            newly_passing=tuple(test for test in passing if test not in lucky),
        ),
        tuple(test for test in failing if test not in again),
        lucky,
    )


def lost_in_whole(
    bench: Bench,
    plan: Plan,
    suite: Suite,
    runs: Runs,
    failing: Sequence[str],
    cancel: threading.Event,
) -> tuple[str, ...]:
    """What passes in A and not in D, twice; `failing` is what fails in C already.

    Raises SandboxError.
    """
    if runs.a is None or runs.d is None or plan.whole is None:
        return ()
    found = compare(runs.a, runs.d).newly_failing
    lost = tuple(t for t in found if t not in failing and _passes(runs.a, t))
    if not lost or len(lost) > _MOST_FLAKES or not is_whole(runs.d):
        return lost
    gone = {change.path for change in plan.whole if change.after is None}
    left = [test for test in lost if test.partition("::")[0] not in gone]
    job = _job_of(bench, plan, suite, left) if left else None
    if job is None:
        return lost
    (again,) = bench.run([Task(job, plan.whole, WHOLE, again=True)], cancel)
    return tuple(test for test in lost if not _passes(again, test))


def _passes(run: TestRun, test: str) -> bool:
    return run.outcomes.get(test) is Outcome.PASSED


def _job_of(bench: Bench, plan: Plan, suite: Suite, tests: Sequence[str]) -> Job | None:
    """The files of some tests, where the suite can name files; None where it cannot."""
    if not framework_of(suite).selects(suite):
        return None
    paths = sorted({test.partition("::")[0] for test in tests})
    job = bench.job(suite, paths, plan.import_roots, "what decides, once more")
    return job if job.targets else None
