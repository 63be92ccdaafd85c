"""Django's own runner: a project's `manage.py test`, and the `runtests.py` of a library.

Both are built on unittest: `inside/patchshot_hook.py` runs them and records unittest's results,
independent of what the runner prints. Labels are dotted module names (`django-admin help test`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from agent.repository import is_test_path
from agent.types import TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports.run_results import make_run
from agent.verify.runners.base import (
    PYTHON,
    PYTHON_LANGUAGES,
    BaseRunner,
    RunContext,
    Suite,
    below,
    joined,
)
from agent.verify.runners.commands import INSIDE, python_command
from sandbox import Command, RunResult

_MANAGE = "manage.py"
_RUNTESTS = "tests/runtests.py"
_OWN_RUNTESTS = "runtests.py"  # a common name in reusable applications

# pytest is preferred where the project has set it up for Django.
_PYTEST_DJANGO = re.compile(r"DJANGO_SETTINGS_MODULE|pytest[-_]django|django_find_project")
_CONFIGURATION = ("pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini", "conftest.py")

# `test_method (app.tests.Case)`, and since Python 3.11 `test_method (app.tests.Case.test_method)`.
_PRINTED = re.compile(r"(\w+) \(([\w.]+)\)")

# In `Suite.settings`: the folder that labels are relative to, from the suite's own folder.
_BASE = "labels-from"

# One process: results of other processes would come late, or not at all.
_OPTIONS = ("--parallel=1", "--verbosity=1")


class Django(BaseRunner):
    """Labels on the command line of `manage.py test` or `tests/runtests.py`."""

    name = "django"
    languages = PYTHON_LANGUAGES

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Look for `tests/runtests.py`, `runtests.py` or `manage.py`; prefer pytest for Django."""
        if _RUNTESTS in snapshot.files:
            return self._suite(_RUNTESTS, (_RUNTESTS, *_OPTIONS), base="tests")
        files = [file for file in _CONFIGURATION if file in snapshot.files]
        if any(_PYTEST_DJANGO.search(snapshot.text(file)) for file in files):
            return None
        if _is_of_django(snapshot, _OWN_RUNTESTS):
            return self._suite(_OWN_RUNTESTS, (_OWN_RUNTESTS,))
        for path in sorted(path for path in snapshot.files if _may_manage(path)):
            if _is_of_django(snapshot, path):
                folder = str(PurePosixPath(path).parent)
                return self._suite(path, (_MANAGE, "test", "--no-input", *_OPTIONS), cwd=folder)
        return None

    def _suite(self, file: str, argv: tuple[str, ...], base: str = ".", cwd: str = ".") -> Suite:
        return Suite(self.name, f"the project has {file}", argv, cwd, settings={_BASE: base})

    def programs(self, suite: Suite) -> tuple[str, ...]:
        return (PYTHON,)

    def signs(self, suite: Suite) -> bool:
        return True

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Return labels: `tests/admin_views/test_forms.py` is `admin_views.test_forms`."""
        base = _base(suite)
        mine = (below(base, path) for path in paths if path.endswith(".py"))
        labels = (".".join(PurePosixPath(path).with_suffix("").parts) for path in mine if path)
        return tuple(dict.fromkeys(label.removesuffix(".__init__") for label in labels))

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        hook = str(INSIDE / "patchshot_hook.py")
        argv = (str(context.tools.needed().path), hook, *suite.argv, *targets)
        # Ids are paths of the tree, wherever the runner is started.
        environment = {**suite.environment, "PATCHSHOT_ROOT": str(context.root)}
        return python_command(argv, context, environment=environment, cwd=suite.cwd)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        return make_run(command.argv, result, own_runner=True)

    def test_id(self, suite: Suite, name: str) -> str:
        """Convert `test_method (app.tests.Case)`, as the runner prints it."""
        printed = _PRINTED.fullmatch(name.strip())
        if printed is None:
            return name
        method, dotted = printed[1], printed[2].removesuffix(f".{printed[1]}")
        module, _, case = dotted.rpartition(".")
        path = joined(_base(suite), module.replace(".", "/"))
        return f"{path}.py::{case}::{method}"


def _base(suite: Suite) -> str:
    return joined(suite.cwd, suite.settings.get(_BASE, "."))


def _may_manage(path: str) -> bool:
    """Whether it is a `manage.py` of the project, at the root or one folder down."""
    return PurePosixPath(path).name == _MANAGE and path.count("/") <= 1 and not is_test_path(path)


def _is_of_django(snapshot: Snapshot, path: str) -> bool:
    return path in snapshot.files and "django" in snapshot.text(path)
