"""The seam between what a project runs its tests with and what judges the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.protocols import Snapshot
from agent.types import TestRun
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.runners import Place
from sandbox.types import Command, Limits, RunResult

PYTHON = "python"
"""In `Framework.programs`: the target's interpreter (see `frameworks.interpreter`)."""


@dataclass(frozen=True, slots=True)
class Suite:
    """How a project's tests are run: `framework` by name, `why` in words for the receipt.

    `argv` is the project's own command without targets, () where the framework brings its own
    (pytest, unittest). `cwd` is relative to the tree; `environment` comes from the project's
    configuration (tox's setenv, say) and is untrusted. `settings` holds what a framework needs
    from detection to command, by names of its own.
    """

    framework: str
    why: str
    argv: tuple[str, ...] = ()
    cwd: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


class Framework(Protocol):
    """One way to run tests. Pure: nothing is run here, and nothing on this machine is looked at."""

    @property
    def name(self) -> str: ...

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """The suite, from the files of the snapshot; None where it is not this framework's."""
        ...

    def programs(self, suite: Suite) -> tuple[str, ...]:
        """What must be there to run it: `PYTHON`, `node`, `cargo`, ...

        Those beside PYTHON are found by `frameworks.toolchain.find` and go into `Tools.toolchain`.
        """
        ...

    def selects(self, suite: Suite) -> bool:
        """Whether single test files can be named; otherwise every run is one of the whole suite."""
        ...

    def seals(self, suite: Suite) -> bool:
        """Whether each line of its report ends with a seal (`agent.validation.reports.seal`).

        Only our own runners for Python know how to; other reports are as the project's tool wrote.
        """
        ...

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """What to name on the command line so that these test files run, in order, once each.

        The files may be new, unknown to the snapshot. Those that are not this framework's are left
        out; () means that none is.
        """
        ...

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """The command for the sandbox. No targets: the whole suite."""
        ...

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """Outcomes by test id. Never raises: what is not as it should be shows in `ended`.

        An id begins with the test file's path where that is known, then `::` and the test's name.
        """
        ...

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        """Another way to run the same tests where this one was refused (its options name plugins
        that are not installed, say) and no test ran; None where there is none.
        """
        ...

    def test_id(self, suite: Suite, name: str) -> str:
        """The id that `read` gives a test which is named as the runner itself names it."""
        ...


class Common:
    """What most frameworks answer alike; `Framework` says what it means."""

    def selects(self, suite: Suite) -> bool:
        """Test files can be named."""
        return True

    def seals(self, suite: Suite) -> bool:
        """The report is the tool's own."""
        return False

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        """There is one way only."""
        return None

    def test_id(self, suite: Suite, name: str) -> str:
        """The runner's own names are the ids."""
        return name


class PythonFiles(Common):
    """What the runners answer alike that Python starts on its test files."""

    def programs(self, suite: Suite) -> tuple[str, ...]:
        """Python only."""
        return (PYTHON,)

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """The Python files themselves, once each."""
        return tuple(dict.fromkeys(path for path in paths if path.endswith(".py")))
