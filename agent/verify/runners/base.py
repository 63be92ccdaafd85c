"""The interface of a test runner, and the values that it works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import ClassVar, Protocol

from agent.types import TestRun
from agent.types.protocols import Snapshot
from agent.verify.runners.programs import Finder, Tools
from sandbox import Command, Limits, RunResult

PYTHON_LANGUAGES = ("python", "cython")

PYTHON = "python"
"""In `Runner.programs`: the target's interpreter, which `agent.verify.tools` finds."""


@dataclass(frozen=True, slots=True)
class Suite:
    """How a project's tests are run: `runner` by name, `why` in words for the report.

    `argv` is the project's own command without targets, () where the runner brings its own (pytest,
    unittest). `cwd` is relative to the tree. `environment` comes from the project's configuration
    (tox's setenv, say) and is untrusted. `settings` carries values from `Runner.detect` to the
    other methods, under names of the runner's own.
    """

    runner: str
    why: str
    argv: tuple[str, ...] = ()
    cwd: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a command is built for: the tools, the tree's root inside the sandbox, the limits.

    `import_roots` are the folders of the tree that go on Python's import path.
    """

    tools: Tools
    root: Path
    limits: Limits
    import_roots: tuple[str, ...] = (".",)


class Runner(Protocol):
    """One way to run tests. Its methods run nothing, and all but the finders are pure."""

    @property
    def name(self) -> str: ...

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages (`agent.repository.language_of`) of the projects that may use this runner.

        () for a runner that is only used if the user or a configuration names it.
        """
        ...

    @property
    def finders(self) -> Mapping[str, Finder]:
        """A finder for each program that the runner needs, by the program's name on PATH."""
        ...

    @property
    def command_words(self) -> Mapping[str, tuple[str, ...]]:
        """The programs that a user's command line needs, by its first word."""
        ...

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Return the suite that the snapshot's files show, or None."""
        ...

    def programs(self, suite: Suite) -> tuple[str, ...]:
        """Return the required programs: `PYTHON`, or names that have a finder."""
        ...

    def selects(self, suite: Suite) -> bool:
        """Whether single test files can be named; otherwise every run covers the whole suite."""
        ...

    def signs(self, suite: Suite) -> bool:
        """Whether each report line ends with a signature (`reports.report_lines`).

        Only our own runners for Python sign their lines.
        """
        ...

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Return the command-line words that run these test files, in order and without repeats.

        The files may be new, so that the snapshot does not know them. Files that the runner cannot
        run are left out.
        """
        ...

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        """Build the command for the sandbox. Without targets it runs the whole suite.

        Raises SandboxError where it needs Python and no interpreter works.
        """
        ...

    def building(self, suite: Suite, context: RunContext) -> Command | None:
        """Return a command that builds the tests into a cache in the tree and runs nothing of it.

        It runs once, on the base; every run then has a copy of the cache. None where each run
        builds by itself or nothing has to be built.
        """
        ...

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """Read the outcomes by test id. Never raises: `ended` shows what is wrong.

        An id is the test file's path where that is known, then `::` and the test's name.
        """
        ...

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        """Return another way to run the same tests if the runner refused to start, or None.

        A runner refuses if the project's options name plugins that are not installed.
        """
        ...

    def test_id(self, suite: Suite, name: str) -> str:
        """Convert the runner's own name of a test to the id that `read` gives it."""
        ...


class BaseRunner:
    """Default answers; `Runner` documents the methods."""

    name: ClassVar[str]
    languages: ClassVar[tuple[str, ...]] = ()
    finders: ClassVar[Mapping[str, Finder]] = {}
    command_words: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def selects(self, suite: Suite) -> bool:
        return True

    def signs(self, suite: Suite) -> bool:
        return False

    def building(self, suite: Suite, context: RunContext) -> Command | None:
        return None

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        return None

    def test_id(self, suite: Suite, name: str) -> str:
        return name


class PythonFileRunner(BaseRunner):
    """A runner that Python starts on test files, given by their paths from the suite's folder."""

    def programs(self, suite: Suite) -> tuple[str, ...]:
        return (PYTHON,)

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        mine = (below(suite.cwd, path) for path in paths if path.endswith(".py"))
        return tuple(dict.fromkeys(path for path in mine if path))


def below(folder: str, path: str) -> str | None:
    """Return the path relative to a folder of the tree; None where it lies outside."""
    if folder == ".":
        return path
    pure = PurePosixPath(path)
    return str(pure.relative_to(folder)) if pure.is_relative_to(folder) else None


def joined(folder: str, path: str) -> str:
    """Return the path from the tree's root of a path in a folder of the tree."""
    if path == ".":
        return folder
    return path if folder == "." else f"{folder}/{path}"
