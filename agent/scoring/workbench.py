"""Runs the tests of one instance on trees made of its base and some changes. Synchronous."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from agent.protocols import Snapshot
from agent.scoring.judging import Results
from agent.types import FileChange, TestRun
from agent.validation.frameworks.base import PYTHON, Suite
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.registry import STANDS_IN, framework_of
from agent.validation.judging.wording import listed, number
from agent.validation.layout import is_test_file
from agent.validation.running.bench import Bench, Job, Task, ValidationOptions
from agent.validation.running.plan import import_roots
from agent.validation.syntax_only import nothing_run
from sandbox.types import Sandbox


@dataclass(frozen=True, slots=True)
class Workbench:
    """`exists`: whether the commit has a path. Made by `open_workbench`."""

    bench: Bench
    snapshot: Snapshot
    exists: Callable[[str], bool]
    suite: Suite
    tools: Tools
    cancel: threading.Event

    @property
    def words(self) -> str:
        """How the tests are run."""
        python = self.tools.interpreter
        by = f" by {python.path} (Python {python.version})" if python else ""
        return f"{self.suite.framework}: {self.suite.why}{by}"

    def problem(self, *, named: bool) -> str:
        """Why no test can be run at all, or "". `named`: somebody says what is to be there."""
        tools = self.tools
        if PYTHON in framework_of(self.suite).programs(self.suite) and tools.interpreter is None:
            return tools.problem
        if tools.toolchain.missing:
            return f"{self.suite.why}, and {listed(tools.toolchain.missing)} is not installed here"
        if named and STANDS_IN in self.suite.settings:
            return "pytest is not in the environment: add it to the packages of the spec"
        return ""

    def test_id(self, name: str) -> str:
        """The id that a run reports, of a test as the runner names it."""
        return framework_of(self.suite).test_id(self.suite, name)

    def results(self, run: TestRun) -> Results:
        """What a run says of tests by their given names."""
        return Results(run, self.test_id)

    def files(self, given: Sequence[str], test_changes: Sequence[FileChange]) -> tuple[str, ...]:
        """The test files to run: those of the given ids, and those that the test patch touches."""
        named = (self.test_id(test).partition("::") for test in given)
        paths = {path for path, separator, _ in named if separator}
        paths |= {c.path for c in test_changes if c.after is not None and is_test_file(c.path)}
        return tuple(sorted(paths))

    def run(self, files: Sequence[str], changes: Sequence[FileChange], where: str) -> TestRun:
        """Run the test files that are there on the base with the changes. Raises SandboxError."""
        changed = {change.path: change.after is not None for change in changes}
        there = [path for path in files if changed.get(path, self.exists(path))]
        selects = framework_of(self.suite).selects(self.suite)
        roots = import_roots(self.snapshot, changes)
        job = Job(self.suite, (), roots, "the test command")
        if selects:
            job = self.bench.job(self.suite, there, roots, number(len(there), "test file"))
            if not job.targets:
                return nothing_run("no test file of the given tests is there")
        (run,) = self.bench.run([Task(job, tuple(changes), where, again=True)], self.cancel)
        return run


@contextmanager
def open_workbench(
    snapshot: Snapshot,
    exists: Callable[[str], bool],
    sandbox: Sandbox,
    options: ValidationOptions,
    changed: Sequence[str],
    cancel: threading.Event,
) -> Iterator[Workbench]:
    """A workbench whose private copies are removed at the end.

    `changed`: paths whose language decides how tests are run. Raises ConfigurationError for an
    interpreter or command that cannot be used, and SandboxError.
    """
    with closing(Bench(snapshot, sandbox, options, lambda _: None)) as bench:
        suite, tools = bench.suite(changed, cancel)
        yield Workbench(bench, snapshot, exists, suite, tools, cancel)
