"""What is run for one patch and on which trees, and how it is carried out. Synchronous.

The runs of `PlanRuns` are A, B, C, C' and D of `docs/reference/verdict.md`. `before` runs once for
all attempts, and is kept on disk (`agent.verify.trees`). No tree has the excluded changes of a
patch (`agent.verify.steering`). Tests that decide are run once more: one that gives different
results is flaky and decides nothing. What passes newly is repeated under other conditions
(`Task.deciding`), on the base and with the patch, and then replayed as plain code.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from agent.patching import check_syntax
from agent.types import (
    AppliedPatch,
    FileChange,
    ReproductionTest,
    SelectedTest,
    TestRun,
)
from agent.types.protocols import Snapshot
from agent.verify.executor import SuiteExecutor, SuiteJob, Task
from agent.verify.judging.compare import (
    Comparison,
    compare,
    failed,
    hit_a_limit,
    is_command,
    is_whole,
    passes,
    passing_in_both,
)
from agent.verify.judging.replays import Replays, SecondRuns
from agent.verify.judging.wording import number
from agent.verify.path_rules import (
    free_path,
    import_root,
    is_test_file,
    other_path,
    rename_class,
    unsafe,
)
from agent.verify.reports import nothing_run
from agent.verify.runners import runner_of, selects
from agent.verify.runners.base import Suite, below, joined
from agent.verify.steering import ChangeGroups, group_changes

# Limit of new test files of a patch that are run in addition to the reproduction test.
_MOST_NEW_FILES = 4

# Names of the trees, for progress events.
BASE = "the base"
SOURCE = "the patched tree"
WHOLE = "the tree with the patch's own tests"

NOT_RUN = "the reproduction test was not run: "
"""How the note begins that says why a reply's test is in no run."""

# A replay takes up to a second; a fix that holds in these tests holds.
_MOST_REPLAYED = 6

# Passing tests that show whether replays work in a project at all.
_MOST_CONTROLS = 3

# More tests than this do not fail by chance at once, and running them again costs time.
_MOST_FLAKES = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """The trees and tests of the runs for one patch.

    `whole` is the whole patch, None unless it changes existing tests or their configuration.
    `new_tests` are the reply's tests and their helpers, and `new_paths` the files of them to run;
    `earlier_tests` are those of earlier replies.
    """

    selected: tuple[SelectedTest, ...]
    groups: ChangeGroups
    whole: tuple[FileChange, ...] | None
    new_tests: tuple[FileChange, ...]
    new_paths: tuple[str, ...]
    import_roots: tuple[str, ...]
    notes: tuple[str, ...]
    edited_tests: tuple[str, ...]
    only_tests: bool
    earlier_tests: tuple[str, ...]


def make_plan(
    snapshot: Snapshot,
    patch: AppliedPatch,
    test: ReproductionTest | None,
    selected: Sequence[SelectedTest],
    *,
    earlier: Sequence[ReproductionTest] = (),
    own_tests: bool = True,
    allow: Collection[str] = (),
    installed: Collection[str] = (),
    issue: str = "",
) -> Plan:
    """Plan the runs for one patch, the reply's test and `earlier` ones; `own_tests`: run these."""
    roots = import_roots(snapshot, patch.changes)
    groups = group_changes(
        patch.changes, snapshot, roots, allow=allow, installed=installed, issue=issue
    )
    notes = _notes_about(groups)
    edited = tuple(c.path for c in groups.tests if c.before is not None)
    brought = _reproductions(snapshot, patch, (test, *earlier), notes) if own_tests else []
    paths = [change.path for change in brought]
    changed = [c.path for c in groups.tests if own_tests and c.after is not None]
    files = [path for path in changed if is_test_file(path)][:_MOST_NEW_FILES]
    if any(not (is_test_file(p) or p.endswith("/__init__.py")) for p in changed):
        files += [t.path for t in selected if t.path not in changed]  # they may share it
    new_paths = (*(path for path in files if path not in paths), *paths)
    theirs = {_content(one) for one in earlier} - ({_content(test)} if test else set())
    return Plan(
        selected=tuple(selected),
        groups=groups,
        whole=groups.whole if groups.configuration or edited else None,
        new_tests=merged(groups.tests, brought) if new_paths else (),
        new_paths=new_paths,
        import_roots=roots,
        notes=tuple(notes),
        edited_tests=edited,
        only_tests=bool(patch.changes) and not (groups.source or groups.excluded),
        earlier_tests=tuple(change.path for change in brought if change.after in theirs),
    )


def import_roots(snapshot: Snapshot, changes: Sequence[FileChange]) -> tuple[str, ...]:
    """Return the import path: the scope, its `src`, and the folders that hold an edited package.

    A folder that holds a module named like one of the standard library is left out, because no
    program would start with it on the path. Folders of namespace packages may be like that.
    """
    paths = [change.path for change in changes if change.path.endswith(".py")]
    packaged = (p for p in paths if snapshot.exists(f"{p.rpartition('/')[0]}/__init__.py"))
    roots = {import_root(path, snapshot.exists) for path in packaged}
    scope = snapshot.scope or "."
    sources = joined(scope, "src")
    if any(path.startswith(f"{sources}/") for path in snapshot.files):
        roots.add(sources)
    return (scope, *(root for root in sorted(roots - {scope}) if not _hides(snapshot, root)))


def _hides(snapshot: Snapshot, root: str) -> bool:
    inside = (below(root, path) for path in snapshot.files if path.endswith(".py"))
    names = {path.partition("/")[0].removesuffix(".py") for path in inside if path}
    return not names.isdisjoint(sys.stdlib_module_names)


def merged(changes: Sequence[FileChange], more: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Merge the changes, sorted by path; where both change a file, `more` wins."""
    by_path = {change.path: change for change in (*changes, *more)}
    return tuple(by_path[path] for path in sorted(by_path))


def _notes_about(groups: ChangeGroups) -> list[str]:
    touched = [change for change in groups.tests if change.before is not None]
    lists = (
        (groups.configuration, "tests were run with {} as on the base"),
        (groups.excluded, "left out of every run: {} would run by itself"),
        (touched, "tests were run with {} as on the base, then as changed"),
    )
    notes = [words.format(", ".join(c.path for c in some)) for some, words in lists if some]
    allowed = groups.lifted.items()
    return notes + [f"{path} is as in the patch, as --allow says: {why}" for path, why in allowed]


def _reproductions(
    snapshot: Snapshot,
    patch: AppliedPatch,
    tests: Sequence[ReproductionTest | None],
    notes: list[str],
) -> list[FileChange]:
    """Return the tests as new files under free names, without repeats and unusable ones."""
    brought: list[FileChange] = []

    def is_taken(path: str) -> bool:
        return snapshot.exists(path) or any(c.path == path for c in (*patch.changes, *brought))

    for test in tests:
        content = _content(test) if test is not None else b""
        if test is None or not content.strip() or content in {c.after for c in brought}:
            continue
        carried = [c for c in patch.changes if c.path == test.path and c.after == content]
        path = free_path(test.path, is_taken)
        written = FileChange(path, None, rename_class(content, test.path, path))
        refusal = unsafe(test.path)
        broken = () if refusal or carried else check_syntax([written])
        if refusal:
            notes.append(f"{NOT_RUN}{test.path!r}: {refusal}")
        elif broken:
            notes.append(f"{NOT_RUN}line {broken[0].line}: {broken[0].message}")
        else:
            brought.extend(carried or [written])
            if path != test.path and not carried:
                notes.append(f"{test.path} exists; the reproduction test was run as {path}")
    return brought


def _content(test: ReproductionTest) -> bytes:
    return test.content.encode("utf-8", "surrogateescape")


# ------------------------------------------------------------------------------------- its runs


@dataclass(frozen=True, slots=True)
class PlanRuns:
    """The runs of a plan; None if not run. `by_files`: of the plan's test files, not a command."""

    before: TestRun | None = None
    new_before: TestRun | None = None
    after: TestRun | None = None
    new_after: TestRun | None = None
    whole: TestRun | None = None
    by_files: bool = False


@dataclass(frozen=True, slots=True)
class PlanExecution:
    """Runs one plan with one suite. Every method raises SandboxError."""

    executor: SuiteExecutor
    plan: Plan
    suite: Suite
    cancel: threading.Event

    def run_all(self) -> PlanRuns:
        """Run everything that the plan asks for, in parallel where that is possible."""
        plan, source = self.plan, self.plan.groups.source
        job, tests = self._project_job(), plan.new_tests or plan.groups.tests
        by_files = job is not None and bool(job.targets)
        new = self._new_tests_job() or (None if by_files or not tests else job)
        tasks = {"new_before": Task(new, tests, BASE)} if new else {}
        tasks |= {"before": Task(job, (), BASE)} if job else {}
        runs = self._run_named(tasks)
        before = runs.get("before")
        if before and hit_a_limit(before) and not before.outcomes:
            return PlanRuns(before=before, by_files=by_files)
        tasks = {"new_after": Task(new, merged(source, tests), SOURCE)} if new else {}
        tasks |= {"after": Task(job, source, SOURCE)} if job else {}
        if job and plan.whole is not None:
            left = self._project_job({c.path for c in plan.whole if c.after is None})
            tasks |= {"whole": Task(left, plan.whole, WHOLE)} if left else {}
            runs["whole"] = nothing_run("the patch deletes the selected tests")
        return PlanRuns(**{**runs, **self._run_named(tasks)}, by_files=by_files)

    def compare_steadily(self, runs: PlanRuns) -> tuple[Comparison | None, Sequence[str]]:
        """Compare `before` and `after`; None where one was not run.

        What fails newly is run once more. What fails only once is flaky: it is returned apart.
        """
        before, after, job = runs.before, runs.after, None
        if before is None or after is None:
            return None, ()
        comparison = compare(before, after)
        failing = comparison.newly_failing
        if is_whole(before) and is_whole(after) and 0 < len(failing) <= _MOST_FLAKES:
            job = self._project_job() if is_command(before) else self._job_of_tests(failing)
        if job is None:
            return comparison, ()
        source = self.plan.groups.source
        sides = Task(job, (), BASE, again=True), Task(job, source, SOURCE, again=True)
        again = compare(*self._run(*sides)).newly_failing
        steady = tuple(test for test in failing if test in again)
        flaky = [test for test in failing if test not in again]
        return replace(comparison, newly_failing=steady), flaky

    def run_proof_again(
        self, runs: PlanRuns, new: Sequence[str], passing: Sequence[str]
    ) -> dict[str, SecondRuns]:
        """Run once more, under other conditions, what fails before and passes after the patch."""
        names = self._other_names() if new else {}
        mine = self._new_tests_job(names) if new else None
        theirs = None
        if passing:
            theirs = self._job_of_tests(passing) if selects(self.suite) else self._project_job()
        if mine and theirs and mine.suite == theirs.suite and theirs.targets:
            targets = tuple(dict.fromkeys((*mine.targets, *reversed(theirs.targets))))
            both = replace(theirs, targets=targets, label="what decides, once more")
            return self._second_runs(runs, both, (*new, *passing), names)
        second = self._second_runs(runs, mine, new, names) if mine else {}
        return second | (self._second_runs(runs, theirs, passing) if theirs else {})

    def replay(self, runs: PlanRuns, tests: Sequence[str]) -> Replays:
        """Run tests that decide as plain code, on the base and with the patch."""
        plan, patched = self.plan, (run for run in (runs.after, runs.new_after) if run)
        failing = {t.partition("[")[0] for run in patched for t in run.outcomes if failed(run, t)}
        job = self._new_tests_job() or self._project_job()
        kinds = runner_of(job.suite).replayed if job is not None else ()
        steady = (test for test in tests if test.partition("[")[0] not in failing)
        names = [test for test in steady if _file(test).endswith(kinds)][:_MOST_REPLAYED]
        if not names or job is None:
            return Replays()
        if ".py" in kinds and self.executor.python(self.cancel).interpreter is None:
            return Replays()
        controls = _controls(runs, names)
        sides = [
            (plan.new_tests, [*names, *controls]),
            (merged(plan.groups.source, plan.new_tests), names),
        ]
        before, after = self.executor.replay(job, sides, self.cancel)
        return Replays(before, after, frozenset(controls))

    def find_test_edits(
        self, runs: PlanRuns, steady: Comparison | None, lucky: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return what the patch's own changes to tests and configuration do, twice.

        Tests that pass in `before` or `after` and not in `whole`, and those that are red in both
        and not red in `whole`: skipped, gone, or passing in a test file that the patch edits.
        """
        plan, whole = self.plan, runs.whole
        if steady is None or whole is None or plan.whole is None:
            return (), ()
        lost, silenced = _lost(runs, whole, steady, lucky), _silenced(plan, runs, whole)
        deleted = {change.path for change in plan.whole if change.after is None}
        left = [test for test in (*lost, *silenced) if _file(test) not in deleted]
        few = len(lost) + len(silenced) <= _MOST_FLAKES and is_whole(whole)
        job = self._job_of_tests(left) if few else None
        if job is None:
            return lost, silenced
        (again,) = self._run(Task(job, plan.whole, WHOLE, again=True))
        return (
            [test for test in lost if not passes(again, test)],
            [test for test in silenced if not failed(again, test)],
        )

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
        tests = tuple(_under_another_name(c, names) if c.path in names else c for c in new)
        hung = any(run is not None and not is_whole(run) for run in (runs.before, runs.new_before))
        trees = [*([] if hung else [(tests, BASE)]), (merged(plan.groups.source, tests), SOURCE)]
        deciding = tuple(_renamed(test, names) for test in ids)
        tasks = (Task(job, tree, where, again=True, deciding=deciding) for tree, where in trees)
        *base, patched = (_with_names(run, names) for run in self._run(*tasks))
        return dict.fromkeys(ids, SecondRuns(base[0] if base else None, patched))

    def _other_names(self) -> dict[str, str]:
        """Return another path for each new test file that no other new file mentions."""
        files = {c.path: c.after or b"" for c in self.plan.new_tests}
        names = {}
        for change in self.plan.new_tests:
            stem = PurePosixPath(change.path).stem.encode()
            other = other_path(change.path, files[change.path])
            mentioned = any(stem in data for path, data in files.items() if path != change.path)
            is_new = change.before is None and change.path in self.plan.new_paths
            if is_new and other not in files and not mentioned:
                names[change.path] = other
        return names

    def _run(self, *tasks: Task) -> list[TestRun]:
        return self.executor.run(tasks, self.cancel)

    def _run_named(self, tasks: Mapping[str, Task]) -> dict[str, TestRun]:
        return dict(zip(tasks, self._run(*tasks.values()), strict=True))

    def _job(self, suite: Suite, paths: Sequence[str], label: str) -> SuiteJob | None:
        """Return the job of test files, None where the suite's runner can run none of them."""
        job = self.executor.job(suite, paths, self.plan.import_roots, label)
        return job if job.targets else None

    def _new_tests_job(self, names: Mapping[str, str] | None = None) -> SuiteJob | None:
        """Return the job of the reply's tests, with a runner that can run single files."""
        plan, suite = self.plan, self.suite
        if not plan.new_paths:
            return None
        if not runner_of(suite).selects:
            suite = self.executor.suite_of_files(plan.new_paths, self.cancel)
        paths = [(names or {}).get(path, path) for path in plan.new_paths]
        return self._job(suite, paths, "the new tests")

    def _project_job(self, without: Collection[str] = ()) -> SuiteJob | None:
        if not selects(self.suite):
            return SuiteJob(self.suite, (), self.plan.import_roots, "the test command")
        selected = [test.path for test in self.plan.selected]
        paths = [path for path in selected if path not in without]
        return self._job(self.suite, paths, number(len(selected), "test file"))

    def _job_of_tests(self, tests: Sequence[str]) -> SuiteJob | None:
        """Return the job of the files of some tests, None if the suite cannot name files."""
        files = sorted(set(map(_file, tests))) if selects(self.suite) else ()
        return self._job(self.suite, files, "what decides, once more") if files else None


def _file(test: str) -> str:
    return test.partition("::")[0]


def _controls(runs: PlanRuns, tests: Sequence[str]) -> tuple[str, ...]:
    """Return tests that pass on both sides, those nearest to the deciding tests first."""
    if runs.before is None or runs.after is None:
        return ()
    files = set(map(_file, tests))
    folders = {path.rpartition("/")[0] for path in files}

    def distance(test: str) -> tuple[bool, bool, bool, str]:
        path = _file(test)
        return path not in files, path.rpartition("/")[0] not in folders, "[" in test, test

    kind = PurePosixPath(_file(tests[0])).suffix
    passing = (t for t in passing_in_both(runs.before, runs.after) if f"{kind}::" in t)
    return tuple(sorted(passing, key=distance)[:_MOST_CONTROLS])


def _lost(
    runs: PlanRuns, whole: TestRun, steady: Comparison, lucky: Sequence[str]
) -> tuple[str, ...]:
    """Return the tests that pass before or after and not in the whole tree."""
    earlier = [run for run in (runs.before, runs.after) if run is not None]
    reported = {*steady.newly_failing, *(test for test in lucky if failed(whole, test))}
    failing = (t for run in earlier for t in compare(run, whole).newly_failing if passes(run, t))
    return tuple(sorted({*failing} - reported))


def _silenced(plan: Plan, runs: PlanRuns, whole: TestRun) -> tuple[str, ...]:
    before, after = runs.before, runs.after
    if before is None or after is None:
        return ()
    red = [t for t in sorted(before.outcomes) if failed(before, t) and failed(after, t)]
    return tuple(t for t in red if not failed(whole, t) and _by_its_test(plan, whole, t))


def _by_its_test(plan: Plan, whole: TestRun, test: str) -> bool:
    """Whether a test is not red in the whole tree because it was changed or taken away."""
    collected = any(other.startswith(f"{test}::") for other in whole.outcomes)
    if not passes(whole, test) and not collected:
        return test in whole.outcomes or is_whole(whole)
    path, _, name = test.partition("::")
    return path in plan.edited_tests or (bool(plan.edited_tests) and not name and not collected)


def _under_another_name(change: FileChange, names: Mapping[str, str]) -> FileChange:
    other = names[change.path]
    return replace(change, path=other, after=rename_class(change.after or b"", change.path, other))


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
    )
