"""A row of the table of test runners, and the commands that run inside the sandbox.

Nothing is run here.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from agent.errors import ConfigurationError
from agent.shared.files import parse_toml
from agent.types import TestRun
from agent.types.protocols import Snapshot
from sandbox import PATH, Command, Limits, RunResult, SandboxError

PYTHON = "python"
"""In `Runner.needs`: the target's interpreter, which `agent.verify.tools` finds."""

COMMAND = "command"
"""The name of the runner of any command line."""

PROGRAMS = ("cargo", "go", "java", "make", "mvn", "node", "npm")
"""The programs that `agent.verify.tools` finds. Any command line may start them."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Programs by name, the host paths that they need to see, and their environment."""

    programs: Mapping[str, Path] = field(default_factory=dict)
    read_only: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def program(self, name: str) -> str:
        """Return the path of a program, or its bare name where it was not found."""
        return str(self.programs.get(name, name))

    def folders(self) -> tuple[str, ...]:
        """Return the folders of the programs, for PATH."""
        return tuple(dict.fromkeys(str(path.parent) for _, path in sorted(self.programs.items())))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of the target. `certain`: the user or the project chose it."""

    path: Path
    why: str
    read_only: tuple[Path, ...] = ()
    version: str = ""
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Tools:
    """What runs the tests of a suite; `problem` says why there is no interpreter."""

    interpreter: Interpreter | None
    pytest: str | None = None
    problem: str = ""
    modules: tuple[str, ...] = ()
    toolchain: Toolchain = field(default_factory=Toolchain)

    def needed(self) -> Interpreter:
        """Return the interpreter. Raises SandboxError with the `problem` where none works."""
        if self.interpreter is None:
            raise SandboxError(self.problem)
        return self.interpreter


@dataclass(frozen=True, slots=True)
class Suite:
    """How a project's tests are run: `runner` by name, `why` in words for the report.

    `argv` is the project's own command without targets, () where the runner brings its own.
    `cwd` is relative to the tree. `environment` comes from the project's configuration and is
    untrusted. `settings` carries values from `Runner.detect` to the runner's other functions.
    """

    runner: str
    why: str
    argv: tuple[str, ...] = ()
    cwd: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a command is built for. `root` is the tree's, inside the sandbox."""

    tools: Tools
    root: Path
    limits: Limits
    import_roots: tuple[str, ...] = (".",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """One way to run tests. Its functions run nothing.

    `command(suite, targets, context)` builds the command; without targets it runs the whole suite.
    It raises SandboxError where it needs Python and no interpreter works.
    `read(suite, command, result)` reads the outcomes by test id and never raises: `ended` shows
    what is wrong. An id is the test file's path where that is known, then `::` and the test's name.

    `languages` (`agent.repository.language_of`) are those of the projects that may use it.
    `detect` returns the suite that a snapshot's files show for a change to some paths. `needs` are
    the required programs, and `optional` those that it has where they are found: `PYTHON` or those
    that `agent.verify.tools` finds.
    `targets` returns the words that run these test files, in order and without repeats; the files
    may be new, so that the snapshot lacks them, and those that it cannot run are left out.
    `selects`: single test files can be named; otherwise every run covers the whole suite.
    `signs`: each report line ends with a signature; only our own runners for Python sign theirs.
    `building` returns a command that builds the tests into a cache in the tree once, on the base,
    and runs nothing of it; every run then has a copy of the cache.
    `again` returns another way to run the same tests if the runner refused to start.
    `test_id` converts the name that the runner prints of a test to the id that `read` gives it.
    `replay(suite, context, order)` runs tests of `replayed` files as plain code, as an order asks.
    """

    name: str
    command: Callable[[Suite, Sequence[str], RunContext], Command]
    read: Callable[[Suite, Command, RunResult], TestRun]
    languages: tuple[str, ...] = ()
    detect: Callable[[Snapshot, Sequence[str]], Suite | None] = lambda *_: None
    needs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    targets: Callable[[Suite, Sequence[str], Snapshot], tuple[str, ...]] = lambda *_: ()
    selects: bool = True
    signs: bool = False
    building: Callable[[Suite, RunContext], Command] | None = None
    again: Callable[[Suite, TestRun], Suite | None] = lambda suite, run: None
    test_id: Callable[[Suite, str], str] = lambda suite, name: name
    replay: Callable[[Suite, RunContext, Path], Command] = lambda *given: replay_command(*given)
    replayed: tuple[str, ...] = (".py",)


def below(folder: str, path: str) -> str | None:
    """Return the path relative to a folder of the tree; None where it lies outside."""
    if folder == ".":
        return path
    return path[len(folder) + 1 :] or "." if f"{path}/".startswith(f"{folder}/") else None


def joined(folder: str, path: str) -> str:
    """Return the path from the tree's root of a path in a folder of the tree."""
    if path == ".":
        return folder
    return path if folder == "." else f"{folder}/{path}"


def parsed_toml(text: str) -> Mapping[str, object]:
    """Return the table of a TOML text; an empty one where it is invalid."""
    try:
        return parse_toml(text.encode("utf-8", "surrogateescape"))
    except ValueError:
        return {}


# ----------------------------------------------------------------------------------- commands

# This folder is added to the target's import path, so it must not hide modules of the target.
INSIDE = Path(__file__).resolve().parent.parent / "inside"

PLUGIN = "patchshot_pytest"

# The file in the tree in which an order waits for our runner, which removes it.
ORDER_FILE = ".patchshot-order"

# The folder of the tree for what a compiler keeps. `path_rules` keeps patches out of it.
BUILD_CACHE = ".patchshot-build"

# `sandbox.host` sets 0 for all other runs.
_OTHER_HASH_SEED = "1"

# For commands that may start pytest somewhere: pytest then loads our plugin by itself.
LOADS_PLUGIN: Mapping[str, str] = MappingProxyType({"PYTEST_PLUGINS": PLUGIN, "PY_COLORS": "0"})

# node, the JVM and Go reserve address space that they never use: WebAssembly alone takes 10 GiB of
# it for one module. `Limits.memory` bounds what they really use.
_RESERVED = 64 * 1024**3

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)

# Variables that a project may not set: those of the loader, of our report, and of our own Python
# files.
_FORBIDDEN_PREFIXES = ("LD_", "SANDBOX_")
_FORBIDDEN = ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE")

_PROBE = """
import json, pkgutil, sys
names = sorted({module.name for module in pkgutil.iter_modules(sys.path)})[:10000]
try:
    import pytest
    found = str(pytest.__version__)
except BaseException:
    found = None
print(json.dumps([sys.version.split()[0], found, names]))
"""


def python_command(
    argv: Sequence[str],
    suite: Suite,
    context: RunContext,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Command:
    """Build a command with the target's Python first on PATH. Raises SandboxError without one.

    The suite's variables replace those of `environment`.
    """
    interpreter, toolchain = context.tools.needed(), context.tools.toolchain
    roots = [*(context.root / root for root in context.import_roots), INSIDE]
    folders = (str(interpreter.path.parent), *toolchain.folders(), *PATH.split(":"))
    own = {
        "PATH": ":".join(dict.fromkeys(folders)),
        "PYTHONPATH": ":".join(map(str, roots)),
        # The byte code of installed packages is used: compiling pytest anew would double the time
        # of a run. The tree holds none (see agent.verify.trees), and none is written.
        "PYTHONPYCACHEPREFIX": "",
    }
    shown = (*interpreter.read_only, INSIDE, *toolchain.read_only)
    return Command(
        tuple(argv),
        environment={**_allowed_environment({**environment, **suite.environment}), **own},
        cwd=suite.cwd,
        limits=context.limits,
        read_only=tuple(dict.fromkeys(shown)),
        report=True,
    )


def with_variables(command: Command, more: Mapping[str, str]) -> Command:
    """Return the command with more variables."""
    return replace(command, environment={**command.environment, **more})


def following_order(command: Command, order: Path) -> Command:
    """Return a command of Python that follows an order (`inside/patchshot_watch.py`)."""
    seed = command.environment.get("PYTHONHASHSEED", _OTHER_HASH_SEED)
    return with_variables(command, {"PYTHONHASHSEED": seed, "PATCHSHOT_TRACE": str(order)})


def tool_command(
    argv: Sequence[str],
    suite: Suite,
    context: RunContext,
    *,
    environment: Mapping[str, str] = MappingProxyType({}),
    folders: Sequence[str] = (),
) -> Command:
    """Build a command that needs no Python. `folders` come before the toolchain's on PATH."""
    toolchain, limits = context.tools.toolchain, context.limits
    path = dict.fromkeys((*folders, *toolchain.folders(), *PATH.split(":")))
    own = {**toolchain.environment, **environment, "PATH": ":".join(path)}
    return Command(
        tuple(argv),
        environment={**_allowed_environment(suite.environment), **own},
        cwd=suite.cwd,
        limits=replace(limits, address_space=max(limits.address_space, _RESERVED)),
        read_only=(INSIDE, *toolchain.read_only),
        report=True,
    )


def collecting(
    mode: Literal["stdout", "merged", "own", "files", "each"],
    argv: Sequence[str],
    pattern: str = "-",
) -> tuple[str, ...]:
    """Wrap a command line in `inside/patchshot_collect.sh`, which writes the report for it."""
    return ("/bin/sh", str(INSIDE / "patchshot_collect.sh"), mode, pattern, *argv)


def probe_command(interpreter: Interpreter, limits: Limits) -> Command:
    """Print versions and modules as JSON: `["3.11.7", "8.3.1", ["abc", ...]]`."""
    argv = (str(interpreter.path), "-I", "-c", _PROBE)
    return Command(argv, limits=limits, read_only=interpreter.read_only)


def replay_command(suite: Suite, context: RunContext, order: Path) -> Command:
    """Run tests as plain code, as an order in the tree asks (`inside/patchshot_plain.py`)."""
    argv = (str(context.tools.needed().path), str(INSIDE / "patchshot_plain.py"))
    command = python_command(argv, replace(suite, environment={}), context)
    return with_variables(command, {"PYTHONPATH": "", "PATCHSHOT_REPLAY": str(order)})


def is_this_python(version: str) -> bool:
    """Whether a version has the grammar of the interpreter that runs Patchshot."""
    return version.split(".")[:2] == [str(part) for part in sys.version_info[:2]]


SHELL = ("/bin/sh", "-c")
"""Runs a command line of the user inside the sandbox."""


def shell_words(command: str, option: str = "--test-cmd") -> list[str]:
    """Return the words of a command line. Raises ConfigurationError where it has none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}; quote it as for a shell") from None
    if not words:
        raise ConfigurationError(f"{option}: the command is empty; leave it out")
    return words


def _allowed_environment(given: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in sorted(given.items())
        if _VARIABLE.fullmatch(name)
        and "\0" not in text
        and not name.startswith(_FORBIDDEN_PREFIXES)
        and name not in _FORBIDDEN
    }


def as_argument(path: str) -> str:
    """Return the path so that no program takes it for an option."""
    return f"./{path}" if path.startswith("-") else path
