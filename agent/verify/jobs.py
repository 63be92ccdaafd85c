"""What is run: a suite of tests with its files and limits, and the options of all runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.types import FileChange, KnownTests
from agent.verify.choosing import DEFAULT_LIMIT
from agent.verify.judging.execution import ChangedCode
from agent.verify.runners.base import Suite


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
        if not self.environment:
            return suite
        return replace(suite, environment={**suite.environment, **self.environment})

    def import_roots(self, found: tuple[str, ...]) -> tuple[str, ...]:
        """Return the folders for the import path; `paths` come right after the tree's root."""
        return tuple(dict.fromkeys((*found[:1], *self.paths, *found[1:])))


@dataclass(frozen=True, slots=True)
class ValidationOptions:
    """The user's choices. `timeout` is in seconds for one run; `virtual_env` is VIRTUAL_ENV.

    If `known` tests are given, they alone decide the verdict. Files that match a pattern of `allow`
    may steer the tests that judge a patch. `setup_cmd` prepares the base once, with the network if
    `setup_network` says so; what it leaves is in the trees of all runs. `cache` is the folder for
    runs of the base; None disables the cache on disk. `search_path` is PATH; None means PATH of
    this process.
    """

    python: Path | None = None
    test_cmd: str | None = None
    setup_cmd: str | None = None
    setup_network: bool = False
    timeout: float = 300.0
    max_test_files: int = DEFAULT_LIMIT
    virtual_env: str | None = None
    search_path: str | None = None
    known: KnownTests | None = None
    allow: tuple[str, ...] = ()
    cache: Path | None = None
    setup: ProjectSetup = field(default_factory=ProjectSetup)


@dataclass(frozen=True, slots=True)
class SuiteJob:
    """What to run: `targets` of a suite; no targets mean the whole suite.

    `import_roots` are folders of the tree that go on the import path. `label` is for progress.
    """

    suite: Suite
    targets: tuple[str, ...] = ()
    import_roots: tuple[str, ...] = (".",)
    label: str = "tests"


@dataclass(frozen=True, slots=True)
class TraceOrder:
    """A request for a run under other conditions that records what its tests execute.

    The tree is at another path, hashing and random numbers differ, tests run in the opposite order,
    and `sys.argv` is empty. `code` is what is looked for and `tests` are the ids that decide. Only
    runners that sign their report follow it.
    """

    code: ChangedCode
    tests: tuple[str, ...]

    def as_json(self) -> bytes:
        """Return it in the form of `inside/patchshot_trace.py`."""
        order = {
            "lines": self.code.by_path,
            "names": sorted(self.code.names),
            "files": sorted(self.code.files),
            "tests": list(self.tests),
            "reverse": True,
            "seed": 1,
        }
        return json.dumps(order).encode("ascii")


@dataclass(frozen=True, slots=True)
class Task:
    """A job on the base with `changes` written over it; `where` names that tree for progress.

    `again` runs it even if the result is cached. `order` asks for other conditions.
    """

    job: SuiteJob
    changes: tuple[FileChange, ...]
    where: str
    again: bool = False
    order: TraceOrder | None = None
