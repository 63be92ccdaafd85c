"""Carries out a plan: its runs, and second runs of the deciding tests. Synchronous.

A test that gives different results is flaky and decides nothing. Failures are repeated under the
same conditions, and only in whole runs of test files: a hang or a crash is not flaky. A command is
repeated for a failure only if its exit code is all that is known of it, because it cannot be run in
part. What passes newly is repeated under other conditions (`TraceOrder`), on the base and with the
patch, and then replayed as plain code.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from agent.types import Outcome, TestRun
from agent.verify.executor import SuiteExecutor
from agent.verify.jobs import SuiteJob, Task, TraceOrder
from agent.verify.judging.compare import (
    Comparison,
    compare,
    failed,
    is_command,
    is_whole,
    passing_in_both,
)
from agent.verify.judging.execution import (
    Replays,
    ReplaySide,
    RunAgain,
    SecondRuns,
    changed_code,
    find_equality_files,
)
from agent.verify.judging.outdated import OutdatedRuns
from agent.verify.judging.wording import number
from agent.verify.path_rules import other_path
from agent.verify.plan import Plan, merged
from agent.verify.reports import nothing_run
from agent.verify.runners.base import Suite
from agent.verify.runners.registry import runner_of

# Names of the trees, for progress events.
BASE = "the base"
SOURCE = "the patched tree"
WHOLE = "the tree with the patch's own tests"

# A replay takes up to a second; a fix that holds in these tests holds.
_MOST_REPLAYED = 6

# Passing tests that show whether replays work in a project at all.
_MOST_CONTROLS = 3

# More tests than this do not fail by chance at once, and running them again costs time.
_MOST_FLAKES = 20


@dataclass(frozen=True, slots=True)
class PlanRuns:
    """The runs of a plan, under the names of `agent.verify.plan`; None if not run.

    `by_files` means that `before`, `after` and `whole` ran the plan's test files and not a command
    with its own choice of tests.
    """

    before: TestRun | None = None
    new_before: TestRun | None = None
    after: TestRun | None = None
    new_after: TestRun | None = None
    whole: TestRun | None = None
    by_files: bool = False


@dataclass(frozen=True, slots=True)
class SteadyComparison:
    """The comparison of `before` and `after` without flaky failures, and the ids of those."""

    comparison: Comparison
    flaky_failures: tuple[str, ...] = ()  # newly failing only once


@dataclass(frozen=True, slots=True)
class TestEdits:
    """What the patch's own changes to tests and configuration do, twice; sorted ids.

    `lost` tests pass in `before` or `after` and not in `whole`. `silenced` tests are red in both
    and not red in `whole`: skipped, gone, or passing in a test file that the patch edits.
    """

    __test__ = False  # not a test class

    lost: tuple[str, ...] = ()
    silenced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanExecution:
    """Runs one plan with one suite. Every method raises SandboxError."""

    executor: SuiteExecutor
    plan: Plan
    suite: Suite
    cancel: threading.Event

    def run_all(self) -> PlanRuns:
        """Run everything that the plan asks for, in parallel where that is possible."""
        plan, tasks = self.plan, dict[str, Task]()
        new, job = self._new_tests_job(), self._project_job()
        left = self._remaining_job(job)
        if new is not None:
            tasks["new_before"] = Task(new, plan.new_tests, BASE)
            tasks["new_after"] = Task(new, merged(plan.source, plan.new_tests), SOURCE)
        if job is not None:
            tasks["before"] = Task(job, (), BASE)
            tasks["after"] = Task(job, plan.source, SOURCE)
            if plan.whole is not None and left is not None:
                tasks["whole"] = Task(left, plan.whole, WHOLE)
        runs = dict(zip(tasks, self._run(*tasks.values()), strict=True))
        if job is not None and plan.whole is not None and left is None:
            runs["whole"] = nothing_run("the patch deletes the selected tests")
        return PlanRuns(**runs, by_files=job is not None and bool(job.targets))

    def compare_steadily(self, runs: PlanRuns) -> SteadyComparison | None:
        """Compare `before` and `after`, and run the files that decide once more.

        None where one of them was not run.
        """
        if runs.before is None or runs.after is None:
            return None
        comparison = compare(runs.before, runs.after)
        failing = comparison.newly_failing
        whole = is_whole(runs.before) and is_whole(runs.after)
        if not whole or not failing or len(failing) > _MOST_FLAKES:
            return SteadyComparison(comparison)
        job = self._project_job() if is_command(runs.before) else None
        job = job or self._job_of_tests(failing)
        if job is None:
            return SteadyComparison(comparison)
        base, patched = self._run(
            Task(job, (), BASE, again=True), Task(job, self.plan.source, SOURCE, again=True)
        )
        again = set(compare(base, patched).newly_failing)
        steady = tuple(test for test in failing if test in again)
        return SteadyComparison(
            replace(comparison, newly_failing=steady),
            tuple(test for test in failing if test not in again),
        )

    def run_proof_again(
        self, runs: PlanRuns, new: Sequence[str], passing: Sequence[str]
    ) -> dict[str, SecondRuns]:
        """Run once more, under other conditions, what fails before the patch and passes after it.

        `new` are ids of the tests that the patch brought, `passing` those of the project.
        """
        names = self._other_names() if new else {}
        mine = self._new_tests_job(names) if new else None
        theirs = self._project_again(passing) if passing else None
        if mine and theirs and mine.suite == theirs.suite and theirs.targets:
            targets = (*mine.targets, *reversed(theirs.targets))
            both = replace(theirs, targets=targets, label="what decides, once more")
            return self._second_runs(runs, both, (*new, *passing), names)
        found = dict[str, SecondRuns]()
        if mine is not None:
            found |= self._second_runs(runs, mine, new, names)
        if theirs is not None:
            found |= self._second_runs(runs, theirs, passing)
        return found

    def replay(self, runs: PlanRuns, tests: Sequence[str]) -> Replays:
        """Run Python tests that decide as plain code, on the base and with the patch.

        A replay has all sets of parameters of a test, so that all must pass with the patch.
        """
        plan = self.plan
        failing = {
            test.partition("[")[0]
            for run in (runs.after, runs.new_after)
            for test in (run.outcomes if run else ())
            if run and failed(run, test)
        }
        names = [
            test
            for test in tests
            if test.partition("::")[0].endswith(".py") and test.partition("[")[0] not in failing
        ][:_MOST_REPLAYED]
        job = self._new_tests_job() or self._project_job()
        if not names or job is None or self.executor.python(self.cancel).interpreter is None:
            return Replays()
        files = find_equality_files(plan.source)
        after = merged(plan.source, plan.new_tests)
        controls = _controls(runs, names)
        sides = [
            ReplaySide(plan.new_tests, (*names, *controls), files),
            ReplaySide(after, tuple(names), files),
        ]
        base, patched = self.executor.replay(job, sides, self.cancel)
        return Replays(base, patched, frozenset(controls))

    def _second_runs(
        self,
        runs: PlanRuns,
        job: SuiteJob,
        ids: Sequence[str],
        names: Mapping[str, str] | None = None,
    ) -> dict[str, SecondRuns]:
        """Run a job that has the new tests under other `names`; without, it has none of them."""
        plan, new = self.plan, self.plan.new_tests if names is not None else ()
        names = names or {}
        tests = tuple(replace(c, path=names.get(c.path, c.path)) for c in new)
        wanted = tuple(_renamed(test, names) for test in ids)
        codes = (changed_code(plan.source, in_base=True), changed_code(plan.source))
        trees = [(tests, BASE, codes[0]), (merged(plan.source, tests), SOURCE, codes[1])]
        ordered = runner_of(job.suite).signs
        hung = any(run is not None and not is_whole(run) for run in (runs.before, runs.new_before))
        tasks = [
            Task(job, changes, where, again=True, order=TraceOrder(code, wanted))
            for changes, where, code in (trees[1:] if hung else trees)
        ]
        done = [
            RunAgain(_with_names(run, names), task.order.code, ordered)
            for run, task in zip(self._run(*tasks), tasks, strict=True)
            if task.order is not None
        ]
        base = None if hung else done.pop(0)
        configures = bool(plan.source) and plan.allowed.issuperset(c.path for c in plan.source)
        second = SecondRuns(base, done[0], configures=configures)
        return dict.fromkeys(ids, second)

    def _project_again(self, tests: Sequence[str]) -> SuiteJob | None:
        if runner_of(self.suite).selects:
            return self._job_of_tests(tests)
        return SuiteJob(self.suite, (), self.plan.import_roots, "the test command, once more")

    def _other_names(self) -> dict[str, str]:
        """Return another path for each new test file that no other new file mentions."""
        files = {c.path: c.after or b"" for c in self.plan.new_tests}
        found = {}
        for path in self.plan.new_paths:
            stem = PurePosixPath(path).stem.encode()
            other = other_path(path, files[path])
            others = (data for one, data in files.items() if one != path)
            if other not in files and not any(stem in data for data in others):
                found[path] = other
        return found

    def run_outdated(self, tests: Sequence[str]) -> OutdatedRuns | None:
        """Record what the project's `tests` execute on the base and with the patch.

        None where there is no such run.
        """
        job, source = self._project_job(), self.plan.source
        if job is None:
            return None
        codes = (changed_code(source, in_base=True), changed_code(source))
        tasks = [
            Task(job, changes, where, again=True, order=TraceOrder(code, tuple(tests)))
            for changes, where, code in (((), BASE, codes[0]), (source, SOURCE, codes[1]))
        ]
        done = self._run(*tasks)
        ordered = runner_of(job.suite).signs
        return OutdatedRuns(*(RunAgain(done[i], codes[i], ordered) for i in range(2)))

    def find_test_edits(
        self, runs: PlanRuns, steady: SteadyComparison | None, lucky: Sequence[str]
    ) -> TestEdits:
        """Compare `whole` with `before` and `after`, and run what decides once more.

        `lucky` tests passed in `after` and not once more.
        """
        plan, whole = self.plan, runs.whole
        if steady is None or whole is None or plan.whole is None:
            return TestEdits()
        lost, silenced = _lost(runs, whole, steady, lucky), _silenced(plan, runs, whole)
        found = (*lost, *silenced)
        if not found or len(found) > _MOST_FLAKES or not is_whole(whole):
            return TestEdits(lost, silenced)
        gone = {change.path for change in plan.whole if change.after is None}
        left = [test for test in found if test.partition("::")[0] not in gone]
        job = self._job_of_tests(left) if left else None
        if job is None:
            return TestEdits(lost, silenced)
        (again,) = self._run(Task(job, plan.whole, WHOLE, again=True))
        return TestEdits(
            tuple(test for test in lost if not _passes(again, test)),
            tuple(test for test in silenced if not failed(again, test)),
        )

    # ------------------------------------------------------------------------------------- jobs

    def _run(self, *tasks: Task) -> list[TestRun]:
        return self.executor.run(tasks, self.cancel)

    def _new_tests_job(self, names: Mapping[str, str] | None = None) -> SuiteJob | None:
        """Return the job of the reply's tests, with a runner that can run single files.

        `names` are other paths under which they are run once more.
        """
        plan, suite = self.plan, self.suite
        if not plan.new_paths:
            return None
        if not runner_of(suite).selects:
            suite = self.executor.suite_of_files(plan.new_paths, self.cancel)
        paths, label = plan.new_paths, "the new tests"
        if names is not None:
            paths, label = tuple(names.get(path, path) for path in paths), f"{label}, once more"
        return _runnable(self.executor.job(suite, paths, plan.import_roots, label))

    def _project_job(self) -> SuiteJob | None:
        plan, suite = self.plan, self.suite
        if not runner_of(suite).selects:
            return SuiteJob(suite, (), plan.import_roots, "the test command")
        paths = [test.path for test in plan.selected]
        label = number(len(paths), "test file")
        return _runnable(self.executor.job(suite, paths, plan.import_roots, label))

    def _remaining_job(self, job: SuiteJob | None) -> SuiteJob | None:
        """Return the job without the files that the whole patch deletes."""
        if job is None or not job.targets:
            return job
        gone = {change.path for change in self.plan.whole or () if change.after is None}
        paths = [test.path for test in self.plan.selected if test.path not in gone]
        return _runnable(self.executor.job(job.suite, paths, job.import_roots, job.label))

    def _job_of_tests(self, tests: Sequence[str]) -> SuiteJob | None:
        """Return the job of the files of some tests, None if the suite cannot name files."""
        if not runner_of(self.suite).selects:
            return None
        paths = sorted({test.partition("::")[0] for test in tests})
        roots = self.plan.import_roots
        return _runnable(self.executor.job(self.suite, paths, roots, "what decides, once more"))


def _controls(runs: PlanRuns, tests: Sequence[str]) -> tuple[str, ...]:
    """Return tests that pass on both sides, those nearest to the deciding tests first."""
    if runs.before is None or runs.after is None:
        return ()
    files = {test.partition("::")[0] for test in tests}
    folders = {path.rpartition("/")[0] for path in files}

    def distance(test: str) -> tuple[bool, bool, bool, str]:
        path = test.partition("::")[0]
        return path not in files, path.rpartition("/")[0] not in folders, "[" in test, test

    passing = (t for t in passing_in_both(runs.before, runs.after) if ".py::" in t)
    return tuple(sorted(passing, key=distance)[:_MOST_CONTROLS])


def _runnable(job: SuiteJob) -> SuiteJob | None:
    return job if job.targets else None


def _lost(
    runs: PlanRuns, whole: TestRun, steady: SteadyComparison, lucky: Sequence[str]
) -> tuple[str, ...]:
    """Return the tests that pass before or after and not in the whole tree.

    Tests that fail newly in `after` are left out because they are reported as that; so are those
    that passed in `after` by luck.
    """
    known = [run for run in (runs.before, runs.after) if run is not None]
    found = {test for run in known for test in compare(run, whole).newly_failing}
    told = set(steady.comparison.newly_failing)
    told.update(test for test in lucky if failed(whole, test))
    passed = (t for t in found - told if any(_passes(run, t) for run in known))
    return tuple(sorted(passed))


def _silenced(plan: Plan, runs: PlanRuns, whole: TestRun) -> tuple[str, ...]:
    before, after = runs.before, runs.after
    assert before is not None
    assert after is not None
    red = [test for test in sorted(before.outcomes) if failed(before, test)]
    return tuple(
        test
        for test in red
        if failed(after, test) and not failed(whole, test) and _by_its_test(plan, whole, test)
    )


def _by_its_test(plan: Plan, whole: TestRun, test: str) -> bool:
    """Whether a test is not red in the whole tree because it was changed or taken away.

    A module that could not be collected before is not silenced if the whole tree collects it. A
    test without a file in its id passes because of the edited tests, if there are any: its source
    is the same in `after`.
    """
    collected = any(other.startswith(f"{test}::") for other in whole.outcomes)
    if not _passes(whole, test) and not collected:
        return test in whole.outcomes or is_whole(whole)
    path, _, name = test.partition("::")
    return path in plan.edited_tests or (bool(plan.edited_tests) and not name and not collected)


def _renamed(test: str, names: Mapping[str, str]) -> str:
    """Return the id under the other name of its file. Cargo writes the file's stem before it."""
    place, colons, name = test.partition("::")
    stem, _, path = place.partition(" ")
    if place not in names and path in names and stem == PurePosixPath(path).stem:
        return f"{PurePosixPath(names[path]).stem} {names[path]}{colons}{name}"
    return f"{names.get(place, place)}{colons}{name}"


def _with_names(run: TestRun, names: Mapping[str, str]) -> TestRun:
    """Return a run of files under other names with the ids that they have under their own."""
    own = {other: path for path, other in names.items()}
    return replace(
        run,
        outcomes={_renamed(test, own): outcome for test, outcome in run.outcomes.items()},
        failures={_renamed(test, own): text for test, text in run.failures.items()},
        executed={_renamed(test, own): found for test, found in run.executed.items()},
    )


def _passes(run: TestRun, test: str) -> bool:
    return run.outcomes.get(test) is Outcome.PASSED
