"""Runners for Python: pytest, unittest and Django's; what tox and nox run; and any command line.

Ids are paths of the tree, wherever a runner is started. Django's runners are built on unittest:
`inside/patchshot_unittest.py` runs them and records unittest's results, whatever they print.
"""

from __future__ import annotations

import ast
import configparser
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from agent.patching import parse_python
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
    PYTHON,
    RunContext,
    Runner,
    Suite,
    as_argument,
    below,
    joined,
    parsed_toml,
    python_command,
)
from sandbox import Command, RunResult

_LANGUAGES = ("python", "cython")


def _python_files(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    mine = (below(suite.cwd, path) for path in paths if path.endswith(".py"))
    return tuple(dict.fromkeys(path for path in mine if path))


def _read_signed(suite: Suite, command: Command, result: RunResult) -> TestRun:
    return make_run(command.argv, result, own_runner=True)


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

_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py", "tests/conftest.py")
_PYTEST_TABLES = re.compile(r"^\[(?:tool\.pytest|tool:pytest|pytest)\b", re.MULTILINE)


def _detect_pytest(snapshot: Snapshot) -> Suite | None:
    """Return what tox or nox runs of the two; pytest with their options if it is set up."""
    files = snapshot.files
    suites = [suite for suite in _configured(snapshot) if suite.runner != COMMAND]
    tables = (file for file in ("pyproject.toml", "setup.cfg", "tox.ini") if file in files)
    if any(file in files for file in _PYTEST_FILES) or any(
        _PYTEST_TABLES.search(snapshot.text(file)) for file in tables
    ):
        suites = [suite for suite in suites if suite.runner == "pytest"]
    if suites:
        return suites[0]
    if any(map(is_python_test, files)):
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
    return python_command(argv, context, environment=suite.environment, cwd=suite.cwd)


def _without_addopts(suite: Suite, run: TestRun) -> Suite | None:
    refused = run.exit_code in _DID_NOT_START and not run.outcomes
    if not refused or _PLAIN in suite.settings:
        return None
    return replace(suite, settings={**suite.settings, _PLAIN: "yes"})


def _run_hooked(suite: Suite, words: Sequence[str], context: RunContext) -> Command:
    """Build a command in which our runner runs test files or, with `--hook`, another program."""
    script = str(INSIDE / "patchshot_unittest.py")
    argv = (str(context.tools.needed().path), script, *words)
    environment = {**suite.environment, "PATCHSHOT_ROOT": str(context.root)}
    return python_command(argv, context, environment=environment, cwd=suite.cwd)


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


def _detect_django(snapshot: Snapshot) -> Suite | None:
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
    """Whether it is a `manage.py` of the project, at the root or one folder down."""
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
    """Convert `test_method (app.tests.Case)`, as the runner prints it."""
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
    environment = {**context.tools.toolchain.environment, **suite.environment, **LOADS_PLUGIN}
    if suite.cwd != ".":
        rootdir = shlex.quote(f"--rootdir={context.root}")
        environment = {"PYTEST_ADDOPTS": rootdir, **environment}
    return python_command(suite.argv, context, environment=environment, cwd=suite.cwd)


def read_command(suite: Suite, command: Command, result: RunResult) -> TestRun:
    """Read pytest's report if the command started pytest, else its exit code alone."""
    return make_run(command.argv, result, own_runner=False, opaque=True)


# In the order in which make looks for them (GNU make, "What Name to Give Your Makefile").
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_GOALS = ("test", "tests", "check")
_RULE = re.compile(r"^([A-Za-z][\w .-]*)::?(?![:=])", re.MULTILINE)


def _detect_make(snapshot: Snapshot) -> Suite | None:
    for file in (name for name in _MAKEFILES if name in snapshot.files):
        goals = {goal for rule in _RULE.findall(snapshot.text(file)) for goal in rule.split()}
        for goal in (goal for goal in _GOALS if goal in goals):
            return Suite("make", f"{file} has the goal {goal}", ("make", goal))
    return None


def _detect_command(snapshot: Snapshot) -> Suite | None:
    commands = (suite for suite in _configured(snapshot) if suite.runner == COMMAND)
    return next(commands, None)


ANY_COMMAND = Runner(
    name=COMMAND,
    languages=_LANGUAGES,
    detect=_detect_command,
    needs=(PYTHON,),
    command=_run_command,
    read=read_command,
    selects=False,
)

MAKE = Runner(
    name="make",
    detect=_detect_make,
    needs=(PYTHON, "make"),
    command=_run_command,
    read=read_command,
    selects=False,
)


# --------------------------------------------------------------- tox and nox, read and never run
# tox: `[testenv]` of `tox.ini`, `setup.cfg` or `legacy_tox_ini`. Commands with substitutions that
# mean something only in tox are left out. nox: the literal calls of `session.run`.

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")

# Words before the command proper: measuring, a display, an environment.
_WRAPPERS = frozenset({"coverage", "env", "nice", "time", "xvfb-run"})
_WRAPPER_OPTIONS_WITH_VALUE = ("-W", "-X", "-s", "--rcfile", "--source")

# Options of pytest for finding and importing tests. Other options select tests or change output.
_FINDING = re.compile(
    r"--(?:ds|dc|import-mode|pyargs|doctest-modules|asyncio-mode|strict-markers)\b.*"
)
_FINDING_WITH_VALUE = ("-c", "-o", "--ds", "--dc", "--import-mode", "--asyncio-mode")

# Other programs that run tests: the command is worth running as it stands.
_OTHER_RUNNERS = re.compile(
    r"behave|green|manage\.py|nose2|nosetests|robot|runtests\.py|stestr|trial|ward|zope-testrunner"
)

_MOST_CHARS = 200_000
_DEEPEST = 8  # substitutions may bring further ones

_FACTORS = re.compile(r"(?:[\w.!-]|\{[\w.,-]+\})+(?:,(?:[\w.!-]|\{[\w.,-]+\})+)*:\s+")
_INNERMOST = re.compile(r"\{([^{}]*)\}")

# Commands start in `{toxinidir}`, so a relative path means the same.
_SUBSTITUTIONS = {
    **dict.fromkeys(("envpython", "env_python"), "python"),
    **dict.fromkeys(("toxinidir", "tox_root", "package_root"), "."),
    **dict.fromkeys(("envtmpdir", "env_tmp_dir"), "/tmp"),  # noqa: S108 - a private tmpfs
    **{"envbindir": "", ":": ":", "/": "/", "": ""},
}


def _configured(snapshot: Snapshot) -> Iterator[Suite]:
    """Yield the suites that tox runs, then those of nox."""
    texts = {
        file: snapshot.text(file)[:_MOST_CHARS]
        for file in ("tox.ini", "pyproject.toml", "setup.cfg", "noxfile.py")
        if file in snapshot.files
    }
    table: object = parsed_toml(texts.get("pyproject.toml", ""))
    for name in ("tool", "tox", "legacy_tox_ini"):
        table = table.get(name) if isinstance(table, dict) else None
    texts["pyproject.toml"] = table if isinstance(table, str) else ""
    for file in ("tox.ini", "pyproject.toml", "setup.cfg"):
        yield from filter(None, _tox(file, texts.get(file, "")))
    yield from filter(None, _nox(texts.get("noxfile.py", "")))


def _suite(
    argv: Sequence[str], source: str, environment: Mapping[str, str], cwd: str = "."
) -> Suite | None:
    """Return the suite that a command runs, None for one that runs no tests."""
    words = _unwrapped(argv)
    why = f"{source} runs {' '.join(argv[:4])}"
    program = PurePosixPath(words[0]).name if words else ""
    if program in ("pytest", "py.test"):
        return Suite("pytest", why, _finding_options(words[1:]), ".", environment)
    if program == "unittest":
        return Suite("unittest", why, (), ".", environment)
    parts = [part for part in cwd.split("/") if part not in ("", ".")]
    if _OTHER_RUNNERS.fullmatch(program) and not cwd.startswith("/") and ".." not in parts:
        return Suite(COMMAND, why, tuple(argv), "/".join(parts) or ".", environment)
    return None


def _unwrapped(argv: Sequence[str]) -> Sequence[str]:
    """Drop the words before the runner: `coverage run -m pytest x` becomes `pytest x`."""
    words = list(argv)
    while words:
        name = PurePosixPath(words[0]).name
        if name in _WRAPPERS or _PYTHON.fullmatch(name):
            words.pop(0)
            # `-m` stays, because the runner follows it.
            while words and (words[0] == "run" or (words[0][0:1] == "-" and words[0] != "-m")):
                words = words[2 if words[0] in _WRAPPER_OPTIONS_WITH_VALUE else 1 :]
        elif words[0] == "-m" or "=" in words[0]:
            words.pop(0)
        else:
            break
    return words


def _finding_options(words: Sequence[str]) -> tuple[str, ...]:
    options: list[str] = []
    for word, value in zip(words, (*words[1:], None), strict=True):
        if word in _FINDING_WITH_VALUE:
            options += [word, value] if value is not None else []
        elif _FINDING.fullmatch(word):
            options.append(word)
    return tuple(options)


def _tox(file: str, text: str) -> Iterator[Suite | None]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are kept as they are
    try:
        parser.read_string(text)
    except (configparser.Error, AttributeError):
        return  # AttributeError: the parser's own fault, at a line that goes on after a bare name

    def lines(*names: str) -> list[str]:
        values = (parser.get("testenv", name, fallback="") or "" for name in names)
        return _substituted(next(filter(None, values), ""))

    pairs = (line.partition("=") for line in lines("setenv", "set_env") if not _FACTORS.match(line))
    environment = {name.strip(): text.strip() for name, equals, text in pairs if equals}
    cwd = "".join(lines("changedir", "change_dir")) or "."
    for line in lines("commands"):
        condition = _FACTORS.match(line)
        try:
            argv = shlex.split(line[condition.end() if condition else 0 :].lstrip("-!@ "), True)
        except ValueError:
            continue
        yield _suite(argv, f"{file} [testenv]", environment, cwd)


def _substituted(text: str) -> list[str]:
    """Substitute from the inside out; return the lines without an unknown reference."""

    def meaning(reference: re.Match[str]) -> str:
        kind, _, rest = reference[1].partition(":")
        if kind == "env":
            return rest.partition(":")[2]
        return rest if kind == "posargs" else _SUBSTITUTIONS.get(reference[1], "\0")

    text = text.replace("\\\n", " ")
    for _ in range(_DEEPEST):
        text = _INNERMOST.sub(meaning, text)
    return [line.strip() for line in text.split("\n") if not {"\0", "{"} & {*line}]


def _nox(text: str) -> Iterator[Suite | None]:
    """Yield the suites of the sessions. Sessions with 'test' in their name come first."""
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    sessions = [f for f in functions if any("session" in ast.dump(d) for d in f.decorator_list)]
    for function in sorted(sessions, key=lambda f: ("test" not in f.name, f.lineno)):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            if isinstance(call.func, ast.Attribute) and call.func.attr.startswith("run"):
                words = [_literal(word) for word in call.args if not isinstance(word, ast.Starred)]
                source = f"noxfile.py, session {function.name}"
                if None not in words:
                    yield _suite([*filter(None, words)], source, _literal_environment(call))


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _literal_environment(call: ast.Call) -> dict[str, str]:
    tables = (word.value for word in call.keywords if word.arg == "env")
    table = next((one for one in tables if isinstance(one, ast.Dict)), ast.Dict([], []))
    pairs = zip(map(_literal, table.keys), map(_literal, table.values), strict=True)
    return {name: text for name, text in pairs if name is not None and text is not None}
