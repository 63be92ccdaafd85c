"""Tests that do not do the same twice, and so decide nothing. Synchronous."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.types import Outcome, TestRun
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.registry import framework_of
from agent.validation.judging.compare import Comparison, compare, failed, is_whole
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


@dataclass(frozen=True, slots=True)
class Changed:
    """What the patch's own changes to tests and configuration do, twice; in order of the ids.

    `lost` passes in A or C and not in D. `taken` is red in A and C, and not red in D: skipped,
    gone, or passing in a test file that the patch edits.
    """

    lost: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


def changed_in_whole(
    bench: Bench,
    plan: Plan,
    suite: Suite,
    runs: Runs,
    steady: Steady | None,
    cancel: threading.Event,
) -> Changed:
    """Compare D with A and with C, and run it once more for what decides. Raises SandboxError."""
    whole = runs.d
    if steady is None or whole is None or plan.whole is None:
        return Changed()
    lost, taken = _lost(runs, whole, steady), _taken(plan, runs, whole)
    found = (*lost, *taken)
    if not found or len(found) > _MOST_FLAKES or not is_whole(whole):
        return Changed(lost, taken)
    gone = {change.path for change in plan.whole if change.after is None}
    left = [test for test in found if test.partition("::")[0] not in gone]
    job = _job_of(bench, plan, suite, left) if left else None
    if job is None:
        return Changed(lost, taken)
    (again,) = bench.run([Task(job, plan.whole, WHOLE, again=True)], cancel)
    return Changed(
        tuple(test for test in lost if not _passes(again, test)),
        tuple(test for test in taken if not failed(again, test)),
    )


def _lost(runs: Runs, whole: TestRun, steady: Steady) -> tuple[str, ...]:
    """What fails in C already is told as that; what passed in C by luck may fail in D without."""
    known = [run for run in (runs.a, runs.c) if run is not None]
    found = {test for run in known for test in compare(run, whole).newly_failing}
    told = set(steady.comparison.newly_failing)
    told.update(test for test in steady.not_for if failed(whole, test))
    passed = (t for t in found - told if any(_passes(run, t) for run in known))
    return tuple(sorted(passed))


def _taken(plan: Plan, runs: Runs, whole: TestRun) -> tuple[str, ...]:
    assert runs.a is not None
    assert runs.c is not None
    red = [test for test in sorted(runs.a.outcomes) if failed(runs.a, test)]
    return tuple(
        test
        for test in red
        if failed(runs.c, test) and not failed(whole, test) and _by_its_test(plan, whole, test)
    )


def _by_its_test(plan: Plan, whole: TestRun, test: str) -> bool:
    """Whether a test that is not red in D is so because it was changed or taken away.

    A module that could not be collected is none if D collects it. What has no file in its id passes
    because of the edited tests, if there are any: its source is the same in C.
    """
    collected = any(other.startswith(f"{test}::") for other in whole.outcomes)
    if not _passes(whole, test) and not collected:
        return test in whole.outcomes or is_whole(whole)
    path, _, name = test.partition("::")
    return path in plan.edited_tests or (bool(plan.edited_tests) and not name and not collected)


def _passes(run: TestRun, test: str) -> bool:
    return run.outcomes.get(test) is Outcome.PASSED


def _job_of(bench: Bench, plan: Plan, suite: Suite, tests: Sequence[str]) -> Job | None:
    """The files of some tests, where the suite can name files; None where it cannot."""
    if not framework_of(suite).selects(suite):
        return None
    paths = sorted({test.partition("::")[0] for test in tests})
    job = bench.job(suite, paths, plan.import_roots, "what decides, once more")
    return job if job.targets else None
