"""Runners for Python: pytest, unittest and Django's, make, and any command line.

Ids are paths of the tree, wherever a runner is started. Django's runners are built on unittest:
`inside/patchshot_unittest.py` runs them and records unittest's results, whatever they print.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from agent.repository import is_test_path
from agent.types import TestRun
from agent.types.protocols import Snapshot
from agent.verify.path_rules import is_python_test
from agent.verify.reports import make_run
from agent.verify.runners.base import (
    COMMAND,
    INSIDE,
    LOADS_PLUGIN,
    PLUGIN,
    PROGRAMS,
    PYTHON,
    RunContext,
    Runner,
    Suite,
    as_argument,
    below,
    joined,
    python_command,
    with_variables,
)
from sandbox import Command, RunResult

_LANGUAGES = ("python", "cython")


def _python_files(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    mine = (below(suite.cwd, path) for path in paths if path.endswith(".py"))
    return tuple(dict.fromkeys(path for path in mine if path))


def _read_signed(suite: Suite, command: Command, result: RunResult) -> TestRun:
    return make_run(command, result)


# ------------------------------------------------------------------------- pytest, unittest

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
    *("-p", "no:randomly"),
    *("-p", "no:random_order"),
)

# The project's own options name plugins that are not installed, or that do not work with the
# installed pytest.
_WITHOUT_ADDOPTS = ("-o", "addopts=", "-o", "required_plugins=")

# In `Suite.settings`: pytest did not start with those options, which are left out now.
_PLAIN = "without-addopts"


def _detect_pytest(snapshot: Snapshot, _: Sequence[str] = ()) -> Suite | None:
    if any(map(is_python_test, snapshot.files)):
        return Suite("pytest", "the project has Python test files")
    return None


def _run_pytest(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    argv = (
        *(str(context.tools.needed().path), "-m", "pytest", "-p", PLUGIN),
        *_OPTIONS,
        f"--rootdir={context.root}",
        *suite.argv,
        *(_WITHOUT_ADDOPTS if _PLAIN in suite.settings else ()),
        *map(as_argument, targets),
    )
    return python_command(argv, suite, context)


def _without_addopts(suite: Suite, run: TestRun) -> Suite | None:
    refused = run.exit_code in _DID_NOT_START and not run.outcomes
    if not refused or _PLAIN in suite.settings:
        return None
    return replace(suite, settings={**suite.settings, _PLAIN: "yes"})


def _run_hooked(suite: Suite, words: Sequence[str], context: RunContext) -> Command:
    script = str(INSIDE / "patchshot_unittest.py")
    command = python_command((str(context.tools.needed().path), script, *words), suite, context)
    return with_variables(command, {"PATCHSHOT_ROOT": str(context.root)})


def _run_unittest(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    words = [*map(as_argument, targets)] or ("--hook", "-m", "unittest", "discover")
    return _run_hooked(suite, words, context)


PYTEST = Runner(
    name="pytest",  # the first choice for Python: it runs unittest's tests too
    languages=_LANGUAGES,
    detect=_detect_pytest,
    needs=(PYTHON,),
    targets=_python_files,
    command=_run_pytest,
    read=_read_signed,
    signs=True,
    again=_without_addopts,
)

UNITTEST = Runner(
    name="unittest",  # only a configuration names it
    needs=(PYTHON,),
    targets=_python_files,
    command=_run_unittest,
    read=_read_signed,
    signs=True,
)


# ---------------------------------------------------------------------------------- Django
# A project's `manage.py test`, and the `runtests.py` of a library. Labels are dotted module names
# (`django-admin help test`).

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
_DJANGO_OPTIONS = ("--parallel=1", "--verbosity=1")


def _detect_django(snapshot: Snapshot, _: Sequence[str] = ()) -> Suite | None:
    def suite(file: str, argv: tuple[str, ...], base: str = ".", cwd: str = ".") -> Suite:
        return Suite("django", f"the project has {file}", argv, cwd, settings={_BASE: base})

    if _RUNTESTS in snapshot.files:
        return suite(_RUNTESTS, (_RUNTESTS, *_DJANGO_OPTIONS), base="tests")
    files = [file for file in _CONFIGURATION if file in snapshot.files]
    if any(_PYTEST_DJANGO.search(snapshot.text(file)) for file in files):
        return None
    if _OWN_RUNTESTS in snapshot.files and "django" in snapshot.text(_OWN_RUNTESTS):
        return suite(_OWN_RUNTESTS, (_OWN_RUNTESTS,))
    for path in sorted(filter(_may_manage, snapshot.files)):
        if "django" in snapshot.text(path):
            folder = str(PurePosixPath(path).parent)
            return suite(path, (_MANAGE, "test", "--no-input", *_DJANGO_OPTIONS), cwd=folder)
    return None


def _may_manage(path: str) -> bool:
    return PurePosixPath(path).name == _MANAGE and path.count("/") <= 1 and not is_test_path(path)


def _label_base(suite: Suite) -> str:
    return joined(suite.cwd, suite.settings.get(_BASE, "."))


def _labels(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return labels: `tests/admin_views/test_forms.py` is `admin_views.test_forms`."""
    mine = (below(_label_base(suite), path) for path in paths if path.endswith(".py"))
    labels = (path.removesuffix(".py").replace("/", ".") for path in mine if path)
    return tuple(dict.fromkeys(label.removesuffix(".__init__") for label in labels))


def _run_django(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    return _run_hooked(suite, ("--hook", *suite.argv, *targets), context)


def _django_id(suite: Suite, name: str) -> str:
    printed = _PRINTED.fullmatch(name.strip())
    if printed is None:
        return name
    method, dotted = printed[1], printed[2].removesuffix(f".{printed[1]}")
    module, _, case = dotted.rpartition(".")
    path = joined(_label_base(suite), module.replace(".", "/"))
    return f"{path}.py::{case}::{method}"


DJANGO = Runner(
    name="django",
    languages=_LANGUAGES,
    detect=_detect_django,
    needs=(PYTHON,),
    targets=_labels,
    command=_run_django,
    read=_read_signed,
    signs=True,
    test_id=_django_id,
)


# --------------------------------------------------------------------- command lines, make


def _run_command(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    environment = dict(context.tools.toolchain.environment)
    if suite.cwd != ".":
        environment["PYTEST_ADDOPTS"] = shlex.quote(f"--rootdir={context.root}")
    command = python_command(suite.argv, suite, context, environment)
    return with_variables(command, LOADS_PLUGIN)


def read_command(suite: Suite, command: Command, result: RunResult) -> TestRun:
    """Read pytest's report if the command started pytest, else its exit code alone."""
    return make_run(command, result, opaque=True)


# In the order in which make looks for them (GNU make, "What Name to Give Your Makefile").
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_GOALS = ("test", "tests", "check")
_RULE = re.compile(r"^([A-Za-z][\w .-]*)::?(?![:=])", re.MULTILINE)


def _detect_make(snapshot: Snapshot, _: Sequence[str] = ()) -> Suite | None:
    for file in (name for name in _MAKEFILES if name in snapshot.files):
        goals = {goal for rule in _RULE.findall(snapshot.text(file)) for goal in rule.split()}
        for goal in (goal for goal in _GOALS if goal in goals):
            return Suite("make", f"{file} has the goal {goal}", ("make", goal))
    return None


ANY_COMMAND = Runner(
    name=COMMAND,  # only the user or an environment names it
    needs=(PYTHON,),
    optional=PROGRAMS,
    command=_run_command,
    read=read_command,
    selects=False,
)

MAKE = Runner(
    name="make",
    detect=_detect_make,
    needs=(PYTHON, "make"),
    optional=PROGRAMS,
    command=_run_command,
    read=read_command,
    selects=False,
)
