"""Builds the commands that a target's Python runs inside the sandbox. Pure: nothing is run here.

The frameworks (`agent.validation.frameworks`) build on it; so do the probe and the syntax check.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agent.errors import ConfigurationError
from agent.validation.frameworks.interpreter import Interpreter
from sandbox.environment import PATH
from sandbox.types import Command, Limits

# A folder of its own: it joins the target's import path, where other names could hide the target's.
INSIDE = Path(__file__).resolve().parent.parent / "inside"

PLUGIN = "patchshot_pytest"

# For commands that may start a pytest somewhere: it loads our plugin by itself.
LOADS_PLUGIN: Mapping[str, str] = MappingProxyType({"PYTEST_PLUGINS": PLUGIN, "PY_COLORS": "0"})

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)

# pytest's own: the command line or the configuration cannot be used.
PYTEST_USAGE_ERROR = 4

_PYTEST_OPTIONS = (
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

# Options of plugins that are not installed here: the project's additions are left out.
_WITHOUT_ADDOPTS = ("-o", "addopts=", "-o", "required_plugins=")

_PROBE = """
import json, sys
try:
    import pytest
    found = str(pytest.__version__)
except BaseException:
    found = None
print(json.dumps([sys.version.split()[0], found]))
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: the tree as it is seen there, and its folders on the import path."""

    root: Path
    import_roots: tuple[str, ...] = (".",)


def pytest_command(
    interpreter: Interpreter,
    paths: Sequence[str],
    place: Place,
    limits: Limits,
    *,
    without_addopts: bool = False,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Command:
    """`python -m pytest` on test files, with the project's configuration and its own `options`."""
    more = _WITHOUT_ADDOPTS if without_addopts else ()
    argv = (
        *(str(interpreter.path), "-m", "pytest", "-p", PLUGIN),
        *_PYTEST_OPTIONS,
        f"--rootdir={place.root}",
        *options,
        *more,
        *map(as_argument, paths),
    )
    return python_command(argv, interpreter, place, limits, environment=environment)


def unittest_command(
    interpreter: Interpreter,
    paths: Sequence[str],
    place: Place,
    limits: Limits,
    *,
    environment: Mapping[str, str] | None = None,
) -> Command:
    """Our unittest runner on test files."""
    script = str(INSIDE / "patchshot_unittest.py")
    argv = (str(interpreter.path), script, *map(as_argument, paths))
    return python_command(argv, interpreter, place, limits, environment=environment)


def user_command(
    argv: tuple[str, ...], interpreter: Interpreter, place: Place, limits: Limits
) -> Command:
    """The user's own command. Whatever pytest it starts loads our plugin by itself."""
    return python_command(argv, interpreter, place, limits, environment=LOADS_PLUGIN)


def probe_command(interpreter: Interpreter, limits: Limits) -> Command:
    """Prints `["3.11.7", "8.3.1"]`: the versions of Python and pytest, or null for no pytest."""
    argv = (str(interpreter.path), "-I", "-c", _PROBE)
    return Command(argv, limits=limits, read_only=interpreter.read_only)


def syntax_command(interpreter: Interpreter, paths: Sequence[str], limits: Limits) -> Command:
    """Prints which of the files the interpreter cannot parse, as JSON."""
    script = str(INSIDE / "patchshot_syntax.py")
    argv = (str(interpreter.path), "-I", script, *map(as_argument, paths))
    return Command(argv, limits=limits, read_only=(*interpreter.read_only, INSIDE))


def is_this_python(version: str) -> bool:
    """Whether a version has the grammar of the interpreter that runs us."""
    return version.split(".")[:2] == [str(part) for part in sys.version_info[:2]]


def split_command(command: str) -> tuple[str, ...]:
    """The arguments of a command line as a shell would split it; no shell is used.

    Raises ConfigurationError when it is empty or its quotes do not match.
    """
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigurationError(f"--test-cmd: {error}; quote it as for a shell") from None
    if not argv:
        raise ConfigurationError("--test-cmd: the command is empty; leave it out to choose tests")
    return argv


def python_command(
    argv: tuple[str, ...],
    interpreter: Interpreter,
    place: Place,
    limits: Limits,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: str = ".",
    folders: Sequence[str] = (),
    read_only: Sequence[Path] = (),
) -> Command:
    """A command in the surroundings of the target's Python, with a report.

    `environment` may come from the project: what the import of our own files rests on is not its to
    set. `folders` come after the interpreter's own on PATH.
    """
    path = [*(place.root / root for root in place.import_roots), INSIDE]
    given = {name: text for name, text in (environment or {}).items() if _may_be_set(name, text)}
    own = {
        "PATH": ":".join(dict.fromkeys((str(interpreter.path.parent), *folders, *PATH.split(":")))),
        "PYTHONPATH": ":".join(map(str, path)),
        # The byte code of installed packages is used: compiling pytest anew would double the time
        # of a run. The tree holds none (see agent.validation.running.bench), and none is written.
        "PYTHONPYCACHEPREFIX": "",
    }
    return Command(
        argv,
        environment={**given, **own},
        cwd=cwd,
        limits=limits,
        read_only=tuple(dict.fromkeys((*interpreter.read_only, INSIDE, *read_only))),
        report=True,
    )


def as_argument(path: str) -> str:
    """A path that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def _may_be_set(name: str, text: str) -> bool:
    return (
        _VARIABLE.fullmatch(name) is not None
        and "\0" not in text
        and not name.startswith(("SANDBOX_", "LD_"))
        and name not in ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    )
