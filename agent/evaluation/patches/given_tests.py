"""Run the given tests of one instance and judge the runs, by the rules of SWE-bench. Synchronous.

Passed, or failed as expected (xfail), is success; skipped, absent, red or broken is failure. An id
that no run knows is looked up by the shorter names of the harness too.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agent.datasets import ScoringInstance
from agent.evaluation.patches.report import GivenIds, GivenStatus
from agent.repository import Patched, merged
from agent.types import FileChange, Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify import (
    Replays,
    Suite,
    SuiteExecutor,
    SuiteJob,
    Task,
    Tools,
    collection_error,
    doubtful,
    executed,
    first_failure,
    how_it_ended,
    import_roots,
    is_test_file,
    is_whole,
    nothing_run,
    number,
    runner_of,
    suspicion,
)

# Tests that are replayed: each takes up to a second.
_MOST_REPLAYED = 6

_PARAMETER = re.compile(r"(?s)(.*?)\[(.*)\]$")


class Results:
    """Looks up tests of a run by the names that a data set gives them."""

    def __init__(self, run: TestRun, test_id: Callable[[str], str] = str) -> None:
        """`test_id` converts the name of a runner to the id that the run reports."""
        self._run = run
        self._test_id = test_id
        self._expected = frozenset(run.expected_failures)
        self._others: dict[str, list[str]] = defaultdict(list)
        for test in run.outcomes:
            for name in _other_names(test):
                self._others[name].append(test)

    def succeeds(self, given: str) -> bool:
        """Return whether the test, or every test of that name, succeeds."""
        tests = self._tests(given)
        return bool(tests) and all(map(self._success, tests))

    def knows(self, given: str) -> bool:
        """Return whether the run mentions a test, also in an import error of its module."""
        if self._tests(given):
            return True
        name = self._test_id(given)
        return name in self._run.failures or collection_error(self._run, name) is not None

    def _tests(self, given: str) -> Sequence[str]:
        name = self._test_id(given)
        for each in (name, given):
            if each in self._run.outcomes:
                return (each,)
        return self._others.get(name) or self._others.get(given) or ()

    def _success(self, test: str) -> bool:
        outcome = self._run.outcomes[test]
        expected = outcome is Outcome.SKIPPED and test in self._expected
        return outcome is Outcome.PASSED or expected

    def split(self, given: Sequence[str]) -> GivenIds:
        """Return the given ids by success."""
        succeeds = {test: self.succeeds(test) for test in given}
        return GivenIds(
            success=tuple(test for test in given if succeeds[test]),
            failure=tuple(test for test in given if not succeeds[test]),
        )


def _other_names(test: str) -> Iterable[str]:
    """Return the harness's other names of a test: cut, shortened, or the bare name."""
    names = {test.split(maxsplit=1)[0] if test.strip() else test, test.rpartition("::")[2]}
    parameter = _PARAMETER.match(test)
    if parameter:
        value = parameter[2]
        if value.startswith("/") and not value.startswith("//") and "*" not in value:
            names.add(f"{parameter[1]}[/{value.rpartition('/')[2]}]")
    return sorted(names - {test})


# Number of output lines in a message: enough for the error and the summary.
_LAST_LINES = 4

_BASE, _GOLD, _PATCHED = "the base", "the base with the row's patch", "the patched tree"


@dataclass(frozen=True, slots=True)
class Trees:
    """The changes to the base commit. `gold` is None if the row has no patch that applies.

    `exists` says whether the commit has a path.
    """

    tests: Patched
    patch: Patched
    gold: Patched | None
    exists: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Findings:
    """The given tests by success, and `absent` ids that the run does not know under any name.

    `blame` says why nothing could run, if not due to the prediction. `log` has the ends of outputs.
    """

    tests_status: GivenStatus
    absent: tuple[str, ...]
    reason: str
    ended: str
    runner: str
    suspicion: str = ""
    notes: tuple[str, ...] = ()
    blame: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class GivenTests:
    """Runs the given tests of a row with the prediction, and on other trees if needed."""

    executor: SuiteExecutor
    snapshot: Snapshot
    suite: Suite
    tools: Tools
    case: ScoringInstance
    trees: Trees
    cancel: threading.Event
    runs: dict[str, TestRun] = field(default_factory=dict)

    def findings(self) -> Findings:
        """Run and judge the tests. Raises SandboxError."""
        run = self._run(_PATCHED, self.trees.patch.changes)
        results = Results(run, self._test_id)
        fixed = tuple(dict.fromkeys(self.case.fail_to_pass))
        passing = tuple(dict.fromkeys(self.case.pass_to_pass))
        status = GivenStatus(FAIL_TO_PASS=results.split(fixed), PASS_TO_PASS=results.split(passing))
        absent = tuple(test for test in (*fixed, *passing) if not results.knows(test))
        blame = "" if executed(run) else self._blame()
        doubt = self._doubt(run) if status.resolved else ""
        python = self.tools.interpreter
        by = f" by {python.path} (Python {python.version})" if python else ""
        return Findings(
            tests_status=status,
            absent=absent,
            reason=_reason(status, run, doubt),
            ended=run.ended,
            runner=f"{self.suite.runner}: {self.suite.why}{by}",
            suspicion=doubt,
            blame=blame,
            log="\n".join(_logged(where, run) for where, run in self.runs.items()),
        )

    def _test_id(self, name: str) -> str:
        """Return the id that a run reports for a name of the test runner."""
        return runner_of(self.suite).test_id(self.suite, name)

    def _files(self) -> list[str]:
        """Return the test files of the given ids, and those that the test patch changes."""
        given = (*self.case.fail_to_pass, *self.case.pass_to_pass)
        named = (self._test_id(test).partition("::") for test in given)
        paths = {path for path, separator, _ in named if separator}
        tests = self.trees.tests.changes
        return sorted(
            paths | {c.path for c in tests if c.after is not None and is_test_file(c.path)}
        )

    def _run(self, where: str, changes: Sequence[FileChange]) -> TestRun:
        """Run each tree once, with those of the test files that it has."""
        if where not in self.runs:
            self.runs[where] = self._run_files(merged(changes, self.trees.tests.changes), where)
        return self.runs[where]

    def _run_files(self, changes: tuple[FileChange, ...], where: str) -> TestRun:
        roots = import_roots(self.snapshot, changes)
        job = SuiteJob(self.suite, (), roots, "the test command")
        if runner_of(self.suite).selects:
            changed = {change.path: change.after is not None for change in changes}
            files = [f for f in self._files() if changed.get(f, self.trees.exists(f))]
            job = self.executor.job(self.suite, files, roots, number(len(files), "test file"))
            if not job.targets:
                return nothing_run("none of the given tests' files exists")
        (run,) = self.executor.run([Task(job, changes, where, again=True)], self.cancel)
        return run

    def _blame(self) -> str:
        """Return why nothing could run, if that is not due to the prediction."""
        gold = self.trees.gold
        if gold is None:
            tree, other = "without the prediction", self._run(_BASE, ())
        else:
            same = gold.changes == self.trees.patch.changes
            other = self._run(_PATCHED if same else _GOLD, gold.changes)
            tree = "with the row's own patch"
        if executed(other):
            return ""
        return f"no test can be run {tree} either: {how_it_ended(other)}; {_last_output(other)}"

    def _doubt(self, run: TestRun) -> str:
        """Return why a green run is not credible, or ""."""
        if doubtful(run) or run.channels.traces:
            doubt = suspicion(self._run(_BASE, ()), run)
            if doubt:
                return doubt
        names = tuple(n for n in map(self._test_id, self.case.fail_to_pass) if ".py::" in n)
        names = names[:_MOST_REPLAYED]
        if not names or self.tools.interpreter is None:
            return ""
        source, tests = self.trees.patch.changes, self.trees.tests.changes
        job = SuiteJob(self.suite, (), import_roots(self.snapshot, source))
        sides = [(changes, names) for changes in (tests, merged(source, tests))]
        base, patched = self.executor.replay(job, sides, self.cancel)
        replays = Replays(base, patched)
        return "; ".join(sorted({replays.why_loose(name) for name in names} - {""}))


def _logged(where: str, run: TestRun) -> str:
    ended = f"{run.ended} (exit code {run.exit_code}) after {run.seconds:.1f} s"
    return f"==> {where}\n$ {shlex.join(run.command)}\n{run.output_tail}\n==> {ended}\n"


def _reason(status: GivenStatus, run: TestRun, doubt: str) -> str:
    parts = []
    for name, tests in (
        ("FAIL_TO_PASS", status.FAIL_TO_PASS),
        ("PASS_TO_PASS", status.PASS_TO_PASS),
    ):
        total = len(tests.success) + len(tests.failure)
        if total:
            parts.append(f"{len(tests.success)} of {total} {name} pass")
    if not executed(run):
        parts.append(f"no test ran: {how_it_ended(run)}; {_last_output(run)}")
    elif not is_whole(run):
        parts.append(how_it_ended(run))
    if doubt:
        parts.append(doubt)
    failing = (*status.FAIL_TO_PASS.failure, *status.PASS_TO_PASS.failure)
    if any(run.failures.get(test) for test in failing):
        parts.append(f"first failure: {first_failure(run, failing)}")
    return "; ".join(parts)


def _last_output(run: TestRun) -> str:
    lines = [line.strip() for line in run.output_tail.splitlines() if line.strip("=_- \t")]
    return " / ".join(lines[-_LAST_LINES:])
