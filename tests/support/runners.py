"""Runs a tiny project with a runner in the real sandbox, and makes up results for its reader."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.types import TestRun
from agent.verify import runners as registry
from agent.verify.runners.base import PYTHON, Interpreter, RunContext, Runner, Suite, Tools
from agent.verify.tools import find_programs
from sandbox.bwrap import BwrapSandbox
from sandbox.host import find_interpreter
from sandbox.types import Command, Ended, Limits, RunResult
from sandbox.workspace import empty_workspace
from tests.support.fakes import MemorySnapshot
from tests.support.sandboxes import require_bwrap


def require_program(*names: str) -> None:
    """Skip where a program is not installed."""
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


@dataclass(frozen=True)
class Project:
    """Files of a project, and the place where the sandbox shows it."""

    files: Mapping[str, str]
    mount: Path
    python: Path = Path(sys.executable)

    @property
    def snapshot(self) -> MemorySnapshot:
        snapshot = MemorySnapshot(self.files)
        snapshot.root = self.mount
        return snapshot

    def suite(self) -> Suite:
        return registry.detect(self.snapshot, None)

    def run(
        self, paths: Sequence[str] = (), *, suite: Suite | None = None, seconds: float = 60.0
    ) -> TestRun:
        """Run the tests of these files (none: all) in bubblewrap; the files are ours, not git's."""
        require_bwrap()
        chosen = suite or self.suite()
        runner = registry.runner_of(chosen)
        targets = runner.targets(chosen, paths, self.snapshot)
        tools = tools_for(runner, self)
        limits = Limits(wall_seconds=seconds, cpu_seconds=int(seconds))
        context = RunContext(tools, self.mount.resolve(), limits)
        command = runner.command(chosen, targets, context)
        with empty_workspace(mount=self.mount.resolve()) as workspace:
            for path, text in self.files.items():
                workspace.write(path, text.encode())
            result = BwrapSandbox().run(command, workspace)
        return runner.read(chosen, command, result)


def detected(files: Mapping[str, str], *changed: str, test_cmd: str | None = None) -> Suite:
    return registry.detect(MemorySnapshot(files), test_cmd, changed)


def tools_for(runner: Runner, project: Project) -> Tools:
    """The programs of this machine that a runner needs."""
    names = [name for name in runner.needs if name != PYTHON]
    found = find_programs(names, project.snapshot, optional=runner.optional)
    if PYTHON not in runner.needs:
        return Tools(None, toolchain=found)
    real = find_interpreter(project.python)
    return Tools(Interpreter(real.executable, "a test", real.paths), "8", toolchain=found)


def tools_without_machine() -> Tools:
    """An interpreter that is nowhere, for commands that are only looked at."""
    return Tools(Interpreter(Path("/venv/bin/python"), "a test", (Path("/venv"),)), "8.0")


def command_of(suite: Suite, *targets: str, root: str = "/w") -> Command:
    """The command of a suite, on no machine in particular."""
    runner = registry.runner_of(suite)
    return runner.command(suite, targets, RunContext(tools_without_machine(), Path(root), Limits()))


def read(
    suite: Suite,
    *,
    report: bytes = b"",
    stdout: bytes = b"",
    stderr: bytes = b"",
    exit_code: int | None = 0,
    ended: Ended = Ended.EXITED,
) -> TestRun:
    """What the suite's runner makes of a result."""
    result = RunResult(ended, exit_code, stdout, stderr, 1.0, report)
    return registry.runner_of(suite).read(suite, command_of(suite), result)
