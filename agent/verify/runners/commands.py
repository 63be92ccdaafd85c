"""Builds the commands that run inside the sandbox. Pure: nothing is run here."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal

from agent.errors import ConfigurationError
from agent.types import TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports.run_results import make_run
from agent.verify.runners.base import PYTHON, BaseRunner, RunContext, Suite
from agent.verify.runners.programs import Interpreter, find_single_file
from sandbox import PATH, Command, Limits, RunResult

COMMAND = "command"


class CommandRunner(BaseRunner):
    """Runs `suite.argv` as it stands. `words` are the `Runner.command_words` of all runners."""

    name = COMMAND

    def __init__(self, words: Mapping[str, tuple[str, ...]]) -> None:
        self._words = words

    def detect(self, snapshot: Snapshot) -> Suite | None:
        return None

    def programs(self, suite: Suite) -> tuple[str, ...]:
        names = (PurePosixPath(word).name for word in _program_words(suite.argv))
        needed = chain.from_iterable(self._words.get(name, ()) for name in names)
        return (PYTHON, *dict.fromkeys(needed))

    def selects(self, suite: Suite) -> bool:
        return False

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        return ()

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        toolchain = context.tools.toolchain
        # Ids are paths of the tree, wherever pytest is started.
        rootdir = {"PYTEST_ADDOPTS": shlex.quote(f"--rootdir={context.root}")}
        moved = rootdir if suite.cwd != "." else {}
        if PYTHON not in self.programs(suite):
            return tool_command(suite.argv, suite, context)
        return python_command(
            suite.argv,
            context,
            environment={**toolchain.environment, **moved, **suite.environment, **LOADS_PLUGIN},
            cwd=suite.cwd,
            folders=toolchain.folders(),
            read_only=toolchain.read_only,
        )

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        return make_run(command.argv, result, own_runner=False, opaque=True)


# In the order in which make looks for them (GNU make, "What Name to Give Your Makefile").
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")

_GOALS = ("test", "tests", "check")

_RULE = re.compile(r"^([A-Za-z][\w .-]*)::?(?![:=])", re.MULTILINE)


class Make(CommandRunner):
    """The goal `test`, `tests` or `check` of the Makefile at the root."""

    name = "make"
    finders = {"make": find_single_file}
    command_words = {"make": ("make",)}

    def __init__(self) -> None:
        super().__init__(self.command_words)

    def detect(self, snapshot: Snapshot) -> Suite | None:
        for file in (name for name in _MAKEFILES if name in snapshot.files):
            goals = set(_goals(snapshot.text(file)))
            for goal in (goal for goal in _GOALS if goal in goals):
                return Suite(self.name, f"{file} has the goal {goal}", ("make", goal))
        return None


def _goals(text: str) -> Iterator[str]:
    for rule in _RULE.finditer(text):
        yield from rule[1].split()


# This folder is added to the target's import path, so it must not hide modules of the target.
INSIDE = Path(__file__).resolve().parent.parent / "inside"

PLUGIN = "patchshot_pytest"

# The file in the tree in which an order waits for our runner, which removes it.
ORDER_FILE = ".patchshot-order"

# The folder of the tree for what a compiler keeps. `path_rules` keeps patches out of it.
BUILD_CACHE = ".patchshot-build"

# `sandbox.environment` sets 0 for all other runs.
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

Mode = Literal["stdout", "merged", "files"]


def python_command(
    argv: tuple[str, ...],
    context: RunContext,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: str = ".",
    folders: Sequence[str] = (),
    read_only: Sequence[Path] = (),
) -> Command:
    """Build a command that runs with the target's Python first on PATH and writes a report.

    `environment` may come from the project. `folders` come after the interpreter's own on PATH.
    Raises SandboxError where no interpreter works.
    """
    interpreter = context.tools.needed()
    path = [*(context.root / root for root in context.import_roots), INSIDE]
    own = {
        "PATH": ":".join(dict.fromkeys((str(interpreter.path.parent), *folders, *PATH.split(":")))),
        "PYTHONPATH": ":".join(map(str, path)),
        # The byte code of installed packages is used: compiling pytest anew would double the time
        # of a run. The tree holds none (see agent.verify.executor), and none is written.
        "PYTHONPYCACHEPREFIX": "",
    }
    return Command(
        argv,
        environment={**allowed_environment(environment or {}), **own},
        cwd=cwd,
        limits=context.limits,
        read_only=tuple(dict.fromkeys((*interpreter.read_only, INSIDE, *read_only))),
        report=True,
    )


def with_variables(command: Command, more: Mapping[str, str]) -> Command:
    """Return the command with more variables."""
    return replace(command, environment={**command.environment, **more})


def following_order(command: Command, order: Path) -> Command:
    """Return a command of Python that follows an order (`inside/patchshot_trace.py`).

    A project's own PYTHONHASHSEED stays.
    """
    path = command.environment.get("PYTHONPATH", "")
    return with_variables(
        command,
        {
            "PYTHONHASHSEED": command.environment.get("PYTHONHASHSEED", _OTHER_HASH_SEED),
            "PYTHONPATH": f"{path}:{INSIDE / 'children'}",
            "PATCHSHOT_TRACE": str(order),
        },
    )


def tool_command(
    argv: Sequence[str],
    suite: Suite,
    context: RunContext,
    *,
    environment: Mapping[str, str] | None = None,
    folders: Sequence[str] = (),
) -> Command:
    """Build a command that needs no Python. `folders` come before the toolchain's on PATH."""
    toolchain, limits = context.tools.toolchain, context.limits
    path = dict.fromkeys((*folders, *toolchain.folders(), *PATH.split(":")))
    own = {**toolchain.environment, **(environment or {}), "PATH": ":".join(path)}
    return Command(
        tuple(argv),
        environment={**allowed_environment(suite.environment), **own},
        cwd=suite.cwd,
        limits=replace(limits, address_space=max(limits.address_space, _RESERVED)),
        read_only=(INSIDE, *toolchain.read_only),
        report=True,
    )


def collecting(mode: Mode, argv: Sequence[str], pattern: str = "-") -> tuple[str, ...]:
    """Wrap a command line in `inside/patchshot_collect.sh`, which writes the report for it."""
    return ("/bin/sh", str(INSIDE / "patchshot_collect.sh"), mode, pattern, *argv)


def probe_command(interpreter: Interpreter, limits: Limits) -> Command:
    """Print `["3.11.7", "8.3.1", ["abc", ...]]` as JSON.

    These are the versions of Python and pytest (null for no pytest), and the top-level modules.
    """
    argv = (str(interpreter.path), "-I", "-c", _PROBE)
    return Command(argv, limits=limits, read_only=interpreter.read_only)


def syntax_command(interpreter: Interpreter, paths: Sequence[str], limits: Limits) -> Command:
    """Print as JSON which of the files the interpreter cannot parse."""
    script = str(INSIDE / "patchshot_plain.py")
    argv = (str(interpreter.path), "-I", script, "syntax", *map(as_argument, paths))
    return Command(argv, limits=limits, read_only=(*interpreter.read_only, INSIDE))


def replay_command(context: RunContext, order: Path) -> Command:
    """Run tests as plain code, as an order in the tree asks (`inside/patchshot_plain.py`)."""
    argv = (str(context.tools.needed().path), str(INSIDE / "patchshot_plain.py"), "replay")
    command = python_command(argv, context)
    return with_variables(command, {"PYTHONPATH": "", "PATCHSHOT_REPLAY": str(order)})


def is_this_python(version: str) -> bool:
    """Whether a version has the grammar of the interpreter that runs Patchshot."""
    return version.split(".")[:2] == [str(part) for part in sys.version_info[:2]]


# Runs a command line, inside the sandbox, that holds what only a shell understands.
_SHELL = ("/bin/sh", "-c")

# Quoted and escaped text, in which operators have no meaning.
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\$`]|\\.)*"|\\.""", re.DOTALL)

_SHELL_SYNTAX = re.compile(r"[|&;<>()`$*?\n]|^\s*[A-Za-z_]\w*=|(?<!\S)~")


def split_command(command: str, option: str = "--test-cmd") -> tuple[str, ...]:
    """Split a command line as a shell would. One with shell syntax (`&&`, `|`, `>`, `$NAME`, `*`,
    `NAME=value ...`) becomes `/bin/sh -c COMMAND`.

    Raises ConfigurationError when it is empty or its quotes do not match.
    """
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}; quote it as for a shell") from None
    if not argv:
        raise ConfigurationError(f"{option}: the command is empty; leave it out")
    if _SHELL_SYNTAX.search(_QUOTED.sub("", command)):
        return (*_SHELL, command)
    return argv


def _program_words(argv: tuple[str, ...]) -> Sequence[str]:
    """Return the words that may name a program: the first one, or all of a shell's command."""
    if argv[:-1] != _SHELL:
        return argv[:1]
    words = shlex.shlex(argv[-1], posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    return tuple(words)


def allowed_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a project may set for its own tests."""
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
