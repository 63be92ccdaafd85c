"""A command that somebody else wrote: the user's `--test-cmd`, or one of the project's own.

It is run as it stands. A pytest that it starts loads our plugin and reports its tests; without a
report the command counts as one test, which passes with exit code 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from agent.protocols import Snapshot
from agent.types import TestRun
from agent.validation.frameworks.base import PYTHON, Common, Suite
from agent.validation.frameworks.commands import tool_command
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.runners import LOADS_PLUGIN, Place, python_command
from agent.validation.reports.report import make_run
from sandbox.types import Command, Limits, RunResult

COMMAND = "command"

# What a command line's first word needs beside itself.
_NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "node": ("node",),
        "npm": ("npm", "node"),
        "npx": ("npm", "node"),
        "yarn": ("yarn", "node"),
        "pnpm": ("pnpm", "node"),
        "go": ("go",),
        "cargo": ("cargo",),
        "mvn": ("mvn", "java"),
        "make": ("make",),
    }
)


@dataclass(frozen=True, slots=True)
class Opaque(Common):
    """Runs `suite.argv` as it stands; targets mean nothing to it."""

    name: str = COMMAND

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Never: somebody names the command."""
        return None

    def programs(self, suite: Suite) -> tuple[str, ...]:
        """Python, and what the command's first word is known to need."""
        return (PYTHON, *_NEEDS.get(PurePosixPath(suite.argv[0]).name, ()))

    def selects(self, suite: Suite) -> bool:
        """It runs what it runs."""
        return False

    def seals(self, suite: Suite) -> bool:
        """It may start several runners, or none: there is one key."""
        return False

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """None."""
        return ()

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """The command with the target's Python, and its tools, first on PATH.

        Raises SandboxError where it needs Python and no interpreter works.
        """
        chain = tools.toolchain
        if PYTHON not in self.programs(suite):
            return tool_command(suite.argv, suite, chain, limits)
        interpreter = tools.needed()
        return python_command(
            suite.argv,
            interpreter,
            place,
            limits,
            environment={**chain.environment, **suite.environment, **LOADS_PLUGIN},
            cwd=suite.cwd,
            folders=chain.folders(),
            read_only=chain.read_only,
        )

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The report of a pytest that it started, or its exit code."""
        return make_run(command.argv, result, own_runner=False, opaque=True)
