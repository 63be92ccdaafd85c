"""Finds the tools that run a target's tests: its Python and the programs that a runner needs.

Python interpreters are tried in this order: the one that the user named; the active environment,
unless it is Patchshot's own; `.venv` or `venv` of the scope's folder and of those above it, up to
the repository's root; Patchshot's own environment when
it is the active one (a developer who installed Patchshot beside the project's dependencies);
`python3` on PATH; the interpreter that runs Patchshot. The last three are guesses, and the first of
them that can import pytest is taken. Candidates are found by reading files. What they can import is
asked inside the sandbox only, because a repository's `.venv` may be anything.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.types.protocols import Snapshot
from agent.verify.cache import Probed, ResultCache, probe_key
from agent.verify.runners.base import PYTHON, joined, probe_command
from agent.verify.runners.programs import Interpreter, Tools, find_programs
from sandbox import (
    TESTBED,
    Limits,
    RunResult,
    Sandbox,
    SandboxError,
    candidate_interpreters,
    empty_workspace,
    explain_closed_paths,
    find_interpreter,
    read_small_file,
)

_FOLDERS = (".venv", "venv")
_VERSION = re.compile(r"^version(?:_info)?\s*=\s*([0-9]+(?:\.[0-9]+)*)", re.MULTILINE)
_PYENV_NAME = re.compile(r"[\w.+-]+")

# Starting an interpreter and importing pytest, on a machine under load.
PROBE_SECONDS = 60.0

# The runners in agent/verify/inside need it.
_OLDEST_PYTHON = (3, 7)

_NO_PYTHON = "there is no Python in the image"

_T = TypeVar("_T")

_PROBED = TypeAdapter(Probed)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolChoices:
    """The user's choices: `--python`, VIRTUAL_ENV and PATH (None: PATH of this process)."""

    python: Path | None = None
    virtual_env: str | None = None
    search_path: str | None = None


class ToolFinder:
    """Finds the tools of suites, and remembers them; `cache` outlives this object.

    It may be used by one thread at a time.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        sandbox: Sandbox,
        choices: ToolChoices,
        cache: ResultCache | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._sandbox = sandbox
        self._choices = choices
        self._cache = cache
        self._python: Tools | None = None

    def tools(self, programs: tuple[str, ...], cancel: threading.Event) -> Tools:
        """Return the interpreter, if it is among `programs`, and the other programs.

        Raises ConfigurationError when the interpreter that the user named does not work, and
        SandboxError.
        """
        python = self.python(cancel) if PYTHON in programs else Tools(None)
        others = tuple(name for name in programs if name != PYTHON)
        if not others or self._sandbox.foreign_root:
            return python  # an image brings its own programs, on its own PATH
        found = find_programs(others, self._snapshot, search_path=self._choices.search_path)
        return dataclasses.replace(python, toolchain=found)

    def python(self, cancel: threading.Event) -> Tools:
        """Return the target's Python, which is found once. Raises as `tools`."""
        if self._python is not None:
            return self._python
        tools = self._find_python(cancel)
        if not cancel.is_set():  # a cancelled probe says nothing about the interpreter
            self._python = tools
        return tools

    def _find_python(self, cancel: threading.Event) -> Tools:
        choices = self._choices
        found: list[Tools] = []
        for candidate in self._candidates():
            tools = self._probe(candidate, cancel)
            if tools.interpreter and (candidate.certain or tools.pytest):
                return tools
            found.append(tools)
        if choices.python is not None:
            raise ConfigurationError(f"--python {choices.python}: {found[0].problem}")
        usable = [tools for tools in found if tools.interpreter]
        return (*usable, *found, Tools(None, problem=_NO_PYTHON))[0]

    def _candidates(self) -> Sequence[Interpreter]:
        choices = self._choices
        if not self._sandbox.foreign_root:
            return candidates(
                self._snapshot.root,
                choices.python,
                choices.virtual_env,
                scope=self._snapshot.scope,
                tracked=self._is_tracked,
                search_path=choices.search_path,
            )
        if choices.python is not None:
            return [Interpreter(choices.python, "chosen with --python, in the image")]
        return [
            Interpreter(Path(one.path), "found in the image", certain=one.certain)
            for one in candidate_interpreters(self._sandbox)
        ]

    def _is_tracked(self, path: str) -> bool:
        return self._snapshot.exists(path) and path not in self._snapshot.overlay()

    def _probe(self, candidate: Interpreter, cancel: threading.Event) -> Tools:
        """Run a candidate inside the sandbox to learn its version and whether it has pytest."""
        interpreter = candidate
        if not self._sandbox.foreign_root:
            try:
                real = find_interpreter(candidate.path, work_tree=self._snapshot.root)
            except SandboxError as error:
                return Tools(None, problem=str(error))
            interpreter = dataclasses.replace(candidate, path=real.executable, read_only=real.paths)
        answer = self._versions(interpreter, cancel)
        if answer is None:
            why = explain_closed_paths(self._sandbox, (interpreter.path, *interpreter.read_only))
            problem = f"{interpreter.path} does not start inside the sandbox"
            return Tools(None, problem=f"{problem}: {why}" if why else problem)
        version, pytest, modules = answer
        if _numbers(version) < _OLDEST_PYTHON:
            return Tools(None, problem=f"{interpreter.path} is Python {version}; 3.7 is needed")
        interpreter = dataclasses.replace(interpreter, version=version)
        return Tools(interpreter, pytest, modules=modules)

    def _versions(self, interpreter: Interpreter, cancel: threading.Event) -> Probed | None:
        """Ask an interpreter about itself; None where it does not start."""
        command = probe_command(interpreter, limits_of(PROBE_SECONDS))
        key = probe_key(interpreter.path, command.argv, interpreter.read_only, self._sandbox.name)
        cached = self._cache.answer(key, time.time()) if self._cache else None
        if cached is not None:
            return cached
        with closing(empty_workspace(mount=mount_of(self._snapshot, self._sandbox))) as tree:
            result = self._sandbox.run(command, tree, cancel=cancel)
        answer = last_json(result, _PROBED)
        if answer is not None and self._cache and not cancel.is_set():
            self._cache.put_answer(key, answer)
        return answer


def mount_of(snapshot: Snapshot, sandbox: Sandbox) -> Path:
    """Return where the tests see the target: at its own path, or where images have it."""
    return Path(TESTBED) if sandbox.foreign_root else snapshot.root.resolve()


def limits_of(seconds: float) -> Limits:
    """Return the limits of a run that may take that long.

    Processor time is summed over all processes, so the limit allows every core for the whole time.
    """
    cores = len(os.sched_getaffinity(0))
    return Limits(wall_seconds=seconds, cpu_seconds=math.ceil(seconds * cores))


def last_json(result: RunResult, adapter: TypeAdapter[_T]) -> _T | None:
    """Parse the last line of the output as JSON; None when it does not fit."""
    lines = result.stdout.splitlines()
    try:
        return adapter.validate_json(lines[-1]) if lines else None
    except ValidationError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


# ----------------------------------------- candidates, found by reading files


def candidates(
    repo_root: Path,
    explicit: Path | None,
    virtual_env: str | None,
    *,
    scope: str = "",
    tracked: Callable[[str], bool] = lambda _: False,
    search_path: str | None = None,
) -> tuple[Interpreter, ...]:
    """Return the interpreters that exist, best first. Their `read_only` is left empty.

    `scope` is the folder whose environments come before those of the folders above it. `tracked`
    says whether a path belongs to the repository's commit: a committed environment is not the
    user's and is not taken. `search_path` is PATH (default: the process's own).

    Raises ConfigurationError when `explicit` is not an executable file.
    """
    folders = (scope, *(str(up) for up in PurePosixPath(scope).parents)) if scope else (".",)
    if explicit is not None:
        return (_explicit(explicit, repo_root / scope),)
    found: dict[Path, Interpreter] = {}
    for path, why, certain in _possible(repo_root, folders, virtual_env, tracked, search_path):
        # An interpreter that is found twice keeps its first and strongest reason.
        found.setdefault(path, Interpreter(path, why, (), _version(path), certain))
    return tuple(found.values())


def _explicit(path: Path, repo_root: Path) -> Interpreter:
    file = path.expanduser().absolute()
    if file.is_dir():
        file = _environment_python(file) or file
    real = _resolve_shim(file, repo_root) if _is_executable(file) else None
    if real is None:
        raise ConfigurationError(f"--python {path}: not an interpreter; name an executable file")
    return Interpreter(real, "chosen with --python", (), _version(real))


def _possible(
    repo_root: Path,
    folders: Sequence[str],
    virtual_env: str | None,
    tracked: Callable[[str], bool],
    search_path: str | None,
) -> Iterator[tuple[Path, str, bool]]:
    active = _environment_python(Path(virtual_env).absolute()) if virtual_env else None
    own = virtual_env is not None and _same(Path(virtual_env), Path(sys.prefix))
    if active and not own:
        yield active, "the active virtual environment", True
    for name in (joined(folder, name) for folder in folders for name in _FOLDERS):
        path = _environment_python(repo_root / name)
        parts = (
            (name, f"{name}/pyvenv.cfg", f"{name}/bin", f"{name}/bin/{path.name}") if path else ()
        )
        if path and not any(map(tracked, parts)):
            yield path, f"the repository's {name}", True
    if active and own:
        yield active, "the active virtual environment, which is Patchshot's own", False
    for path in _on_path(search_path, repo_root / folders[0]):
        yield path, "python3 on PATH", False
    yield Path(sys.executable), "the Python that runs Patchshot", False


def _environment_python(folder: Path) -> Path | None:
    """Return the interpreter of a virtual environment or of any prefix, such as conda's."""
    for name in ("python", "python3"):
        path = folder / "bin" / name
        if _is_executable(path):
            return path
    return None


def _on_path(search_path: str | None, repo_root: Path) -> Iterator[Path]:
    """Yield the first real `python3` on PATH. pyenv's shims are resolved, other scripts skipped."""
    folders = os.environ.get("PATH", "") if search_path is None else search_path
    for path in (Path(folder) / "python3" for folder in folders.split(":")):
        if path.is_absolute() and _is_executable(path):
            real = _resolve_shim(path, repo_root)
            if real is not None:
                yield real
                return


def _resolve_shim(path: Path, repo_root: Path) -> Path | None:
    """Return the interpreter behind a pyenv shim, or the path itself if it is a program."""
    try:
        with path.open("rb") as file:
            is_script = file.read(2) == b"#!"
    except OSError:
        return None
    if not is_script:
        return path
    root = path.parent.parent
    if path.parent.name != "shims" or not (root / "versions").is_dir():
        return None
    for name in _pyenv_versions(root, repo_root):
        real = root / "versions" / name / "bin" / path.name
        if _is_executable(real):
            return real
    return None


def _pyenv_versions(root: Path, repo_root: Path) -> Iterator[str]:
    """Yield versions in pyenv's order: the nearest `.python-version`, then the global one."""
    files = [folder / ".python-version" for folder in (repo_root, *repo_root.parents)]
    for file in (*files, root / "version"):
        try:
            names = (read_small_file(file) or b"").decode("utf-8").split()
        except (OSError, UnicodeDecodeError):
            continue
        # A name must be one folder: `..` would lead out of pyenv's own.
        yield from (n for n in names if _PYENV_NAME.fullmatch(n) and not n.startswith("."))


def _version(path: Path) -> str:
    """Return the version that a virtual environment's pyvenv.cfg names, or ""."""
    if path == Path(sys.executable):
        return ".".join(map(str, sys.version_info[:3]))
    try:
        data = read_small_file(path.parent.parent / "pyvenv.cfg") or b""
        found = _VERSION.search(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""
    return found[1] if found else ""


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _same(left: Path, right: Path) -> bool:
    return os.path.realpath(left) == os.path.realpath(right)
