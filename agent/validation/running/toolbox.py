"""Finds what runs a target's tests: its Python, asked inside the sandbox, and other programs."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.protocols import Snapshot
from agent.validation.frameworks import runners, toolchain
from agent.validation.frameworks.base import PYTHON
from agent.validation.frameworks.interpreter import Interpreter, Tools, candidates
from agent.validation.running.probe_cache import ProbeCache, probe_key
from sandbox.container_image import TESTBED, candidate_interpreters
from sandbox.interpreter import find_interpreter
from sandbox.landlock import why_shut_out
from sandbox.types import Limits, RunResult, Sandbox, SandboxError
from sandbox.workspace import empty

# Starting an interpreter and importing pytest, on a machine under load.
PROBE_SECONDS = 60.0

# The runners in agent/validation/inside need it.
_OLDEST_PYTHON = (3, 7)

_NO_PYTHON = "there is no Python in the image"

_T = TypeVar("_T")

_PROBED: TypeAdapter[tuple[str, str | None]] = TypeAdapter(tuple[str, str | None])


@dataclasses.dataclass(frozen=True, slots=True)
class Wishes:
    """What the user chose of it: `--python`, VIRTUAL_ENV, PATH (None: the process's own)."""

    python: Path | None = None
    virtual_env: str | None = None
    search_path: str | None = None


class Toolbox:
    """Remembers what it found, in `probes` beyond its own life. One thread at a time."""

    def __init__(
        self,
        snapshot: Snapshot,
        sandbox: Sandbox,
        wishes: Wishes,
        probes: ProbeCache | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._sandbox = sandbox
        self._wishes = wishes
        self._probes = probes
        self._python: Tools | None = None

    def tools(self, programs: tuple[str, ...], cancel: threading.Event) -> Tools:
        """The interpreter, if it is among `programs`, and the rest of them.

        Raises ConfigurationError when the interpreter that the user named does not work, and
        SandboxError.
        """
        python = self.python(cancel) if PYTHON in programs else Tools(None)
        others = tuple(name for name in programs if name != PYTHON)
        if not others or self._sandbox.foreign_root:
            return python  # an image brings its own programs, on its own PATH
        found = toolchain.find(others, self._snapshot, search_path=self._wishes.search_path)
        return dataclasses.replace(python, toolchain=found)

    def python(self, cancel: threading.Event) -> Tools:
        """The target's Python, found once. Raises as `tools`."""
        if self._python is not None:
            return self._python
        tools = self._find_python(cancel)
        if not cancel.is_set():  # a probe that was stopped says nothing of the interpreter
            self._python = tools
        return tools

    def _find_python(self, cancel: threading.Event) -> Tools:
        wishes = self._wishes
        found: list[Tools] = []
        for candidate in self._candidates():
            tools = self._probe(candidate, cancel)
            if tools.interpreter and (candidate.certain or tools.pytest):
                return tools
            found.append(tools)
        if wishes.python is not None:
            raise ConfigurationError(f"--python {wishes.python}: {found[0].problem}")
        usable = [tools for tools in found if tools.interpreter]
        return (*usable, *found, Tools(None, problem=_NO_PYTHON))[0]

    def _candidates(self) -> Sequence[Interpreter]:
        wishes = self._wishes
        if not self._sandbox.foreign_root:
            return candidates(
                self._snapshot.root,
                wishes.python,
                wishes.virtual_env,
                tracked=self._is_tracked,
                search_path=wishes.search_path,
            )
        if wishes.python is not None:
            return [Interpreter(wishes.python, "chosen with --python, in the image")]
        return [
            Interpreter(Path(one.path), "found in the image", certain=one.certain)
            for one in candidate_interpreters(self._sandbox)
        ]

    def _is_tracked(self, path: str) -> bool:
        return self._snapshot.exists(path) and path not in self._snapshot.overlay()

    def _probe(self, candidate: Interpreter, cancel: threading.Event) -> Tools:
        """Ask a candidate, inside the sandbox, what it is and whether it has pytest."""
        interpreter = candidate
        if not self._sandbox.foreign_root:
            try:
                real = find_interpreter(candidate.path)
            except SandboxError as error:
                return Tools(None, problem=str(error))
            interpreter = dataclasses.replace(candidate, path=real.executable, read_only=real.paths)
        answer = self._asked(interpreter, cancel)
        if answer is None:
            why = why_shut_out(self._sandbox, (interpreter.path, *interpreter.read_only))
            problem = f"{interpreter.path} does not start inside the sandbox"
            return Tools(None, problem=f"{problem}: {why}" if why else problem)
        version, pytest = answer
        if _numbers(version) < _OLDEST_PYTHON:
            return Tools(None, problem=f"{interpreter.path} is Python {version}; 3.7 is needed")
        return Tools(dataclasses.replace(interpreter, version=version), pytest)

    def _asked(
        self, interpreter: Interpreter, cancel: threading.Event
    ) -> tuple[str, str | None] | None:
        """Versions of an interpreter and its pytest; None where it does not start."""
        command = runners.probe_command(interpreter, limits_of(PROBE_SECONDS))
        key = probe_key(interpreter.path, command.argv, interpreter.read_only, self._sandbox.name)
        known = self._probes.get(key, time.time()) if self._probes else None
        if known is not None:
            return known
        with closing(empty(mount=mount_of(self._snapshot, self._sandbox))) as tree:
            result = self._sandbox.run(command, tree, cancel=cancel)
        answer = last_json(result, _PROBED)
        if answer is not None and self._probes and not cancel.is_set():
            self._probes.put(key, *answer)
        return answer


def mount_of(snapshot: Snapshot, sandbox: Sandbox) -> Path:
    """Where the target is seen by its tests: at its own path, or where images have it."""
    return Path(TESTBED) if sandbox.foreign_root else snapshot.root.resolve()


def limits_of(seconds: float) -> Limits:
    """The limits of one run that may take so long.

    Processor time is counted over all processes: tests that use every core are not cut short by it.
    """
    cores = len(os.sched_getaffinity(0))
    return Limits(wall_seconds=seconds, cpu_seconds=math.ceil(seconds * cores))


def last_json(result: RunResult, adapter: TypeAdapter[_T]) -> _T | None:
    """The last line of the output, read as JSON; None when it is not what it should be."""
    lines = result.stdout.splitlines()
    try:
        return adapter.validate_json(lines[-1]) if lines else None
    except ValidationError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
