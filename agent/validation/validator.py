"""The validator of the pipeline: syntax, then tests before and after, then the verdict."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from agent.errors import SandboxUnavailable
from agent.events import Event
from agent.patching.syntax import check_syntax, doubtful
from agent.protocols import Reporter, Snapshot
from agent.repository.languages import language_of
from agent.types import (
    AppliedPatch,
    FileChange,
    Problem,
    ReproductionTest,
    TestRun,
    ValidationReport,
    Verdict,
)
from agent.validation.bench import Bench, Job, ValidationOptions
from agent.validation.compare import Comparison, compare, is_whole
from agent.validation.interpreter import Tools
from agent.validation.layout import is_test_file, steers_tests
from agent.validation.plan import Plan, import_roots, make_plan, over
from agent.validation.reproduction import Standing, judge
from agent.validation.runners import is_this_python, split_command
from agent.validation.selection import select_tests
from agent.validation.syntax_only import NullValidator, broken_syntax, nothing_run
from agent.validation.verdict import Evidence, decide
from agent.validation.wording import how_it_ended, listed, number
from sandbox.types import Sandbox, SandboxError

__all__ = ["NullValidator", "SandboxValidator", "ValidationOptions"]

# More tests than this do not fail by chance at once; running them again would only cost time.
_MOST_FLAKES = 20

_NONE_TIED = "no test file is tied to the change; name some"

_T = TypeVar("_T")

_BASE, _PATCHED = "the base", "the patched tree"


def quiet(event: Event, /) -> None:
    """The reporter of those who want no progress."""


class SandboxValidator:
    """Runs tests in `sandbox`, on private copies of `snapshot`. Close it to remove the copies.

    One validation at a time; concurrent calls wait. Raises SandboxUnavailable when the sandbox
    itself fails and ConfigurationError for an interpreter or command that cannot be used.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        problem: Problem,
        sandbox: Sandbox,
        options: ValidationOptions | None = None,
        reporter: Reporter = quiet,
    ) -> None:
        self._snapshot = snapshot
        self._problem = problem
        self._options = options or ValidationOptions()
        self._command = split_command(self._options.test_cmd) if self._options.test_cmd else ()
        self._backend = sandbox.name
        self._bench = Bench(snapshot, sandbox, self._options, reporter)
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Remove the private copies. Safe to call twice."""
        async with self._lock:
            await asyncio.to_thread(self._bench.close)

    async def validate(
        self, patch: AppliedPatch, test: ReproductionTest | None
    ) -> ValidationReport:
        """Check a patch, with the reply's reproduction test where there is one."""
        started = time.perf_counter()
        problems = check_syntax(patch.changes)
        if problems:
            return broken_syntax(problems, self._backend, time.perf_counter() - started)
        report = await self._in_thread(lambda cancel: self._validate(patch, test, cancel))
        return replace(report, seconds=time.perf_counter() - started)

    async def run_tests(self, patch: AppliedPatch | None, paths: Sequence[str]) -> TestRun:
        """Run test files on the patched tree (None: the base).

        Paths that are not there are left out; no paths at all means the tests that are tied to the
        patch, or to the problem where there is no patch.
        """
        changes = tuple(c for c in (patch.changes if patch else ()) if not steers_tests(c.path))
        asked = tuple(paths) or self._tied_to(changes)
        wanted = tuple(dict.fromkeys(path for path in asked if self._is_there(path, patch)))
        if not wanted:
            return nothing_run(f"no such test file: {listed(asked)}" if asked else _NONE_TIED)
        roots = import_roots(self._snapshot, changes)
        job = Job(wanted, import_roots=roots, label=listed(wanted))
        return await self._in_thread(
            lambda cancel: self._bench.run(job, changes, cancel, where=_PATCHED if patch else _BASE)
        )

    # ------------------------------------------------------------------------- inside the thread

    def _validate(
        self, patch: AppliedPatch, test: ReproductionTest | None, cancel: threading.Event
    ) -> ValidationReport:
        tools = self._bench.tools(cancel)
        problems = self._bench.python_errors(_to_ask(patch, tools), patch.changes, cancel)
        if problems:
            return broken_syntax(problems, self._backend, 0.0)
        limit = self._options.max_test_files
        plan = make_plan(self._snapshot, patch, test, self._problem.text, limit)
        report = _opened(plan, tools, self._backend)
        if tools.interpreter is None:
            return replace(report, reason=f"No test could be run: {tools.problem}.")
        return self._judge(plan, self._run_all(plan, report, cancel), cancel)

    def _run_all(
        self, plan: Plan, report: ValidationReport, cancel: threading.Event
    ) -> ValidationReport:
        """The runs of a plan, without a verdict yet."""
        if plan.new_paths:
            job = Job(plan.new_paths, import_roots=plan.import_roots, label="the new tests")
            both = over(plan.patched, plan.new_tests)
            before = self._bench.run(job, plan.new_tests, cancel, where=_BASE)
            after = self._bench.run(job, both, cancel, where=_PATCHED)
            report = replace(report, reproduction_before=before, reproduction_after=after)
        job = self._project_job(plan)
        if not job.command and not job.paths:
            return report
        before = self._bench.run(job, (), cancel, where=_BASE)
        after = self._on_patched(job, plan, cancel)
        selected = () if job.command else plan.selected
        return replace(report, selected=selected, before=before, after=after)

    def _judge(
        self, plan: Plan, report: ValidationReport, cancel: threading.Event
    ) -> ValidationReport:
        before, after = report.before, report.after
        comparison = compare(before, after) if before and after else None
        notes = [*report.notes, *_cut_short(report)]
        if comparison and comparison.newly_failing:
            comparison = self._without_flakes(plan, report, comparison, notes, cancel)
        failing = comparison.newly_failing if comparison else ()
        passing = comparison.newly_passing if comparison else ()
        proof = tuple(test for test in passing if _is_evidence(test, plan))
        if len(proof) < len(passing):
            notes.append("tests that the patch itself changes pass newly; they prove nothing")
        new_tests = None
        if report.reproduction_before and report.reproduction_after:
            new_tests = judge(report.reproduction_before, report.reproduction_after, self._is_own)
            if new_tests.standing is Standing.PROVES:
                passing = tuple(sorted({*passing, *new_tests.tests}))
        verdict, reason = decide(Evidence(before, after, comparison, proof, new_tests))
        return replace(
            report,
            verdict=verdict,
            reason=reason,
            newly_failing=failing,
            newly_passing=passing,
            notes=tuple(notes),
        )

    def _without_flakes(
        self,
        plan: Plan,
        report: ValidationReport,
        comparison: Comparison,
        notes: list[str],
        cancel: threading.Event,
    ) -> Comparison:
        """Run the files of newly failing tests once more, before and after; keep what fails again.

        Only for whole runs of files: a hang or a crash is no flake, and a command has no parts.
        """
        failing = comparison.newly_failing
        whole = all(run is not None and is_whole(run) for run in (report.before, report.after))
        if self._command or not whole or len(failing) > _MOST_FLAKES:
            return comparison
        paths = tuple(sorted({test.partition("::")[0] for test in failing}))
        job = replace(self._project_job(plan), paths=paths, label="newly failing tests again")
        again = compare(
            self._bench.run(job, (), cancel, where=_BASE, again=True),
            self._on_patched(job, plan, cancel),
        )
        flaky = tuple(test for test in failing if test not in again.newly_failing)
        if flaky:
            notes.append(f"flaky, not held against the patch: {listed(flaky)}")
        return replace(comparison, newly_failing=tuple(t for t in failing if t not in flaky))

    def _on_patched(self, job: Job, plan: Plan, cancel: threading.Event) -> TestRun:
        """Run what is left of a job's files once the patch is applied."""
        gone = {change.path for change in plan.patched if change.after is None}
        left = replace(job, paths=tuple(path for path in job.paths if path not in gone))
        if not left.paths and not left.command:
            return nothing_run("the patch deletes the selected tests")
        return self._bench.run(left, plan.patched, cancel, where=_PATCHED)

    def _project_job(self, plan: Plan) -> Job:
        if self._command:
            label = "the test command"
            return Job(command=self._command, import_roots=plan.import_roots, label=label)
        paths = tuple(test.path for test in plan.selected)
        return Job(paths, import_roots=plan.import_roots, label=number(len(paths), "test file"))

    def _tied_to(self, changes: Sequence[FileChange]) -> tuple[str, ...]:
        limit = self._options.max_test_files
        chosen = select_tests(self._snapshot, changes, self._problem.text, limit)
        new = (c.path for c in changes if c.before is None and is_test_file(c.path))
        return (*(test.path for test in chosen), *sorted(new))

    def _is_there(self, path: str, patch: AppliedPatch | None) -> bool:
        changed = {c.path: c.after is not None for c in patch.changes} if patch else {}
        return path.endswith(".py") and changed.get(path, self._snapshot.exists(path))

    def _is_own(self, name: str) -> bool:
        """Whether a top-level module is the target's: some file or folder of it has that name."""
        wanted = {name, f"{name}.py"}
        return any(not wanted.isdisjoint(path.split("/")) for path in self._snapshot.files)

    # --------------------------------------------------------------------------------- the border

    async def _in_thread(self, work: Callable[[threading.Event], _T]) -> _T:
        """Run blocking work in a thread; on cancellation stop what it runs and wait for its end."""
        async with self._lock:
            cancel = threading.Event()
            task = asyncio.ensure_future(asyncio.to_thread(work, cancel))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                cancel.set()
                await asyncio.wait({task})  # no process and no copy outlives this call
                if not task.cancelled():
                    task.exception()  # whatever it was, the cancellation is what counts
                raise
            except SandboxError as error:
                raise SandboxUnavailable(str(error)) from error


def _opened(plan: Plan, tools: Tools, backend: str) -> ValidationReport:
    """A report that holds what is known before anything was run."""
    report = ValidationReport(Verdict.UNVERIFIED, "", backend, notes=plan.notes)
    python = tools.interpreter
    if python is None:
        return report
    about = f"{python.path} (Python {python.version}): {python.why}"
    if tools.pytest is None:
        note = f"pytest cannot be imported by {python.path}, so unittest was used; name another"
        note += " interpreter with --python"
        return replace(report, interpreter=about, notes=(*plan.notes, note))
    return replace(report, interpreter=about)


def _cut_short(report: ValidationReport) -> list[str]:
    """What was not seen of the project's tests: a verdict covers only what ran."""
    runs = (("on the base", report.before), ("with the patch", report.after))
    return [
        f"{where} the run of the project's tests {how_it_ended(run)}; what came later is not known"
        for where, run in runs
        if run is not None and not is_whole(run)
    ]


def _to_ask(patch: AppliedPatch, tools: Tools) -> tuple[str, ...]:
    """Python files on which the target's own grammar has the last word."""
    if tools.interpreter is None or is_this_python(tools.interpreter.version):
        return doubtful(patch.changes)
    changed = (c.path for c in patch.changes if c.after is not None)
    return tuple(sorted(path for path in changed if language_of(path) == "python"))


def _is_evidence(test: str, plan: Plan) -> bool:
    """Whether a newly passing test speaks for the patch: not when the patch touched the tests."""
    path, _, rest = test.partition("::")
    return path not in plan.touched if rest or path.endswith(".py") else not plan.touched
