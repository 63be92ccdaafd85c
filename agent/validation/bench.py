"""Where tests are run: the private copies, the interpreter, the runs. Synchronous.

The base is checked out once and never run in; every run gets a fresh copy of it, so that no run
sees what another one left behind. Runs of the bare base are remembered: each repair attempt is
compared with the same one.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.events import StageFinished, StageStarted
from agent.protocols import Reporter, Snapshot
from agent.types import FileChange, SyntaxProblem, TestRun
from agent.validation import runners
from agent.validation.interpreter import Interpreter, Tools, candidates
from agent.validation.products import build_products
from agent.validation.report import counts, make_run
from agent.validation.selection import DEFAULT_LIMIT
from sandbox.interpreter import find_interpreter
from sandbox.types import Command, Ended, Limits, RunResult, Sandbox, SandboxError
from sandbox.workspace import Workspace, empty, prepare

# Starting an interpreter and importing pytest, on a machine under load.
_PROBE_SECONDS = 60.0

_BYTE_CODE = (".pyc", ".pyo")

# The runners in agent/validation/inside need it.
_OLDEST_PYTHON = (3, 7)

_T = TypeVar("_T")

_PROBED: TypeAdapter[tuple[str, str | None]] = TypeAdapter(tuple[str, str | None])
_SYNTAX: TypeAdapter[list[SyntaxProblem]] = TypeAdapter(list[SyntaxProblem])


@dataclass(frozen=True, slots=True)
class ValidationOptions:
    """What the user chose. `timeout` in seconds for one run; `virtual_env` is VIRTUAL_ENV."""

    python: Path | None = None
    test_cmd: str | None = None
    max_test_files: int = DEFAULT_LIMIT
    timeout: float = 300.0
    virtual_env: str | None = None
    search_path: str | None = None  # PATH; None: the process's own


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: the user's own `command`, or else test files.

    `import_roots` are folders of the tree that go on the import path.
    """

    paths: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    import_roots: tuple[str, ...] = (".",)
    label: str = "tests"  # for progress events


class Bench:
    """Runs jobs on the base with changes written over it. Not thread-safe; close it."""

    def __init__(
        self,
        snapshot: Snapshot,
        sandbox: Sandbox,
        options: ValidationOptions,
        reporter: Reporter,
    ) -> None:
        self._snapshot = snapshot
        self._sandbox = sandbox
        self._options = options
        self._reporter = reporter
        self._base: Workspace | None = None
        self._tools: Tools | None = None
        self._remembered: dict[Job, TestRun] = {}
        self._without_addopts = False

    def close(self) -> None:
        """Remove the private copies. Safe to call twice."""
        if self._base is not None:
            self._base.close()
            self._base = None

    def tools(self, cancel: threading.Event) -> Tools:
        """The interpreter that is used, found once.

        Raises ConfigurationError when the one that the user named does not work, and SandboxError.
        """
        if self._tools is not None:
            return self._tools
        tools = self._find_tools(cancel)
        if not cancel.is_set():  # a probe that was stopped says nothing of the interpreter
            self._tools = tools
        return tools

    def run(
        self,
        job: Job,
        changes: Sequence[FileChange],
        cancel: threading.Event,
        *,
        where: str,
        again: bool = False,
    ) -> TestRun:
        """Run a job on a fresh copy. `where` names the tree; `again`: although it was run before.

        Raises SandboxError.
        """
        known = None if changes or again else self._remembered.get(job)
        if known is not None:
            return known
        started = time.perf_counter()
        self._reporter(StageStarted("test", f"{job.label} on {where}"))
        run = self._run(job, changes, cancel)
        summary = counts(run) if run.ended == Ended.EXITED else f"{run.ended}: {counts(run)}"
        self._reporter(StageFinished("test", time.perf_counter() - started, summary))
        if not changes and not cancel.is_set():
            self._remembered[job] = run
        return run

    def python_errors(
        self, paths: Sequence[str], changes: Sequence[FileChange], cancel: threading.Event
    ) -> tuple[SyntaxProblem, ...]:
        """What the target's interpreter cannot parse with the changes, and could without them.

        Raises SandboxError.
        """
        after = self._unparsable(paths, changes, cancel) if paths else []
        if not after:
            return ()
        before = {problem.path for problem in self._unparsable(paths, (), cancel)}
        return tuple(problem for problem in after if problem.path not in before)

    # ------------------------------------------------------------------------------------ runs

    def _run(self, job: Job, changes: Sequence[FileChange], cancel: threading.Event) -> TestRun:
        run = self._run_once(job, changes, cancel)
        refused = run.exit_code == runners.PYTEST_USAGE_ERROR and not run.outcomes
        if not refused or job.command or self._without_addopts or not self._uses_pytest(cancel):
            return run
        self._without_addopts = True
        second = self._run_once(job, changes, cancel)
        if second.exit_code == runners.PYTEST_USAGE_ERROR:
            self._without_addopts = False  # it was not the options; show what pytest first said
            return run
        return second

    def _run_once(
        self, job: Job, changes: Sequence[FileChange], cancel: threading.Event
    ) -> TestRun:
        with closing(self._tree(changes)) as tree:
            command = self._command(job, tree, cancel)
            result = self._sandbox.run(command, tree, cancel=cancel)
        opaque = bool(job.command)
        return make_run(command.argv, result, own_runner=not opaque, opaque=opaque)

    def _command(self, job: Job, tree: Workspace, cancel: threading.Event) -> Command:
        tools = self.tools(cancel)
        if tools.interpreter is None:
            raise SandboxError(tools.problem)
        place = runners.Place(self._root_inside(tree), job.import_roots)
        limits = _limits(self._options.timeout)
        if job.command:
            return runners.user_command(job.command, tools.interpreter, place, limits)
        if tools.pytest is None:
            return runners.unittest_command(tools.interpreter, job.paths, place, limits)
        return runners.pytest_command(
            tools.interpreter,
            job.paths,
            place,
            limits,
            without_addopts=self._without_addopts,
        )

    def _uses_pytest(self, cancel: threading.Event) -> bool:
        return self.tools(cancel).pytest is not None

    def _tree(self, changes: Sequence[FileChange]) -> Workspace:
        tree = self._base_tree().copy()
        try:
            # Deletions first: a folder may come where a file was.
            for change in sorted(changes, key=lambda c: (c.after is not None, c.path)):
                if not change.path.endswith(_BYTE_CODE):
                    tree.write(change.path, change.after, change.executable or None)
        except SandboxError:
            tree.close()
            raise
        return tree

    def _base_tree(self) -> Workspace:
        if self._base is None:
            snapshot = self._snapshot
            overlay = {
                **build_products(snapshot),
                **snapshot.overlay(),
                **_without_byte_code(snapshot),
            }
            self._base = prepare(snapshot.root, snapshot.commit, overlay)
        return self._base

    def _root_inside(self, tree: Workspace) -> Path:
        """Where a command finds the tree: the bare process backend mounts nothing."""
        return tree.path if self._sandbox.name == "process" else tree.mount

    def _unparsable(
        self, paths: Sequence[str], changes: Sequence[FileChange], cancel: threading.Event
    ) -> list[SyntaxProblem]:
        interpreter = self.tools(cancel).interpreter
        if interpreter is None:
            return []
        command = runners.syntax_command(interpreter, paths, _limits(_PROBE_SECONDS))
        with closing(self._tree(changes)) as tree:
            result = self._sandbox.run(command, tree, cancel=cancel)
        return _last_json(result, _SYNTAX) or []

    # ----------------------------------------------------------------------------------- tools

    def _find_tools(self, cancel: threading.Event) -> Tools:
        options, snapshot = self._options, self._snapshot
        found: list[Tools] = []
        for candidate in candidates(
            snapshot.root,
            options.python,
            options.virtual_env,
            tracked=self._is_tracked,
            search_path=options.search_path,
        ):
            tools = self._probe(candidate, cancel)
            if tools.interpreter and (candidate.certain or tools.pytest):
                return tools
            found.append(tools)
        if options.python is not None:
            raise ConfigurationError(f"--python {options.python}: {found[0].problem}")
        usable = [tools for tools in found if tools.interpreter]
        return (usable or found)[0]

    def _is_tracked(self, path: str) -> bool:
        return self._snapshot.exists(path) and path not in self._snapshot.overlay()

    def _probe(self, candidate: Interpreter, cancel: threading.Event) -> Tools:
        """Ask a candidate, inside the sandbox, what it is and whether it has pytest."""
        try:
            real = find_interpreter(candidate.path)
        except SandboxError as error:
            return Tools(None, problem=str(error))
        interpreter = dataclasses.replace(candidate, path=real.executable, read_only=real.paths)
        command = runners.probe_command(interpreter, _limits(_PROBE_SECONDS))
        with closing(empty(mount=self._snapshot.root.resolve())) as tree:
            result = self._sandbox.run(command, tree, cancel=cancel)
        answer = _last_json(result, _PROBED)
        if answer is None:
            return Tools(None, problem=f"{interpreter.path} does not start inside the sandbox")
        version, pytest = answer
        if _numbers(version) < _OLDEST_PYTHON:
            return Tools(None, problem=f"{interpreter.path} is Python {version}; 3.7 is needed")
        return Tools(dataclasses.replace(interpreter, version=version), pytest)


def _without_byte_code(snapshot: Snapshot) -> dict[str, None]:
    """Committed byte code is taken out: Python would run it in place of the patched source."""
    return {skip.path: None for skip in snapshot.skipped if skip.path.endswith(_BYTE_CODE)}


def _limits(seconds: float) -> Limits:
    return Limits(wall_seconds=seconds, cpu_seconds=math.ceil(seconds))


def _last_json(result: RunResult, adapter: TypeAdapter[_T]) -> _T | None:
    """The last line of the output, read as JSON; None when it is not what it should be."""
    lines = result.stdout.splitlines()
    try:
        return adapter.validate_json(lines[-1]) if lines else None
    except ValidationError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
