"""Whether a repair's tests fail before it and pass after it, found by running them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent.repository.git import open_repository
from agent.types import FileChange, KnownTests, Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify import ProjectSetup
from agent.verify.environments import Environments, surroundings
from agent.verify.executor import SuiteExecutor, Task, ValidationOptions
from agent.verify.plan import import_roots
from benchmarks.instances.history import Repair
from sandbox.types import Ended, Sandbox

RUN_SECONDS = 120.0
"""Of one run: what takes longer makes evaluations of the whole set a matter of hours."""

MOST_FLAKY = 0.02
"""Share of the tests that pass in one run after the repair and not in the other."""

LEAST_KEPT = 3
"""Tests that pass before and after: fewer would not notice a patch that breaks something."""

_MOST_TESTS = 2_000
_EXECUTABLE = "100755"


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a commit makes no instance."""

    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """The interpreter and the surroundings of a tree's tests. `words` describe both in one line."""

    python: Path
    surroundings: ProjectSetup
    words: str


def prepare(environments: Environments, repo: str, snapshot: Snapshot) -> Prepared:
    """Build what is missing for the tests of a tree. Raises ConfigurationError."""
    environment = environments.environment(repo)
    around = surroundings(environment, snapshot)
    python, words = environments.build(environment)
    return Prepared(python, around, words)


def verify(
    repository: Path, snapshot: Snapshot, repair: Repair, around: Prepared, sandbox: Sandbox
) -> KnownTests | Rejected:
    """The deciding tests of a repair: run before it once, after it twice.

    `snapshot` is that of its parent. Raises RepositoryError, SandboxError.
    """
    paths = (*repair.parts.tests, *repair.parts.sources)
    changes = _changes(repository, repair.commit, paths)
    tests = tuple(change for change in changes if change.path in repair.parts.tests)
    options = ValidationOptions(
        python=around.python, timeout=RUN_SECONDS, setup=around.surroundings
    )
    cancel = threading.Event()
    with closing(SuiteExecutor(snapshot, sandbox, options, lambda _: None)) as bench:
        suite, _ = bench.suite(repair.parts.sources, cancel)
        roots = import_roots(snapshot, changes)
        cases = tuple(c.path for c in tests if c.path in repair.parts.cases and c.after)
        job = bench.job(suite, cases, roots, "tests of the repair")
        before = Task(job, tests, "before")
        after = Task(job, changes, "after")
        runs = bench.run((before, after, after), cancel)
    return judge(*runs)


def judge(before: TestRun, after: TestRun, again: TestRun) -> KnownTests | Rejected:
    """The deciding tests by three runs; those that do not do the same twice are none. Pure."""
    for name, run in (("before", before), ("after", after), ("again", again)):
        if run.ended != Ended.EXITED or not run.outcomes:
            return Rejected(f"{name}: {run.ended}, {len(run.outcomes)} tests")
    either = _passing(after) | _passing(again)
    steady = _passing(after) & _passing(again)
    if len(either) - len(steady) > MOST_FLAKY * len(either):
        return Rejected(f"{len(either) - len(steady)} of {len(either)} tests are flaky")
    if len(steady) > _MOST_TESTS:
        return Rejected(f"{len(steady)} tests")
    red = (Outcome.FAILED, Outcome.ERROR)
    turned = tuple(sorted(test for test in steady if before.outcomes.get(test) in red))
    kept = tuple(sorted(steady & _passing(before)))
    if not turned or len(kept) < LEAST_KEPT:
        return Rejected(f"{len(turned)} turn, {len(kept)} go on passing")
    return KnownTests(turned, kept)


def _passing(run: TestRun) -> set[str]:
    return {test for test, outcome in run.outcomes.items() if outcome is Outcome.PASSED}


def _changes(repository: Path, commit: str, paths: Sequence[str]) -> tuple[FileChange, ...]:
    """The files as the commit has them; None for those that it deletes."""
    wanted = {path.encode("utf-8", "surrogateescape"): path for path in paths}
    with open_repository(repository) as git:
        entries = {
            wanted[entry.path]: entry
            for entry in git.tree(commit, sizes=False)
            if entry.path in wanted
        }
        contents = git.blobs(sorted({entry.oid for entry in entries.values()}))
    return tuple(
        FileChange(path, b"", contents[entries[path].oid], entries[path].mode == _EXECUTABLE)
        if path in entries
        else FileChange(path, b"", None)
        for path in paths
    )
