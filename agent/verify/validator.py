"""The validators of the pipeline; the steps are in `agent.verify.patch_validation`."""

# ruff: noqa: D102  (the methods are those of `agent.types.protocols.Validator`)

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self, TypeVar

from agent.errors import ConfigurationError, PatchshotError, SandboxUnavailable
from agent.patching import check_syntax
from agent.repository import is_below
from agent.shared.workers import in_thread
from agent.types import (
    AppliedPatch,
    CommandRun,
    FileChange,
    Outcome,
    OutdatedTest,
    Problem,
    ReproductionTest,
    TestRun,
    ValidationReport,
    Verdict,
)
from agent.types.events import Notice
from agent.types.protocols import Reporter, Snapshot
from agent.verify.choosing import TestFiles, select_tests
from agent.verify.executor import SuiteExecutor, SuiteJob, Task, ValidationOptions
from agent.verify.judging.wording import listed, not_started
from agent.verify.patch_validation import PatchValidation, broken_syntax
from agent.verify.path_rules import is_test_file
from agent.verify.plan import BASE, SOURCE, import_roots
from agent.verify.reports import COMMAND_ID, nothing_run, streams
from agent.verify.runners import runner_of
from agent.verify.runners.base import shell_words
from agent.verify.steering import group_changes
from sandbox import Sandbox, SandboxError

_NO_TESTS = "Tests are switched off (--no-tests); only the syntax was checked."

_FAILS = (
    "the test command fails on the base (exit code {code}) and reports no tests that can be read: "
    "only a patch with which it passes can be more than unverified"
)

# The backend of --unsafe-no-sandbox.
_WITHOUT_ISOLATION = "process"
_NOT_ISOLATED = "run without isolation"

_T = TypeVar("_T")


class NullValidator:
    """Checks syntax only: the verdict is BROKEN_SYNTAX or UNVERIFIED, the backend "none"."""

    async def check(self) -> None: ...

    async def prepare(self) -> None: ...

    async def aclose(self) -> None: ...

    async def validate(
        self,
        patch: AppliedPatch,
        test: ReproductionTest | None,
        earlier: Sequence[ReproductionTest] = (),
        outdated: Sequence[OutdatedTest] = (),
    ) -> ValidationReport:
        started = time.perf_counter()
        problems = check_syntax(patch.changes)
        report = ValidationReport(Verdict.UNVERIFIED, _NO_TESTS, "none")
        report = broken_syntax(problems, "none") if problems else report
        return replace(report, seconds=time.perf_counter() - started)

    async def run_tests(self, patch: AppliedPatch | None, paths: Sequence[str]) -> TestRun:
        return nothing_run(_NO_TESTS)

    @property
    def why_no_commands(self) -> str:
        return "commands are switched off with the tests (--no-tests)"

    async def run_command(self, patch: AppliedPatch | None, script: str) -> CommandRun:
        return CommandRun(self.why_no_commands)


class SandboxValidator:
    """Runs tests in `sandbox`, on private copies of `snapshot`. Close it to remove the copies.

    Concurrent calls wait for each other. Raises SandboxUnavailable, and ConfigurationError for an
    interpreter or command that cannot be used.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        problem: Problem,
        sandbox: Sandbox,
        options: ValidationOptions | None = None,
        reporter: Reporter = lambda _: None,
    ) -> None:
        self._snapshot = snapshot
        self._problem = problem
        self._options = options or ValidationOptions()
        if self._options.test_cmd is not None:
            shell_words(self._options.test_cmd)  # raises for what a shell cannot read
        if self._options.setup_cmd is not None:
            shell_words(self._options.setup_cmd, "--setup-cmd")
        self._backend = sandbox.name
        self._reporter = reporter
        self._is_checked = False  # the user's test command starts on the base
        self._executor = SuiteExecutor(snapshot, sandbox, self._options, reporter)
        self._patches = PatchValidation(
            self._executor, snapshot, problem.text, self._options, self._backend
        )
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Remove the private copies. Safe to call twice."""
        async with self._lock:
            await asyncio.to_thread(self._executor.close)

    async def prepare(self) -> None:
        """Check out the base and find the interpreter. The first validation reports any error."""
        with suppress(PatchshotError):
            await self._in_thread(self._executor.prepare)

    async def check(self) -> None:
        """Run the setup command, start the interpreter and run the test command of the user.

        Raises ConfigurationError if one of them does not start, and SandboxUnavailable.
        """
        options = self._options
        if (options.python, options.test_cmd, options.setup_cmd) != (None, None, None):
            await self._in_thread(self._check)

    async def validate(
        self,
        patch: AppliedPatch,
        test: ReproductionTest | None,
        earlier: Sequence[ReproductionTest] = (),
        outdated: Sequence[OutdatedTest] = (),
    ) -> ValidationReport:
        """Check a patch, and the reproduction tests of its reply and of `earlier` replies.

        `outdated` are existing tests of which the reply says that the issue calls them wrong.
        """
        started = time.perf_counter()
        problems = check_syntax(patch.changes)
        if problems:
            seconds = time.perf_counter() - started
            return replace(broken_syntax(problems, self._backend), seconds=seconds)
        await self.check()
        report = await self._in_thread(
            lambda cancel: self._patches.report(patch, test, earlier, outdated, cancel)
        )
        reason, notes, scope = report.reason, list(report.notes), self._snapshot.scope
        if self._backend == _WITHOUT_ISOLATION:
            first, line_end, rest = reason.partition("\n")
            reason = f"{first} ({_NOT_ISOLATED}){line_end}{rest}"
            notes.append(_NOT_ISOLATED)
        outside = [c.path for c in patch.changes if not is_below(scope, c.path)]
        if outside:
            notes.append(
                f"the patch edits {listed(outside)} outside of {scope}; "
                f"only tests of {scope} were run"
            )
        seconds = time.perf_counter() - started
        return replace(report, reason=reason, notes=tuple(notes), seconds=seconds)

    async def run_tests(self, patch: AppliedPatch | None, paths: Sequence[str]) -> TestRun:
        """Run test files on the patched tree, or on the base; without paths, those of the patch."""
        roots = import_roots(self._snapshot, patch.changes if patch else ())
        groups = group_changes(patch.changes if patch else (), self._snapshot, roots)
        changes = tuple(sorted((*groups.source, *groups.tests), key=lambda c: c.path))
        asked = tuple(paths) or self._tests_for(changes)
        changed = {c.path: c.after is not None for c in changes}
        files = (path for path in asked if changed.get(path, self._snapshot.exists(path)))
        present, executor = tuple(dict.fromkeys(files)), self._executor

        def run(cancel: threading.Event) -> TestRun:
            suite, tools = executor.suite(present, cancel)
            if not runner_of(suite).selects:  # the user's command cannot run single files
                suite = executor.suite_of_files(present, cancel)
            if tools.interpreter is None and tools.problem:
                return nothing_run(tools.problem)
            job = executor.job(suite, present, roots, listed(present))
            if not job.targets:
                return nothing_run(f"these files cannot be run by {suite.runner}: {job.label}")
            return executor.run([Task(job, changes, SOURCE if patch else BASE)], cancel)[0]

        if not present:
            named = f"no such test file: {listed(asked)}"
            return nothing_run(named if asked else "no test file is tied to the change; name some")
        return await self._in_thread(run)

    @property
    def why_no_commands(self) -> str:
        """Why no command of a model is run: only tests may run without isolation."""
        if self._backend == _WITHOUT_ISOLATION:
            return f"the sandbox {self._backend!r} does not isolate commands (--unsafe-no-sandbox)"
        return ""

    async def run_command(self, patch: AppliedPatch | None, script: str) -> CommandRun:
        """Run a shell command on a fresh copy of the patched tree, without network."""
        if self.why_no_commands:
            return CommandRun(self.why_no_commands)
        changes = patch.changes if patch else ()
        roots = import_roots(self._snapshot, changes)
        result, found = await self._in_thread(
            lambda cancel: self._executor.run_script(script, changes, roots, cancel)
        )
        return CommandRun(
            streams(result), result.exit_code, result.ended.value, found.contents, found.left_out
        )

    def _check(self, cancel: threading.Event) -> None:
        self._executor.set_up(cancel)
        suite, _ = self._executor.suite((), cancel)
        if self._options.test_cmd is None or self._is_checked:
            return
        job = SuiteJob(suite, (), import_roots(self._snapshot, ()), "the test command")
        (run,) = self._executor.run([Task(job, (), BASE)], cancel)
        if cancel.is_set():
            return
        why = not_started(run)
        if why:
            raise ConfigurationError(f"--test-cmd {self._options.test_cmd!r}: on the base {why}")
        self._is_checked = True
        if run.outcomes.get(COMMAND_ID) is Outcome.FAILED:
            self._reporter(Notice(_FAILS.format(code=run.exit_code), "warning"))

    def _tests_for(self, changes: Sequence[FileChange]) -> tuple[str, ...]:
        chosen = select_tests(TestFiles(self._snapshot), changes, self._problem.text)
        new = (c.path for c in changes if c.before is None and is_test_file(c.path))
        return (*(test.path for test in chosen), *sorted(new))

    async def _in_thread(self, work: Callable[[threading.Event], _T]) -> _T:
        """Run blocking work in a thread. No process and no copy outlives this call."""
        async with self._lock:
            try:
                return await in_thread(work, wait=True)
            except SandboxError as error:
                raise SandboxUnavailable(str(error)) from error
