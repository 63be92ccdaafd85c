"""Runs test suites on private copies of the target. Synchronous.

Runs of the unpatched base are kept in memory and on disk, because every patch is compared with the
same base. Where the backend allows it, independent runs happen at the same time.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.errors import ConfigurationError
from agent.types import FileChange, KnownTests, TestRun
from agent.types.events import Notice, StageFinished, StageStarted
from agent.types.protocols import Reporter, Snapshot
from agent.verify.judging.replays import Replayed, read_replayed
from agent.verify.reports import KEY_FILE, KEY_VARIABLE, counts, new_key, verified
from agent.verify.runners import detect, fitting, runner_of
from agent.verify.runners.base import (
    COMMAND,
    LOADS_PLUGIN,
    ORDER_FILE,
    PYTHON,
    SHELL,
    RunContext,
    Suite,
    Tools,
    following_order,
    with_variables,
)
from agent.verify.tools import ToolFinder, limits_of
from agent.verify.trees import (
    IN_PLACE,
    BaseRuns,
    PrivateTrees,
    is_named_by,
    key_of,
    known_secrets,
    package_folders,
)
from sandbox import (
    ChangedFiles,
    Command,
    Ended,
    RunResult,
    Sandbox,
    Workspace,
    find_changed,
    stamp_files,
)

# Namespaces keep the runs of these backends apart; the process backend separates them less well.
_PARALLEL = frozenset({"bwrap", "container"})

# The folder of the tree into which pip installs for the setup command, because the target's
# interpreter is read-only, and where it then puts packages. `path_rules` keeps patches out of it.
_PREFIX = ".patchshot-packages"
_PACKAGES = ("lib/python*/site-packages", "local/lib/python*/dist-packages")

# Where a tree lies in which tests are replayed: where a user would have it.
_HOME = Path("/home/dev/work")

_CLASS = re.compile(r"^\s*class\s+(\w+)", re.MULTILINE)

# Upper bound of parallel runs, because each may use as much memory as its limits allow.
_MOST_AT_ONCE = 4

# Limits of a command of the step-by-step mode: what a model can read, and what a step may take.
_SCRIPT_SECONDS = 120.0
_SCRIPT_OUTPUT = 16 * 1024  # bytes of each stream
_SCRIPT_FILES = 60  # as many as one reply may edit
_SCRIPT_FILE_BYTES = 1024 * 1024

# A setup command that makes `node_modules`; any other one finds what is installed.
_INSTALLS = re.compile(r"\s(?:ci|i|install|add)\b|\b(?:yarn|bun)\s*(?:$|[;&|])")

# Lines of a failed setup that are shown.
_SETUP_LINES = 10


@dataclass(frozen=True, slots=True)
class ProjectSetup:
    """How an environment, and not the project's files, says to run a project's tests.

    `suite` None means as the project's files say. `environment` is added to that of any suite and
    takes precedence. `paths` are folders of the tree for the import path. `files` (path -> bytes),
    such as products of an installation or build, are written over the base before every run.
    """

    suite: Suite | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)

    def applied_to(self, suite: Suite) -> Suite:
        """Return the suite with the environment set."""
        return replace(suite, environment={**suite.environment, **self.environment})

    def import_roots(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """Return the folders for the import path; `paths` come right after the tree's root."""
        return tuple(dict.fromkeys((*roots[:1], *self.paths, *roots[1:])))


@dataclass(frozen=True, slots=True)
class ValidationOptions:
    """The user's choices. `timeout` is in seconds for one run; `virtual_env` is VIRTUAL_ENV.

    If `known` tests are given, they alone decide the verdict. Files that match a pattern of `allow`
    may steer the tests that judge a patch. `setup_cmd` prepares the base once, with the network if
    `setup_network` says so; what it leaves is in the trees of all runs. `search_path` is PATH; None
    means that of this process. `cache` is the folder for runs of the base.
    """

    python: Path | None = None
    test_cmd: str | None = None
    setup_cmd: str | None = None
    setup_network: bool = False
    timeout: float = 300.0
    virtual_env: str | None = None
    search_path: str | None = None
    known: KnownTests | None = None
    allow: tuple[str, ...] = ()
    cache: Path | None = None
    setup: ProjectSetup = field(default_factory=ProjectSetup)


@dataclass(frozen=True, slots=True)
class SuiteJob:
    """What to run: `targets` of a suite; no targets mean the whole suite."""

    suite: Suite
    targets: tuple[str, ...] = ()
    import_roots: tuple[str, ...] = (".",)
    label: str = "tests"


@dataclass(frozen=True, slots=True)
class Task:
    """A job on the base with `changes` written over it; `where` names that tree for progress.

    `again` runs it even if the result is cached. With `deciding` tests it runs under other
    conditions: the tree is at another path, hashing and random numbers differ, tests run in the
    opposite order, `sys.argv` is empty, and the functions of these tests must come to their end.
    Only runners that sign their report do that.
    """

    job: SuiteJob
    changes: tuple[FileChange, ...]
    where: str
    again: bool = False
    deciding: tuple[str, ...] = ()


class SuiteExecutor:
    """Runs tasks. It takes one call at a time. Close it to remove the private copies."""

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
        self._trees = PrivateTrees(snapshot, sandbox, options.setup.files)
        self._secrets = known_secrets(snapshot)
        self._fallbacks: dict[str, Suite] = {}
        self._is_set_up = options.setup_cmd is None
        self._built: set[str] = set()  # suites whose tests were built on the base
        self._packages: tuple[str, ...] = ()  # folders of what the setup command has installed
        self._installed: tuple[str, ...] = ()  # the modules in them
        # A run without isolation is not kept, and neither is one in an image or after a setup
        # command, whose content has no name here.
        named = sandbox.name not in IN_PLACE and not sandbox.foreign_root and self._is_set_up
        self._base_runs = BaseRuns(options.cache if named else None, reporter)
        chosen = options.python, options.virtual_env, options.search_path
        self._finder = ToolFinder(snapshot, sandbox, *chosen)

    def close(self) -> None:
        """Remove the private copies. Safe to call twice."""
        self._trees.close()
        self._base_runs.close()

    def prepare(self, cancel: threading.Event) -> None:
        """Check out the base and find the interpreter. Raises as `suite`."""
        self.set_up(cancel)
        self._trees.base()
        self._build(self.suite((), cancel)[0], cancel)

    # ---------------------------------------------------------------- what is run on the base once

    def set_up(self, cancel: threading.Event) -> None:
        """Run the setup command on the base, once. Raises ConfigurationError, SandboxError."""
        given = self._options.setup_cmd
        if self._is_set_up or given is None:
            return
        argv, folder = (*SHELL, given), self._snapshot.scope or "."
        job = SuiteJob(Suite(COMMAND, "chosen with --setup-cmd", argv, folder))
        with self._new_base() as (tree, root):
            pip = {"PIP_PREFIX": str(root / _PREFIX), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            command = with_variables(self._command(job, root, cancel), pip)
            command = replace(command, network=self._options.setup_network)
            self._check_setup(given, self._prepare(command, tree, given, cancel))
        self._packages, self._installed = _installed_in(tree.path)
        self._is_set_up = True

    def _build(self, suite: Suite, cancel: threading.Event) -> None:
        """Build the tests of the base once, if the runner can: no patch changes what is built."""
        building, key = runner_of(suite).building, _suite_key(suite)
        if key in self._built or building is None or self._tools(suite, cancel).toolchain.missing:
            return
        self._built.add(key)
        with self._new_base() as (tree, root):
            command = building(suite, self._context(SuiteJob(suite), root, cancel))
            self._prepare(command, tree, "building the tests", cancel)

    @contextmanager
    def _new_base(self) -> Iterator[tuple[Workspace, Path]]:
        """Yield a copy of the base and its root inside; it becomes the base unless one raises."""
        tree = self._trees.with_changes(())
        try:
            yield tree, self._trees.root_inside(tree)
        except BaseException:
            tree.close()
            raise
        self._trees.replace_base(tree)

    def _prepare(
        self, command: Command, tree: Workspace, what: str, cancel: threading.Event
    ) -> RunResult:
        self._reporter(StageStarted("setup", what))
        result = self._run_in(tree, replace(command, report=False), cancel)
        self._reporter(StageFinished("setup", result.seconds, what))
        return result

    def _check_setup(self, given: str, result: RunResult) -> None:
        if result.ended == Ended.EXITED and result.exit_code == 0:
            return
        text = (result.stdout + b"\n" + result.stderr).decode("utf-8", "replace")
        # npm names a log file in the sandbox last.
        masked = self._secrets.masked(text).splitlines()
        lines = [line for line in masked if line.strip() and "A complete log of" not in line]
        for line in lines[-_SETUP_LINES:]:
            self._reporter(Notice(f"--setup-cmd: {line}", "warning"))
        how = f"exit code {result.exit_code}" if result.ended == Ended.EXITED else result.ended
        if not self._options.setup_network:
            how += "; it had no network (PATCHSHOT_SETUP_NETWORK)"
        why = f": {lines[-1].strip()}" if lines else ""
        raise ConfigurationError(f"--setup-cmd {given!r} failed ({how}){why}")

    # ------------------------------------------------------------------------------ what is chosen

    def suite(self, changed: Sequence[str], cancel: threading.Event) -> tuple[Suite, Tools]:
        """Return the suite and tools for a change. Raises ConfigurationError and SandboxError."""
        options, setup = self._options, self._options.setup
        named = setup.suite if options.test_cmd is None else None
        suite = setup.applied_to(named or detect(self._snapshot, options.test_cmd, changed))
        tools = self._tools(suite, cancel)
        return fitting(suite, tools), tools

    def suite_of_files(self, paths: Sequence[str], cancel: threading.Event) -> Suite:
        """Return how only these test files are run, also if the user named a command."""
        suite = self._options.setup.applied_to(detect(self._snapshot, None, paths))
        return fitting(suite, self.python(cancel))

    def python(self, cancel: threading.Event) -> Tools:
        """Return the target's Python. Raises as `suite`."""
        return self._with_setup(self._finder.python(cancel))

    def job(
        self, suite: Suite, paths: Sequence[str], roots: tuple[str, ...], label: str
    ) -> SuiteJob:
        """Return the job that runs these test files; without targets where it can run none."""
        targets = runner_of(suite).targets(suite, paths, self._snapshot)
        return SuiteJob(suite, targets, roots, label)

    # ----------------------------------------------------------------------------------------- runs

    def run(self, tasks: Sequence[Task], cancel: threading.Event) -> list[TestRun]:
        """Run each task on a fresh copy, in the order of the tasks. Raises SandboxError."""
        self.set_up(cancel)
        for task in tasks:  # tools are found before threads need them
            self._tools(task.job.suite, cancel)
            self._build(task.job.suite, cancel)
        self._trees.base()
        processors = len(os.sched_getaffinity(0))
        most = min(processors, _MOST_AT_ONCE) if self._sandbox.name in _PARALLEL else 1
        with ThreadPoolExecutor(most, "patchshot-run") as pool:
            return list(pool.map(lambda task: self._run(task, cancel), tasks))

    def replay(
        self,
        job: SuiteJob,
        sides: Sequence[tuple[Sequence[FileChange], Sequence[str]]],
        cancel: threading.Event,
    ) -> list[tuple[Replayed, ...]]:
        """Run tests as plain code, each list on a tree with changes. Raises SandboxError."""

        def one(side: tuple[Sequence[FileChange], Sequence[str]]) -> tuple[Replayed, ...]:
            changes, tests = side
            with closing(self._trees.with_changes(changes)) as tree:
                if self._sandbox.name == "bwrap" and self._is_movable(job.suite, cancel):
                    tree.mount = _HOME / tree.mount.name
                root = self._trees.root_inside(tree)
                context = self._context(job, root, cancel)
                order = {
                    "tests": tests,
                    "roots": context.import_roots,
                    "old": {
                        c.path: _CLASS.findall((c.before or b"").decode("utf-8", "replace"))
                        for c in changes
                    },
                }
                tree.write(ORDER_FILE, json.dumps(order).encode("ascii"))
                command = runner_of(job.suite).replay(job.suite, context, root / ORDER_FILE)
                return read_replayed(self._run_signed(tree, command, cancel).report)

        with ThreadPoolExecutor(len(sides), "patchshot-replay") as pool:
            return list(pool.map(one, sides))

    def run_script(
        self,
        script: str,
        changes: Sequence[FileChange],
        roots: tuple[str, ...],
        cancel: threading.Event,
    ) -> tuple[RunResult, ChangedFiles]:
        """Run a shell command on a fresh copy; return also what it changed. Raises SandboxError."""
        self.set_up(cancel)
        suite = Suite(COMMAND, "", (*SHELL, script), self._snapshot.scope or ".")
        with closing(self._trees.with_changes(changes)) as tree:
            root = self._trees.root_inside(tree)
            made = self._command(SuiteJob(suite, (), roots), root, cancel)
            wall = min(self._options.timeout, _SCRIPT_SECONDS)
            limits = replace(made.limits, wall_seconds=wall, output=_SCRIPT_OUTPUT)
            plain = {k: v for k, v in made.environment.items() if k not in LOADS_PLUGIN}
            command = replace(made, limits=limits, environment=plain, report=False)
            before = stamp_files(tree.path)
            result = self._run_in(tree, command, cancel)
            changed = find_changed(
                tree.path, before, most_files=_SCRIPT_FILES, most_bytes=_SCRIPT_FILE_BYTES
            )
        output, errors = (
            self._secrets.masked(stream.decode("utf-8", "replace")).encode()
            for stream in (result.stdout, result.stderr)
        )
        return replace(result, stdout=output, stderr=errors), changed

    # --------------------------------------------------------------------------------- one task

    def _run(self, task: Task, cancel: threading.Event) -> TestRun:
        key = b"" if task.changes or task.again else self._key(task.job, cancel)
        if key and (known := self._base_runs.get(key)):
            return known
        what = f"{task.job.label} on {task.where}"
        self._reporter(StageStarted("test", what))
        run = self._run_with_fallback(task, cancel)
        summary = counts(run) if run.ended == Ended.EXITED else f"{run.ended}: {counts(run)}"
        # The name is repeated because parallel runs end in any order. The seconds are the run's
        # own, without the time that it waited.
        self._reporter(StageFinished("test", run.seconds, f"{what}: {summary}"))
        if key and not cancel.is_set():
            # What other languages have installed is in no key.
            lasting = runner_of(task.job.suite).needs == (PYTHON,)
            self._base_runs.put(key, run, lasting=lasting)
        return run

    def _key(self, job: SuiteJob, cancel: threading.Event) -> bytes:
        """Return the key of a run of the base: everything that its result may depend on."""
        tools, root = self._tools(job.suite, cancel), self._trees.root_inside(self._trees.base())
        command, python = self._command(job, root, cancel), tools.interpreter
        parts = (_suite_key(job.suite), command, python, tools.pytest, self._sandbox.name)
        installed = package_folders(python.path) if python else ()
        return key_of((self._trees.identity, parts), (*command.read_only, *installed))

    def _run_with_fallback(self, task: Task, cancel: threading.Event) -> TestRun:
        """Run the job. If the runner refuses to start, run it in another way."""
        job = task.job
        suite = self._fallbacks.get(_suite_key(job.suite), job.suite)
        run = self._run_once(replace(job, suite=suite), task, cancel)
        other = runner_of(suite).again(suite, run)
        if other is None:
            return run
        second = self._run_once(replace(job, suite=other), task, cancel)
        if second.exit_code == run.exit_code and not second.outcomes:
            return run  # the other way did not help, so the first message is shown
        self._fallbacks[_suite_key(job.suite)] = other
        return second

    def _run_once(self, job: SuiteJob, task: Task, cancel: threading.Event) -> TestRun:
        runner = runner_of(job.suite)
        deciding = task.deciding if runner.signs else ()
        elsewhere = bool(deciding) and self._is_movable(job.suite, cancel)
        with closing(self._trees.with_changes(task.changes, elsewhere=elsewhere)) as tree:
            root = self._trees.root_inside(tree)
            command = started = self._command(job, root, cancel)
            if deciding:
                tree.write(ORDER_FILE, json.dumps({"tests": deciding}).encode("ascii"))
                started = following_order(started, root / ORDER_FILE)
            run_in = self._run_signed if runner.signs else self._run_in
            result = run_in(tree, started, cancel)
        run = runner.read(job.suite, command, result)
        masked = self._secrets.masked  # sources may repeat the values of files of secrets
        failures = {test: masked(text) for test, text in run.failures.items()}
        return replace(run, output_tail=masked(run.output_tail), failures=failures)

    def _run_in(self, tree: Workspace, command: Command, cancel: threading.Event) -> RunResult:
        return self._sandbox.run(self._trees.with_packages(command, tree), tree, cancel=cancel)

    def _run_signed(self, tree: Workspace, command: Command, cancel: threading.Event) -> RunResult:
        key = new_key()
        tree.write(KEY_FILE, key)
        seal = {KEY_VARIABLE: str(self._trees.root_inside(tree) / KEY_FILE)}
        result = self._run_in(tree, with_variables(command, seal), cancel)
        return replace(result, report=verified(result.report, key))

    def _is_movable(self, suite: Suite, cancel: threading.Event) -> bool:
        """Whether tests find the project at another path: no installed package names its path."""
        if self._options.setup_cmd is not None:  # what it made may name the path
            return False
        python = self._tools(suite, cancel).interpreter
        root = self._snapshot.root.resolve()
        return python is not None and root.name != "" and not is_named_by(python.path, root)

    def _command(self, job: SuiteJob, root: Path, cancel: threading.Event) -> Command:
        context = self._context(job, root, cancel)
        return runner_of(job.suite).command(job.suite, job.targets, context)

    def _context(self, job: SuiteJob, root: Path, cancel: threading.Event) -> RunContext:
        tools, limits = self._tools(job.suite, cancel), limits_of(self._options.timeout)
        roots = self._options.setup.import_roots(job.import_roots)
        return RunContext(tools, root, limits, (*roots, *self._packages))

    def _tools(self, suite: Suite, cancel: threading.Event) -> Tools:
        return self._with_setup(self._finder.tools(runner_of(suite), cancel))

    def _with_setup(self, tools: Tools) -> Tools:
        """Return the tools with what the setup command makes in place of what the user has."""
        if self._options.setup_cmd is None:
            return tools
        shown = tuple(path for path in tools.toolchain.read_only if not self._is_made(path))
        tools = replace(tools, toolchain=replace(tools.toolchain, read_only=shown))
        pytest = tools.pytest or "" if "pytest" in self._installed else tools.pytest
        modules = tuple(sorted({*tools.modules, *self._installed}))
        return replace(tools, pytest=pytest, modules=modules)

    def _is_made(self, path: Path) -> bool:
        """Whether the setup command makes a folder of the work tree, such as node_modules."""
        root = self._snapshot.root.resolve()
        if not path.is_relative_to(root):
            return False
        if path.name == "node_modules" and not _INSTALLS.search(self._options.setup_cmd or ""):
            return False
        return not self._is_set_up or os.path.lexists(
            self._trees.base().path / path.relative_to(root)
        )


def _installed_in(tree: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    prefix = tree / _PREFIX
    if prefix.is_symlink():
        return (), ()
    paths = (folder for pattern in _PACKAGES for folder in prefix.glob(pattern))
    folders = sorted(folder for folder in paths if folder.is_dir())
    names = {path.name.partition(".")[0] for folder in folders for path in folder.iterdir()}
    return tuple(str(folder.relative_to(tree)) for folder in folders), tuple(sorted(names))


def _suite_key(suite: Suite) -> str:
    """Return a suite as text; all its fields but `why` are part of it."""
    return repr(replace(suite, why=""))
