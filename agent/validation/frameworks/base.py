"""The seam between what a project runs its tests with and what judges the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.protocols import Snapshot
from agent.types import TestRun
from agent.validation.interpreter import Tools
from agent.validation.runners import Place
from sandbox.types import Command, Limits, RunResult


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

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """What to name on the command line so that these test files run, in order, once each.

        Files that are not this framework's are left out; () means that none is.
        """
        ...

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """The command for the sandbox."""
        ...

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """Outcomes by test id. Never raises: what is not as it should be shows in `ended`."""
        ...
