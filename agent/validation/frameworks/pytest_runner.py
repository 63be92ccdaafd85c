"""pytest, the first choice for Python: it runs unittest's tests too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.protocols import Snapshot
from agent.types import TestRun
from agent.validation.frameworks.base import PythonFiles, Suite
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.runners import PYTEST_USAGE_ERROR, Place, pytest_command
from agent.validation.layout import is_python_test
from agent.validation.reports.report import make_run
from sandbox.types import Command, Limits, RunResult

# The project's own options name plugins that are not installed: they are left out.
_WITHOUT_ADDOPTS = "without-addopts"


@dataclass(frozen=True, slots=True)
class Pytest(PythonFiles):
    """`python -m pytest` with our plugin and the project's own configuration."""

    name: str = "pytest"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Any project with a Python test file."""
        if not any(map(is_python_test, snapshot.files)):
            return None
        return Suite(self.name, "the project has Python test files")

    def seals(self, suite: Suite) -> bool:
        """Our plugin does."""
        return True

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """Raises SandboxError where no interpreter works."""
        interpreter = tools.needed()
        return pytest_command(
            interpreter,
            targets,
            place,
            limits,
            without_addopts=_WITHOUT_ADDOPTS in suite.settings,
            options=suite.argv,
            environment=suite.environment,
        )

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The report of our plugin."""
        return make_run(command.argv, result, own_runner=True)

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        """Without the project's `addopts`, when pytest refused its command line."""
        refused = run.exit_code == PYTEST_USAGE_ERROR and not run.outcomes
        if not refused or _WITHOUT_ADDOPTS in suite.settings:
            return None
        return replace(suite, settings={**suite.settings, _WITHOUT_ADDOPTS: "yes"})
