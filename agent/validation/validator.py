"""The validator of the pipeline: syntax, then tests before and after, then the verdict."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from agent.errors import PatchshotError, SandboxUnavailable
from agent.events import Event
from agent.patching.syntax import check_syntax
from agent.protocols import Reporter, Snapshot
from agent.types import (
    AppliedPatch,
    FileChange,
    Problem,
    ReproductionTest,
    TestRun,
    ValidationReport,
)
from agent.validation.choosing.choice import TestChooser
from agent.validation.choosing.selection import select_tests
from agent.validation.frameworks.registry import framework_of
from agent.validation.frameworks.runners import split_command
from agent.validation.judging.wording import listed
from agent.validation.layout import is_test_file
from agent.validation.running.bench import Bench, Task, ValidationOptions
from agent.validation.running.held import share_out
from agent.validation.running.plan import import_roots
from agent.validation.running.runs import BASE, SOURCE
from agent.validation.syntax_only import NullValidator, broken_syntax, nothing_run
from agent.validation.trial import Trial
from sandbox.types import Sandbox, SandboxError

__all__ = ["NullValidator", "SandboxValidator", "ValidationOptions"]

_NONE_TIED = "no test file is tied to the change; name some"

# The backend of --unsafe-no-sandbox.
_BARE = "process"
_NOT_ISOLATED = "run without isolation"

_T = TypeVar("_T")


def quiet(event: Event, /) -> None:
    """The reporter of those who want no progress."""


def _without_isolation(report: ValidationReport) -> ValidationReport:
    """Every result says so, in the first line too."""
    first, line_end, rest = report.reason.partition("\n")
    reason = f"{first} ({_NOT_ISOLATED}){line_end}{rest}"
    return replace(report, reason=reason, notes=(*report.notes, _NOT_ISOLATED))


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
        if self._options.test_cmd is not None:
            split_command(self._options.test_cmd)  # what cannot be split is said at once
        self._backend = sandbox.name
        self._bench = Bench(snapshot, sandbox, self._options, reporter)
        self._choosers: dict[str, TestChooser] = {}
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

    async def prepare(self) -> None:
        """Check out the base, find the interpreter. What fails is said by the first validation."""
        with suppress(PatchshotError):
            await self._in_thread(self._bench.prepare)

    async def validate(
        self, patch: AppliedPatch, test: ReproductionTest | None
    ) -> ValidationReport:
        """Check a patch, with the reply's reproduction test where there is one."""
        started = time.perf_counter()
        problems = check_syntax(patch.changes)
        if problems:
            return broken_syntax(problems, self._backend, time.perf_counter() - started)
        report = await self._in_thread(lambda cancel: self._trial(cancel).report(patch, test))
        if self._backend == _BARE:
            report = _without_isolation(report)
        return replace(report, seconds=time.perf_counter() - started)

    async def run_tests(self, patch: AppliedPatch | None, paths: Sequence[str]) -> TestRun:
        """Run test files on the patched tree (None: the base), its configuration as on the base.

        Paths that are not there are left out; no paths at all means the tests that are tied to the
        patch, or to the problem where there is no patch.
        """
        roots = import_roots(self._snapshot, patch.changes if patch else ())
        shares = share_out(patch.changes if patch else (), self._snapshot.exists, roots)
        changes = tuple(sorted((*shares.source, *shares.tests), key=lambda c: c.path))
        asked = tuple(paths) or self._tied_to(changes)
        wanted = tuple(dict.fromkeys(path for path in asked if self._is_there(path, patch)))
        if not wanted:
            return nothing_run(f"no such test file: {listed(asked)}" if asked else _NONE_TIED)
        return await self._in_thread(
            lambda cancel: self._run_files(
                wanted, changes, roots, SOURCE if patch else BASE, cancel
            )
        )

    # ------------------------------------------------------------------------- inside the thread

    def _trial(self, cancel: threading.Event) -> Trial:
        return Trial(
            self._bench,
            self._snapshot,
            self._problem.text,
            self._options,
            self._backend,
            cancel,
            self._choosers,
        )

    def _run_files(
        self,
        paths: Sequence[str],
        changes: tuple[FileChange, ...],
        roots: tuple[str, ...],
        where: str,
        cancel: threading.Event,
    ) -> TestRun:
        suite, tools = self._bench.suite(paths, cancel)
        if not framework_of(suite).selects(suite):  # the user's command runs what it runs
            suite = self._bench.suite_of_files(paths, cancel)
        if tools.interpreter is None and tools.problem:
            return nothing_run(tools.problem)
        job = self._bench.job(suite, paths, roots, listed(paths))
        if not job.targets:
            return nothing_run(f"these files cannot be run by {suite.framework}: {listed(paths)}")
        (run,) = self._bench.run([Task(job, changes, where)], cancel)
        return run

    def _tied_to(self, changes: Sequence[FileChange]) -> tuple[str, ...]:
        limit = self._options.max_test_files
        chosen = select_tests(self._snapshot, changes, self._problem.text, limit)
        new = (c.path for c in changes if c.before is None and is_test_file(c.path))
        return (*(test.path for test in chosen), *sorted(new))

    def _is_there(self, path: str, patch: AppliedPatch | None) -> bool:
        changed = {c.path: c.after is not None for c in patch.changes} if patch else {}
        return changed.get(path, self._snapshot.exists(path))

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
