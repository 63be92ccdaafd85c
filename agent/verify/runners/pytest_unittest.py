"""pytest, the first choice for Python because it runs unittest's tests too, and unittest itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.types import TestRun
from agent.types.protocols import Snapshot
from agent.verify.path_rules import is_python_test
from agent.verify.reports.run_results import make_run
from agent.verify.runners.base import PythonFileRunner, RunContext, Suite
from agent.verify.runners.commands import INSIDE, PLUGIN, as_argument, python_command
from sandbox import Command, RunResult

# In `Suite.settings`: the project's own options name plugins that are not installed, or that do not
# work with the installed pytest.
_WITHOUT_ADDOPTS = "without-addopts"

# pytest exits with them when a plugin fails to start (internal error), and when the command line or
# the configuration cannot be used: https://docs.pytest.org/en/stable/reference/exit-codes.html
_DID_NOT_START = (3, 4)

_OPTIONS = (
    "-q",
    "--color=no",
    "--tb=short",
    # One module that cannot be imported must not silence the others.
    "--continue-on-collection-errors",
    # A project's own `-x` would hide all tests after the first that was red before.
    "--maxfail=0",
    # The same order twice, or a test that depends on it looks like a regression.
    "-p",
    "no:randomly",
    "-p",
    "no:random_order",
)


class Pytest(PythonFileRunner):
    """`python -m pytest` with our plugin and the project's own configuration."""

    name = "pytest"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        if not any(map(is_python_test, snapshot.files)):
            return None
        return Suite(self.name, "the project has Python test files")

    def signs(self, suite: Suite) -> bool:
        return True

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        without = _WITHOUT_ADDOPTS in suite.settings
        argv = (
            *(str(context.tools.needed().path), "-m", "pytest", "-p", PLUGIN),
            *_OPTIONS,
            f"--rootdir={context.root}",
            *suite.argv,
            *(("-o", "addopts=", "-o", "required_plugins=") if without else ()),
            *map(as_argument, targets),
        )
        return python_command(argv, context, environment=suite.environment, cwd=suite.cwd)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        return make_run(command.argv, result, own_runner=True)

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        """Leave out the project's `addopts` when pytest did not start with them."""
        refused = run.exit_code in _DID_NOT_START and not run.outcomes
        if not refused or _WITHOUT_ADDOPTS in suite.settings:
            return None
        return replace(suite, settings={**suite.settings, _WITHOUT_ADDOPTS: "yes"})


class Unittest(PythonFileRunner):
    """`patchshot_unittest.py` on test files; unittest's discovery for the whole suite."""

    name = "unittest"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        return None  # pytest runs unittest's tests; only a configuration names unittest

    def signs(self, suite: Suite) -> bool:
        return True

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        python = str(context.tools.needed().path)
        argv = (python, str(INSIDE / "patchshot_unittest.py"), *map(as_argument, targets))
        if not targets:
            argv = (python, str(INSIDE / "patchshot_hook.py"), "-m", "unittest", "discover")
        environment = {**suite.environment, "PATCHSHOT_ROOT": str(context.root)}
        return python_command(argv, context, environment=environment, cwd=suite.cwd)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        return make_run(command.argv, result, own_runner=True)
