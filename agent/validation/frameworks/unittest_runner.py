"""unittest through our own runner: where the project says so, or pytest cannot be imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.protocols import Snapshot
from agent.types import TestRun
from agent.validation.frameworks.base import PythonFiles, Suite
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.runners import INSIDE, Place, python_command, unittest_command
from agent.validation.reports.report import make_run
from sandbox.types import Command, Limits, RunResult


@dataclass(frozen=True, slots=True)
class Unittest(PythonFiles):
    """`patchshot_unittest.py` on test files."""

    name: str = "unittest"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Never by its files: pytest runs unittest's tests. Configuration may name it."""
        return None

    def seals(self, suite: Suite) -> bool:
        """Our runner does."""
        return True

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """Raises SandboxError where no interpreter works. No targets: what discovery finds."""
        interpreter = tools.needed()
        environment = {**suite.environment, "PATCHSHOT_ROOT": str(place.root)}
        if targets:
            return unittest_command(interpreter, targets, place, limits, environment=environment)
        hook = str(INSIDE / "patchshot_hook.py")
        argv = (str(interpreter.path), hook, "-m", "unittest", "discover")
        return python_command(argv, interpreter, place, limits, environment=environment)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The report of our runner."""
        return make_run(command.argv, result, own_runner=True)
