"""Where tests are run: the private copies and the runs in them. Synchronous.

The base is checked out once and never run in; every run gets a fresh copy of it, so that no run
sees what another one left behind. Runs of the bare base are remembered, between attempts in memory
and between runs of the program on disk: each patch is compared with the same one. Where the backend
allows it, runs that do not depend on each other happen at the same time.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from agent.events import StageFinished, StageStarted
from agent.protocols import Reporter, Snapshot
from agent.types import FileChange, KnownTests, SyntaxProblem, TestRun
from agent.validation.choosing.selection import DEFAULT_LIMIT
from agent.validation.frameworks import runners
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.registry import detect, fitting, framework_of
from agent.validation.reports import seal
from agent.validation.reports.report import counts
from agent.validation.running import run_cache
from agent.validation.running.kept_files import KeptFiles
from agent.validation.running.probe_cache import ProbeCache
from agent.validation.running.products import build_products
from agent.validation.running.run_cache import RunCache
from agent.validation.running.surroundings import Surroundings
from agent.validation.running.toolbox import (
    PROBE_SECONDS,
    Toolbox,
    Wishes,
    last_json,
    limits_of,
    mount_of,
)
from sandbox.container_image import prepare_products
from sandbox.types import Command, Ended, Sandbox, SandboxError
from sandbox.workspace import Workspace, prepare

_BYTE_CODE = (".pyc", ".pyo")

# They keep runs apart by namespaces; the bare process backend tells runs apart less well.
_PARALLEL = frozenset({"bwrap", "container"})

# The workspace is used where it lies.
_IN_PLACE = frozenset({"process", "landlock"})

# Memory: each run may take what its limits allow.
_MOST_AT_ONCE = 4

_SYNTAX: TypeAdapter[list[SyntaxProblem]] = TypeAdapter(list[SyntaxProblem])


@dataclass(frozen=True, slots=True)
class ValidationOptions:
    """What the user chose. `timeout` in seconds for one run; `virtual_env` is VIRTUAL_ENV.

    `known` tests decide where they are given. `cache` is the folder for runs of the base, None to
    keep none. `surroundings` are what an environment of the project says.
    """

    python: Path | None = None
    test_cmd: str | None = None
    max_test_files: int = DEFAULT_LIMIT
    timeout: float = 300.0
    virtual_env: str | None = None
    search_path: str | None = None  # PATH; None: the process's own
    known: KnownTests | None = None
    cache: Path | None = None
    surroundings: Surroundings = field(default_factory=Surroundings)


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: `targets` of a suite; none means the whole suite.

    `import_roots` are folders of the tree that go on the import path.
    """

    suite: Suite
    targets: tuple[str, ...] = ()
    import_roots: tuple[str, ...] = (".",)
    label: str = "tests"  # for progress events


@dataclass(frozen=True, slots=True)
class Task:
    """A job on the base with `changes` written over it; `where` names that tree.

    `again`: although it was run before.
    """

    job: Job
    changes: tuple[FileChange, ...]
    where: str
    again: bool = False


class Bench:
    """Runs tasks. One call at a time; close it."""

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
        self._base_digest = ""
        self._remembered: dict[str, TestRun] = {}
        self._refused: dict[str, Suite] = {}
        wishes = Wishes(options.python, options.virtual_env, options.search_path)
        kept = KeptFiles(options.cache) if options.cache and self._keeps_runs() else None
        self._toolbox = Toolbox(snapshot, sandbox, wishes, ProbeCache(kept) if kept else None)
        self._cache = RunCache(kept) if kept else None

    def close(self) -> None:
        """Remove the private copies. Safe to call twice."""
        if self._base is not None:
            self._base.close()
            self._base = None

    def prepare(self, cancel: threading.Event) -> None:
        """Do what needs no patch: find the interpreter and check out the base.

        Raises as `suite`.
        """
        self._base_tree()
        self.suite((), cancel)

    def suite(self, changed: Sequence[str], cancel: threading.Event) -> tuple[Suite, Tools]:
        """How the tests of a change to these paths are run, and with what.

        Raises ConfigurationError when the interpreter that the user named does not work, and
        SandboxError.
        """
        options, around = self._options, self._options.surroundings
        named = around.suite if options.test_cmd is None else None
        suite = around.around(named or detect(self._snapshot, options.test_cmd, changed))
        tools = self._tools(suite, cancel)
        return fitting(suite, tools), tools

    def suite_of_files(self, paths: Sequence[str], cancel: threading.Event) -> Suite:
        """How these test files are run by themselves, whatever command the user named."""
        suite = self._options.surroundings.around(detect(self._snapshot, None, paths))
        return fitting(suite, self.python(cancel))

    def python(self, cancel: threading.Event) -> Tools:
        """The target's Python. Raises as `suite`."""
        return self._toolbox.python(cancel)

    def job(self, suite: Suite, paths: Sequence[str], roots: tuple[str, ...], label: str) -> Job:
        """The job that runs these test files, or the whole suite where it cannot name files."""
        targets = framework_of(suite).targets(suite, paths, self._snapshot)
        return Job(suite, tuple(targets), roots, label)

    def run(self, tasks: Sequence[Task], cancel: threading.Event) -> list[TestRun]:
        """Run each task on a fresh copy, some at once; the results in the order of the tasks.

        Raises SandboxError.
        """
        for task in tasks:  # found before threads need them
            self._tools(task.job.suite, cancel)
        self._base_tree()
        at_once = self._at_once(len(tasks))
        if at_once == 1:
            return [self._run(task, cancel) for task in tasks]
        with ThreadPoolExecutor(at_once, "patchshot-run") as pool:
            return list(pool.map(lambda task: self._run(task, cancel), tasks))

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

    def _run(self, task: Task, cancel: threading.Event) -> TestRun:
        key = "" if task.changes else self._key(task.job, cancel)
        known = None if task.again or not key else self._known(key)
        if known is not None:
            return known
        what = f"{task.job.label} on {task.where}"
        self._reporter(StageStarted("test", what))
        run = self._run_either_way(task.job, task.changes, cancel)
        summary = counts(run) if run.ended == Ended.EXITED else f"{run.ended}: {counts(run)}"
        # Named again: runs that happen at once end in any order. Its own time: it may have waited.
        self._reporter(StageFinished("test", run.seconds, f"{what}: {summary}"))
        if key and not cancel.is_set() and not task.again:
            self._remembered[key] = run
            if self._cache is not None:
                self._cache.put(key, run)
        return run

    def _known(self, key: str) -> TestRun | None:
        if key in self._remembered:
            return dataclasses.replace(self._remembered[key], cached=True)
        return self._cache.get(key, time.time()) if self._cache is not None else None

    def _run_either_way(
        self, job: Job, changes: Sequence[FileChange], cancel: threading.Event
    ) -> TestRun:
        """Once, and in another way where the first is refused before any test runs."""
        suite = self._refused.get(_text(job.suite), job.suite)
        run = self._run_once(dataclasses.replace(job, suite=suite), changes, cancel)
        other = framework_of(suite).again(suite, run)
        if other is None:
            return run
        second = self._run_once(dataclasses.replace(job, suite=other), changes, cancel)
        if second.exit_code == run.exit_code and not second.outcomes:
            return run  # it was not that; show what was said first
        self._refused[_text(job.suite)] = other
        return second

    def _run_once(
        self, job: Job, changes: Sequence[FileChange], cancel: threading.Event
    ) -> TestRun:
        with closing(self._tree(changes)) as tree:
            command = self._command(job, self._root_inside(tree), cancel)
            key = seal.new_key() if framework_of(job.suite).seals(job.suite) else b""
            result = self._sandbox.run(self._sealed(command, tree, key), tree, cancel=cancel)
        if key:
            result = dataclasses.replace(result, report=seal.opened(result.report, key))
        return framework_of(job.suite).read(job.suite, command, result)

    def _sealed(self, command: Command, tree: Workspace, key: bytes) -> Command:
        if not key:
            return command
        tree.write(seal.KEY_NAME, key)
        place = str(self._root_inside(tree) / seal.KEY_NAME)
        environment = {**command.environment, seal.KEY_VARIABLE: place}
        return dataclasses.replace(command, environment=environment)

    def _command(self, job: Job, root: Path, cancel: threading.Event) -> Command:
        tools = self._tools(job.suite, cancel)
        place = runners.Place(root, self._options.surroundings.roots(job.import_roots))
        limits = limits_of(self._options.timeout)
        return framework_of(job.suite).command(job.suite, job.targets, tools, place, limits)

    def _tools(self, suite: Suite, cancel: threading.Event) -> Tools:
        return self._toolbox.tools(framework_of(suite).programs(suite), cancel)

    def _at_once(self, tasks: int) -> int:
        processors = len(os.sched_getaffinity(0))
        most = min(processors, _MOST_AT_ONCE) if self._sandbox.name in _PARALLEL else 1
        return max(1, min(tasks, most))

    # ----------------------------------------------------------------------------------- trees

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
                **self._products(),
                **snapshot.overlay(),
                **self._options.surroundings.files,
                **_without_byte_code(snapshot),
            }
            mount = mount_of(snapshot, self._sandbox)
            self._base = prepare(snapshot.root, snapshot.commit, overlay, mount=mount)
            self._base_digest = run_cache.digest_of(overlay)
        return self._base

    def _products(self) -> Mapping[str, bytes]:
        """What a build left beside the sources: the user's, or the image's own."""
        if self._sandbox.foreign_root:
            return prepare_products(self._sandbox, tracked=self._snapshot.exists)
        return build_products(self._snapshot)

    def _root_inside(self, tree: Workspace) -> Path:
        """Where a command finds the tree: some backends mount nothing."""
        return tree.path if self._sandbox.name in _IN_PLACE else tree.mount

    def _unparsable(
        self, paths: Sequence[str], changes: Sequence[FileChange], cancel: threading.Event
    ) -> list[SyntaxProblem]:
        interpreter = self.python(cancel).interpreter
        if interpreter is None:
            return []
        command = runners.syntax_command(interpreter, paths, limits_of(PROBE_SECONDS))
        with closing(self._tree(changes)) as tree:
            result = self._sandbox.run(command, tree, cancel=cancel)
        return last_json(result, _SYNTAX) or []

    # ----------------------------------------------------------------------------------- cache

    def _keeps_runs(self) -> bool:
        """Not for a run without isolation, nor for an image, whose content has no name here."""
        return self._sandbox.name not in _IN_PLACE and not self._sandbox.foreign_root

    def _key(self, job: Job, cancel: threading.Event) -> str:
        """All that a run of the base depends on, as far as it can be told."""
        base, tools = self._base_tree(), self._tools(job.suite, cancel)
        command = self._command(job, base.mount, cancel)
        python = tools.interpreter
        return run_cache.key_of(
            {
                "tree": [self._snapshot.commit, self._base_digest],
                "suite": _text(job.suite),
                "argv": command.argv,
                "cwd": command.cwd,
                "environment": dict(command.environment),
                "limits": dataclasses.asdict(command.limits),
                "shown": [str(path) for path in command.read_only],
                "python": [python.version, tools.pytest] if python else [],
                "installed": run_cache.installed(python.path) if python else "",
                "inside": run_cache.files_digest(runners.INSIDE),
                "backend": self._sandbox.name,
            }
        )


def _without_byte_code(snapshot: Snapshot) -> dict[str, None]:
    """Committed byte code is taken out: Python would run it in place of the patched source."""
    return {skip.path: None for skip in snapshot.skipped if skip.path.endswith(_BYTE_CODE)}


def _text(suite: Suite) -> str:
    """A suite as a key: its fields are plain."""
    plain = (*suite.argv, "", suite.cwd, *sorted(suite.environment.items()))
    return repr((suite.framework, plain, sorted(suite.settings.items())))
